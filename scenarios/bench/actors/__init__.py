"""`baton bench actors`: our actors, and other Python actor libraries and trio itself beside them in the same run.

course      what is in the table, who can do the work, what is demanded
workers     one program per subject
command     the command line
"""
