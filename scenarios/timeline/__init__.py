"""Worlds on a retroactive timeline, as examples, and `baton run timeline`, whose peers share one of them.

handshakes  philosophers who make appointments by lot; TimeSteward's own test
circles     circles that bounce off each other and off a ring
collisions  many things on a grid, which look at what is near them

peer_process  one peer of a run, in a process of its own
run           the cluster, the peers, and the command
page          the result as a table and a page

circles_server  bouncy circles in a browser, which visitors throw, in the past too
"""
