"""The retroactive timeline: an event put into the past has only those executed again that depended on it.

Source: TimeSteward (seed document: timeline). Start with `steward` and `events`; the guide is
docs/explanation/timeline.md. Pure: input and times come in, and nothing here waits, reads a clock or draws lots.

    steward      `TimeSteward`: input, time, the queue of events that need attention, snapshots
    events       what you write: `TimelineEvent`, and the `Accessor`, by which an event reads, writes and predicts
    accessor     the notes that are taken of one execution
    attention    the queue of those that need attention
    records      what is known of one event, and what may happen to it
    same_place   two lives of one event that predict the same thing for the same time
    data         timelines: values over time, sums, and what else is changed by operations that come and go
    composites   timelines of many parts: grids and sets
    trajectory   things that move, and when they meet
    sameness     when two values are the same: there, re-execution stops
    effects      what events tell the world outside
    snapshot     the state before a time, frozen
    persistence  the whole network as bytes, and back
    sharing      one peer's side of a history that several peers share
    peer_wire    what peers say, as texts
    game         the same over an event stream: a game for `lockstep.follower`
    replay       the naive twin, which executes everything in order
    crossverify  the first event of which a history differs from the twin's
    audit        a steward for tests, which names the event that breaks a rule
    times        extended times: the one order of all events
    inputs       at which times and under which identities there are inputs
    ids          identities that are equal on all machines, and the dice of an event
"""
