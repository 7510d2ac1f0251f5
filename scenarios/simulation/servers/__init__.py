"""Whole clusters of homeservers and simulation servers in one thread, on virtual time, from one seed.

Real: `Departures`, `Arrivals`, `Holdings`, `Life`, `Inbox`, the dispatch of messages and the entities' callbacks. So
are the homeservers' `Transfers` and `Store`, the tree's machine, and every procedure, certificate and signature below
them.
Simulated: time, the network, processes that crash and pause, and the log, which is one machine that is sometimes away.

    cluster      the world: what there is, and what they do to each other; start reading here
    tasks        coroutines on virtual time              mail         messages and calls over a bad network
    simserver    one simulation server                   homeserver   one home instance
    player       a player with a stream of inputs for each entity
    mixes        what goes wrong, as data                faults       making it happen
    company      what travels, and is done, together       shows        nodes of shows, and their engines
    promises     what is watched at every step           run          one seed in, what happened out
    command      `baton simulate servers`

docs/reference/simulation.md says what is simulated and what it found.
"""
