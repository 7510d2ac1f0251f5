"""`baton bench link`: the sealed link, and other ways to carry messages beside it in the same run.

course      what is in the table, who can do the work, what is demanded
workers     one program per subject
command     the command line
"""
