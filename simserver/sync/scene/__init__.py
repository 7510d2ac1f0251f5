"""Scenes and renderers that run apart and exchange last-writer-wins messages, byte for byte as Decentraland's do. Pure.

The wire, the profiles and the faults of others that are refused are in docs/scene.md (seed document: scene and
renderer, double buffered).

    codec     messages to bytes and back, a whole chunk at once; start here
"""
