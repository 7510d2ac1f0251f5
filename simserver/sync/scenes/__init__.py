"""Scenes as entities: they are handed over and fail over, and the server that has one decides who may write what.

world  entities of kind `scene`, and their state
host   the scenes of one server, among members that have proved their keys
door   a port at which members connect, by WebSockets and the rules of all doors (`actors.http.door`)
"""
