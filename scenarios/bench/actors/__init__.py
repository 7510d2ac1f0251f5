"""`baton bench actors`: our actors, and other Python actor libraries and trio itself beside them in the same run.

rows        what is in the table and what is demanded (pure)
workers     one program per subject, each run in a fresh process, on one core
run         installs the peers, interleaves the rounds
command     the command line
"""
