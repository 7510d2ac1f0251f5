"""Whole clusters made of the pure machines alone, in one thread, on virtual time, from one seed: as fast as can be.

Real: `Outgoing`, `Incoming`, `Holder`, `Granter`, `CopyTable`, every procedure of the log, the rules of which copy
counts, messages, certificates, the rules of chains. So is what messages are made from and tell
(`simserver.transfer.source.departure`, `simserver.transfer.source.order_history`,
`simserver.transfer.target.unresolved`, `homeserver.transfer.asked`). Modelled, as thin as can be: the shells around
them, the log (a dictionary of rows), signatures, the network, time.

    cluster      what there is, and what is asked of it; start reading here
    server       one simulation server                    leaving, coming   its two sides of hand-overs
    home         one home instance: rows and procedures   orders            what it orders until that is done
    keeping      a server's lease and copies              granting          which servers live, by lease
    recovering   resuming what the dead left
    player       a player with a stream of inputs         lives             what is simulated
    network      messages, lost, repeated and late        words             what is said beside hand-overs
    rows         rows by reference, and taken back        tokens            certificates without signatures
    mixes        what goes wrong, as data                 faults            making it happen
    judge        the promises, watched at every step      run               one seed in, what happened out
    command      `baton simulate machines`

docs/reference/simulation-machines.md says what is simulated, what it notices and how fast it is.
"""
