"""Whole clusters in one thread: real code on a virtual clock, network and disk, all from one seed.

    kernel      what all of them need: virtual time, outcomes, and campaigns of many seeds in many processes
    tree        replicas of the log, their network and disks: `baton simulate raft`
    servers     homeservers, simulation servers and players: `baton simulate servers`
    machines    the pure machines alone, and as fast as can be: `baton simulate machines`
    search      hand-overs, searched instead of drawn from seeds: `baton simulate transfers-search`

The last four know the first, and nothing of each other. tests/mutants has what they run with one guard taken away
each. docs/reference/simulation.md says what is simulated and what it found.
"""
