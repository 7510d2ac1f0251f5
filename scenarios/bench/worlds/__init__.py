"""`baton bench worlds`: what it costs to simulate very many entities, in a batch world and alone, beside Mesa.

amounts     how many entities there are
course      what is in the table, and what is demanded
border      entities that cross a border between two servers in processes of their own
points      their world
in_a_row    servers that show each other what is near their borders, each on a core of its own
strip       their world
server      the part of a simulation server that ticks entities and sends copies of them, on a core of its own
workers     one program per subject
command     the command line
"""
