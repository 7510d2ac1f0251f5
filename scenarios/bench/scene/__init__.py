"""`baton bench scene`: messages of scenes received and applied here, and by `@dcl/ecs` on node with the same bytes.

course      what is in the table, who can do the work, what is demanded
workers     one program per subject; `streams` makes the bytes that all of them get
command     the command line
"""
