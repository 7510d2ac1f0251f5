"""Whole clusters in one thread: real consensus code on a virtual clock, network and disk, all from one seed.

The world
    schedule           virtual time and the trace of a run         network    connections, delays, cuts
    disk               a file system in memory that forgets what was not synced, tears writes, and fails on demand
    mixes, faults      what goes wrong, as data; and making it happen
    cluster            members, clients and faults together; start reading here

The judge
    oracle             what must never happen, watched during a run
    calls, registers   what clients do, and what it must come to
    linearizability    judge a history of calls and answers (Wing and Gong, Lowe); knows nothing of the rest

System under test
    fence              real replicas

Running it
    run                one seed                                    worker     a process that runs many
    campaign           many processes                              show       their results in a terminal
    pace               how fast they go, and how long to the end   command    `baton simulate raft`

tests/mutants has the same with one guard taken away each.

Whole clusters of servers
    servers            homeservers, simulation servers and players; `baton simulate servers`
    machines           the pure machines alone, and as fast as can be; `baton simulate machines`

Hand-overs, searched instead of drawn from seeds
    search             every reachable state, breadth first; knows nothing of the rest
    handover           the small model: three servers, a network without order, a budget of faults
    handover_host      one real server of either kind that can be stopped, copied and compared
    handover_memory    what was met, by number, and what was done to it; so that nothing is computed twice
    search_command     `baton simulate transfers-search`

docs/simulation.md says what is simulated and what it found.
"""
