"""Scenes and renderers that run apart and exchange last-writer-wins messages, byte for byte as Decentraland's do. Pure.

The wire, the profiles and the faults of others that are refused are in docs/scene.md (seed document: scene and
renderer, double buffered).

    codec       messages to bytes and back, a whole chunk at once; start here
    elements    a component of which the last write wins, of all entities
    entity_ids  which entities there are, and which id the next one gets
    profiles    what the programs that speak this format do differently
    value_sets  a component whose values are only ever added, of all entities
"""
