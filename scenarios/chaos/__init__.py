"""Faults on real processes: members of the tree that are killed, stopped, cut off and robbed of what was not synced.

`baton chaos tree` runs it; docs/reference/faults.md says what it does and what it found. In the order of reading:

plan        which faults a run meets: kinds, and a plan drawn from a seed (pure)
faults      how each kind is done and healed: a table of what is in killing, cutting, spoiling and changing
stage       where a fault happens
run         a run: load, fault, judgement, next fault
workload    the clients, which never stop reading and writing
history     the judgement on what they were told (pure)
probe       how long until a write is accepted again
instance    the member processes: started, killed, stopped and asked
member      the program of such a process
link        the connection to one
tearing     torn writes and flipped bits in a member's files
network     members on loopback, or each in a network namespace whose cable can be pulled
storage     members' directories, or each a disk image whose power can be cut
privacy     namespaces of the kernel in which all of this vanishes by itself
tools       running ip, mount and their like
report      results as data, JSON and a table
tree        the command

`baton chaos transfers` lets faults happen to hand-overs between simulation servers:

handovers   the trials: at which step what happens to whom
gate        where servers are held still at named steps
chain       the judgement on who simulated what (pure)
transfers   the command

`baton chaos clients` has clients play at the players' doors meanwhile:

playing     a player and listeners, what ends for them, and the judgement
clients     the command
"""
