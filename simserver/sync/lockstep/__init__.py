"""Deterministic lockstep: every client computes the same states from the same stream of events.

Start with `driver`. Nothing here waits, reads a clock, or opens a connection: times, answers and files come in.

    driver      `SimDriver`, which a game is a class of: callbacks, spawning, ticks, snapshots, a hash for each tick
    entity      `SimEntity`: declared fields that hold values, and can be written in a tick only
    scene       the state: all that a snapshot holds, and nothing else
    generator   xoshiro128**, the one source of chance
    canonical   the one encoding of values, of which hashes are taken
    turns       sine and cosine in whole numbers
    acts        trace mode: each draw and write, with its call site
    desync      what a client shows of a tick, and `explain`: where two of them differ first
    check       check mode: run, save, load and compare at each tick, on one machine
    rules       what the code of a simulation may not call, found while it runs
    follower    `StreamFollower`: what a client asks a stream's server, and what an answer does
    outbox      events that are kept until the server has acknowledged them
    schedule    how many ticks are due, and how long a server may be unreachable
    recording   a stream in a file
    replay      a recording that is played, and sought in
    offline     a stream without a server
"""
