"""A simulation server: holds the entities it has authority over, as actors, and hands them over.

    app         the composition root: builds and runs all of it; start reading here
    config      what is read from TOML
    world       what a simulation is: three pure functions, yours to write      balls  a small physics world
    life        what an entity is here: state, inbox, tick, fence; outlives its actors
    sleep       who is not ticked      passive  what is left of those put away      passivation  puts them away
    participants  what moves along beside a state
    snapshot    a whole entity at rest; its encoding and hash      journal    inputs that arrive while it is frozen
    entity      an entity as an actor: it ticks, and takes inputs
    inputs      exactly-once inputs
    holdings    the entities that live here, and where the others went      caretaker  gives each of them its actor
    turnstile   how many leave for one server at a time      convoys     who waits for that leaves in company
    departures  the old authority at work          arrivals  the new authority at work
    copying_ahead  large states go before them     early  inputs that are here before their entity
    silence     players of whom nothing is heard
    black_box   of whom this server has died
    custody     the log of who simulated what, when and from which state
    courier     sealing and sending                home      client of the home instance
    node        the parts together: the link's inbox, the tick      status    local HTTP: health, custody log

Never imports `homeserver`.
"""
