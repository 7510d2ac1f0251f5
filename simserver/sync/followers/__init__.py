"""Frame-accurate engine sync: one node computes the state of a frame, every other applies exactly that. Pure.

engine_node    the calls of an engine, by the names of RenderStream; start here
frame_clock    when a frame is due, at any rational rate
images         images that an engine hands over
mailbox        between the engine's thread and the node's loop
ports          what an engine's side and a node's side tell each other
streams        the list of streams as it lies in a buffer
struct_layout  structs of C as values
structs        error codes and structs of RenderStream, to the byte
"""
