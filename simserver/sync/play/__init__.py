"""Running a lockstep game against a server of its stream: polls, long polls, a WebSocket or the link; and ticks.

doors      at which of several doors the stream is asked for, and where one has sent the client on
over_link  a client who asks over the link, by his proved name
session    `follow_stream`, which does both until it is cancelled or the server is lost
"""
