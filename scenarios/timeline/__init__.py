"""Worlds on a retroactive timeline, as examples: each event is put into the past, and the present follows.

handshakes  philosophers who make appointments by lot; TimeSteward's own test
circles     circles that bounce off each other and off a ring
collisions  many things on a grid, which look at what is near them
"""
