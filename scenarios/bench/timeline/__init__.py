"""`baton bench timeline`: what a change of the past costs, beside engines that compute the world again.

course      what is in the table, and what is demanded
objects     the world that is measured: 10,000 things that depend on what their group shares
workers     one program per subject
command     the command line
"""
