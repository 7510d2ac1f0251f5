"""`baton bench events`: the server of event streams, GoEventStream's rules in FastAPI, and one that does nothing.

course      what is in the table, who can do the work, what is demanded
workers     one program per subject; `stream_load` is the load that all of them get
command     the command line
"""
