"""What players and observers see of a simulation server, and how they steer: the players' door.

Rooms and what they know of each other, from the bottom up:

    cells       a grid over the positions of entities, and the cells of an area. Pure
    sights      what there is to see: the entities of this server, as they were shown to it last. Pure
    topics      frames: what is told of some entities to all that watch them, encoded once. Pure
"""
