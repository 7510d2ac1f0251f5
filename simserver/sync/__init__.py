"""Ways to keep copies of a simulation in step beside hand-overs. So far one: clients replay one stream of events.

browser    lockstep games in browsers: static files, and an example for two; start at events.js
door       streams over HTTP, on a port of its own: polling, long polls, server-sent events, WebSockets
events     the server's side: streams, their clients, votes and snapshots; pure, it knows nothing of any game
hosting    streams as entities, which are handed over and fail over; what of them may be told
lockstep   the client's side: the driver of a game, its generator and hashes, the stream's follower; pure
play       a game that follows a stream's server over HTTP
"""
