"""Ways to keep copies of a simulation in step beside hand-overs. Clients replay one stream of events. The followers of
a show apply the state that its controller sends for each frame. Scenes and renderers exchange components of which the
last write wins. A timeline takes events into its past.

browser    lockstep games in browsers: static files, and an example for two; start at events.js
door       streams over HTTP, on a port of its own: polling, long polls, server-sent events, WebSockets
events     the server's side: streams, their clients, votes and snapshots; pure, it knows nothing of any game
followers  frame-accurate engine sync: what an engine calls, and the state of each frame on its way; pure
hosting    streams as entities, which are handed over and fail over; what of them may be told
lockstep   the client's side: the driver of a game, its generator and hashes, the stream's follower; pure
play       a game that follows a stream's server over HTTP
rendering  a renderer and its scenes as processes, which exchange frames over sockets
scenes     scenes as entities: whose writes are taken, and members that have proved their keys
scene      components of which the last write wins, in the format of Decentraland; pure
timeline   a history that may be changed at any place: what depends on the change is computed again; pure
"""
