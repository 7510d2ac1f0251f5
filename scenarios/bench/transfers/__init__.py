"""`baton bench transfers`: hand-overs between two simulation servers, and the floor below them in the same run.

course      what is in the table, what is demanded
world       a world whose entities are on the move all the time
dashboards  open dashboards, which must not slow down what they show
workers     one program per subject: a cluster of ours, and bare UDP with bare cryptography
command     the command line
"""
