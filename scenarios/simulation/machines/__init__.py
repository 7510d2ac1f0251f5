"""Whole clusters made of the pure machines alone, in one thread, on virtual time, from one seed: as fast as can be.

Real: `Outgoing`, `Incoming`, every procedure of the log, messages, certificates and the rules of chains, what is read
out of answers (`simserver.departing`, `simserver.begun`, `homeserver.in_bulk`). Modelled, as thin as can be: the shells
around them, the log (a dictionary of rows), signatures, the network, time.

    cluster      who there is, and what is asked of them; start reading here
    server       one simulation server                    leaving, coming   its two sides of hand-overs
    home         one home instance: rows and procedures   orders            what it orders until that is done
    player       an owner with a stream of inputs         lives             what is simulated
    network      messages, lost, repeated and late        words             what is said beside hand-overs
    rows         rows by reference, and taken back        tokens            certificates that nobody signs
    mixes        what goes wrong, as data                 faults            making it happen
    judge        the promises, watched at every step      run               one seed in, what happened out
    weaknesses   the same with one guard taken away       worker, command   `baton simulate machines`

docs/simulation-machines.md says what is simulated, what it notices and how fast it is.
"""
