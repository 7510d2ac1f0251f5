"""A simulation server: holds the entities it has authority over, as actors, and hands them over.

    server           how one is built (`build`) and served (`main`), dispatch of messages, status, load; start here
    neighbours       who is near whom, ghosts of other servers' entities, contacts
    failover         takeovers, creation, logs that were restored from an older copy
    transfer/source  the old authority at work: which entities leave, when, and how often it is tried
    transfer/target  the new authority at work: offers, staged states, activation
    durability       copies on other servers, checkpoints, what was put aside
    post             messages between entities on their way, here and from server to server
    owners           who owns what, and players of whom nothing is heard
    entity           an entity: state, inputs, tick, sleep, journal, its actor, and the table of all
    mail             messages between entities: what one of them has sent, and what has come. Pure
    lease            the lease: keeping and renewing it
    net              the home instance's client, and messages on their way
    players          the players' door: what clients are shown of entities, and how they steer
    sync             copies of a simulation kept in step beside hand-overs: event streams, and their games
    world            what a simulation is: three pure functions, yours to write (`api`); `demo_balls` is one

Never imports `homeserver`.
"""
