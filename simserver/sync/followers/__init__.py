"""Frame-accurate engine sync: one node computes the state of a frame, every other applies exactly that. Pure.

The engine's side:

allowed_calls  which calls of an engine are allowed at this moment
awaited_frame  the frame that an engine awaited last
begun_frames   which of the frames that have begun an engine is given
engine_node    the calls of an engine, by the names of RenderStream; start here
frame_clock    when a frame is due, at any rational rate
images         images that an engine hands over
mailbox        between the engine's thread and the node's loop
ports          what an engine's side and a node's side tell each other
received_data  which data an engine is given, which state it has, and which it lacks
shown_streams  streams, cameras by frame number, and images that were handed over
streams        the list of streams as it lies in a buffer
struct_layout  structs of C as values
structs        error codes and structs of RenderStream, to the byte

The node's side:

assembly       frames that come in pieces
board          what of frames the engine of this node is told
controller     what a node does that computes the state
datagrams      the wire: docs/reference/followers-protocol.md
delta          what changed against a state that all have
drops          which node has not applied which frames, and why
follower       what a node does that takes the state
frames         heads of frames, and complete ones
interactions   what followers tell the controller, in order
node           one node of one show; start here
sealing        keys of an epoch, and the controller's signature
settings       what all nodes of a show agree on
state_history  full states that deltas are made against
survey         which newest frame a new controller continues from
window         what may be sent again
"""
