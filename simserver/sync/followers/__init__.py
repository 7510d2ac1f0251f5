"""Frame-accurate engine sync: one node computes the state of a frame, every other applies exactly that. Pure.

The engine's side:

engine_node   the calls of an engine, by the names of RenderStream; start here
mailbox       between the engine's thread and the node's loop
images, streams, structs, struct_layout   what these calls take and give, to the byte
ports         what an engine's side and a node's side tell each other
frame_clock   when a frame is due, at any rational rate

The node's side:

node          one node of one show; start here
controller, follower, survey   its parts: one at a time
assembly, window, delta, interactions, board   what these are made of
frames, settings   heads and complete frames; what all nodes of a show agree on
datagrams, sealing   the wire: docs/followers-protocol.md
"""
