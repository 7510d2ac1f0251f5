"""What homeservers and simulation servers say to each other about who may act on an entity. Pure: no IO, no clocks.

    names, fence, errors      `instance.local` names; which of two claims is the newer one; reasons of refusal
    limits, protocol_version  how large messages are, and which releases understand each other
    model                     what the log holds: records, standings, rules, ownership, addresses
    machines                  both sides of a transfer (`source`, `target`), leases, takeovers: one table each
    trust                     certificates and their chains, pinned keys, enrolment, signed positions
    wire                      messages, batches, sealing, the hop trace
    node                      what both kinds of servers share: configuration, spans, breakpoints
    browser                   the client for pages, as a file
    placement                 where entities should be, and the limits of moves
    procedures                every change of the rows, by name: `commit` is the commit point of a transfer

Start with `docs/reference/transfer.md`, then `procedures.commit` and `machines.source`.
"""
