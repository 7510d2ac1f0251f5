"""`baton run boxes`: robots that push boxes over the border between two servers, and authority that follows the push.

world    the floor: robots that players drive, and boxes that give way
run      the command: a cluster, a player that drives all robots to and fro, and what was seen
picture  where every box was, coloured by the server that simulated it
"""
