"""Clients of an instance: programs that watch entities, own and steer them, over the players' door.

`batonpass.connect` begins; `batonpass.connect_blocking` does for scripts and notebooks. In the order of reading:

client        a client, which follows its entities from door to door
blocking      the same for programs that do not wait asynchronously
steering      inputs for one entity, as a program gives them
watch         what is watched, and changes as they come
smoothing     states between those that were told. No I/O
tick_clock    when the rounds of a server's ticks are. No I/O
home          what is asked at home, and what is told from there
home_link     the connection to a homeserver
door_link     the connection to the door of one simulation server
mirror        what is known of the entities that are watched at one door. No I/O
input_stream  inputs by number, until they are durable. No I/O
player_key    who a client is
socket        a WebSocket under trio and asyncio
"""
