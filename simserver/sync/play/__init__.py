"""Running a lockstep game against a stream's server: polls, long polls or a WebSocket, and the ticks that are due.

doors      at which of several doors the stream is asked for, and where one has sent the client on
session    `follow_stream`, which does both until it is cancelled or the server is lost
"""
