"""Running a lockstep game against a stream's server over HTTP: polls, or long polls, and the ticks that are due.

session    `follow_stream`, which does both until it is cancelled or the server is lost
"""
