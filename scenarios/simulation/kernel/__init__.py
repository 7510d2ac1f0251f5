"""What every kind of simulation needs.

schedule          virtual time and the trace of a run
outcome           what came of a run, and what was violated in it
campaign          a kind of simulation, and many seeds of it in many processes
worker            one of these processes
show, pace        the results in a terminal; how fast they go, and how long to the end
debts             what must not be lost, because a server was told that it is durable
attendance, durable_stages    stand-ins for what simulation servers run on: actors, and the disk for staged states
"""
