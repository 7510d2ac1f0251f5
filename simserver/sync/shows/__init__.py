"""Shows as entities: the server that has authority over a show is its controller, and a failover makes another one.

world          the world of shows: the state of one holds below which number frames may have been sent
frame_limit    which frames a controller may send: none that a failover could let another one send again
host           the shows in which this server takes part: authority, limit and engine around a node machine
show_part      what a server keeps of one show, and of its time as the controller
membership     who takes part in a show, and who gives whom its key
server_streams which streams each server renders
status         what operators see of a show
nodes          which servers take part in a show, as its controller knows them
node_traffic   what goes between a node's machine, its socket and its engine
datagram_port  the UDP socket of a node: bounded reads, nothing opened that is not sealed with the key of an epoch
engine_thread  the engine in a thread of its own
ports          what shows have of the world outside, of which a simulation gives others
own_parts      the key of this process, and the settings of a show
"""
