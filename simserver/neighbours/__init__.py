"""Interaction across borders: who is near whom on this server, ghosts of other servers' entities, and contacts.

    host            one server's part: wired here, run by `serve`; start here
    surroundings    what a world is told that looks around (`step.near`, `step.ghosts`)
    interest        in which cells a server has entities, and who is to be sent what
    ghost_streams   what this server sends its peers of its entities
    ghost_table     what it has of theirs
    spatial_index   a grid over positions

All but `host` is pure.
"""
