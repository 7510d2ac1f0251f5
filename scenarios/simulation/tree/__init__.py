"""Instances of the replicated tree: real replicas on a virtual clock, network and disk.

The world
    cluster            members, clients and faults together; start reading here
    network            connections, delays, cuts
    disk               a file system in memory that forgets what was not synced, tears writes, and fails on demand
    mixes, faults      what goes wrong, as data; and making it happen
    changes            operators who add and remove members
    fence              the system under test: real replicas

The judge
    oracle             what must never happen, watched during a run
    calls, registers   what clients do, and what it must come to
    linearizability    judge a history of calls and answers (Wing and Gong, Lowe); knows nothing of the rest

    run, command       one seed in, what happened out; `baton simulate raft`

docs/reference/simulation.md says what is simulated and what it found.
"""
