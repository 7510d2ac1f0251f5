"""Clients of an instance: programs that watch entities, own and steer them, over the players' door.

mirror    what is known of the entities that are watched at one door. No I/O
"""
