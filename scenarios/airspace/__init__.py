"""`baton run airspace`: aircraft that warn of conflicts with those of other sectors, which they see as ghosts.

world       aircraft, and how they find out whom they will meet
plan        who flies where, and which of them have to meet
picture     where they flew, on which server, and where they were warned
run         the command
"""
