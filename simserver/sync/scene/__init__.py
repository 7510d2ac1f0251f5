"""Scenes and renderers that run apart and exchange last-writer-wins messages, byte for byte as Decentraland's do. Pure.

The wire, the profiles and the faults of others that are refused are in docs/reference/scene.md (seed document: scene
and renderer, double buffered).

    codec              messages to bytes and back, a whole chunk at once
    comms              what a room puts around messages
    component_numbers  the number of a component, by its name
    elements           a component of which the last write wins, of all entities
    entity_ids         which entities there are, and which id the next one gets
    exchange           what a replica is told of its peers, and what it tells of what it received
    folding            a snapshot and the changes after it, as one
    graph              where entities are, and who wrote what of them
    hydration          the whole state, for who comes late
    limits             every bound, settable
    loops              the stages of a renderer's frame, double-buffered or one after the other
    membership         a scene's authority and its members, each known by its key
    network_ids        which entity here a peer means
    profiles           what the programs that speak this format do differently
    renderer           a renderer's replicas of scenes, from stage to stage of its frames
    replica            a scene's entities and components among its peers; start here
    rights             who may write what, and how a refused writer is brought back
    scene_loop         a scene's frames: receive, update, send
    schedule           a renderer's frame among scenes, and when it may answer them
    schemas            what the bytes of a component mean
    store              what a replica has, and what is changed here
    translation        messages by ids, and by the names that a room knows
    value_sets         a component whose values are only ever added, of all entities
"""
