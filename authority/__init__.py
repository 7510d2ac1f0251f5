"""What homeservers and simulation servers say to each other about who may act on an entity. Pure: no IO, no clocks.

    names           `instance.local`, the names of everything
    records         the rows that homeservers replicate: entities, transfers, directory
    rules           ask, deny, allow; locks; kinds of request
    rights          rights that change in the log at once
    ownership       the mutex on inputs: whose are taken
    epoch           the fence: which of two claims of authority is the newer one
    procedures      every change of the rows, as deterministic procedures over one tree transaction, by name:
    ├ directory_procedures   names, their keys and addresses
    ├ entity_procedures      making, taking back, delegating
    ├ absence_procedures     an owner's player has gone
    ├ hierarchy              parents and children, which move together
    ├ group_requests         several entities: together, or apart with one report
    ├ group_commit           together: in one step, or none
    ├ transfer_requests      asking, answering, taking back
    ├ endings                transfers of what was deleted
    ├ transfer_procedures    the commit point; direct passes; reports
    ├ sole                   when the own disk of a server counts
    └ bulk_procedures        many steps of hand-overs by one command, with a verdict for each
    drafts          rows as several procedures one after the other would leave them
    rows            what a procedure may do to the tree
    abroad          what is on servers of other instances: which life of them has it, and where its copies are
    transfer_rows   the table of transfers, and which are forgotten
    outgoing        the old authority's side of a transfer: a machine with one table
    incoming        the new authority's side
    certificates    commit, delegation, pass: signed sentences about authority, and their chains
    messages        every message: those of transfers, and with them those of
    ├ player_messages  entity_messages  lease_messages  placement_messages  recovery_messages
    parcels         what a sealed message travels in
    precopy         large states that go ahead
    absence         what becomes of an entity whose owner has gone
    hops            the hop trace: what crossed the wire, counted there
    sealing         encrypting, signing, opening
    enrolment       proofs by a shared secret
    timings         from a trace to how long each phase took
    spans           what servers tell of a hand-over while it goes on, and what holds it together over all of them
    listeners       functions that a configuration names to be told
    pacing          how often one requester may ask
    asks            questions to masters under the rule `ask`
    errors          reasons of refusal, and the error of bad messages
    settings        configuration that both kinds of server share

Start with `docs/transfer.md`, then `transfer_procedures` and `outgoing`.
"""
