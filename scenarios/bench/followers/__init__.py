"""`baton bench followers`: a show of real processes, and bare UDP that sends the same bytes to as many receivers.

course      what is in the table: states and numbers of followers, and who is measured
figures     what the processes of a sample have noted, as figures (pure)
table       one line for each show and subject
workers     one program per subject; `processes` starts what all of them are made of
command     the command line
"""
