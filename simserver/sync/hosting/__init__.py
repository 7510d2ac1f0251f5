"""Event streams as entities: their authority is handed over, fails over and is drained like that of any other.

inputs        what the server that simulates a stream gives it as inputs: requests of clients, and who was heard
world         the world of streams: one tick of the entity is one tick of the stream
publication   which tick of a stream may be told to clients: nothing is told that a failover could take back
host          streams of this server for the door: inputs in, replies out, and where a stream is if not here
"""
