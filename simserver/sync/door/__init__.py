"""Event streams over HTTP: the way from a socket to a stream and back. The streams themselves are in `sync.events`.

ports          `StreamHost`: what a door needs of the holder of the streams
polled_host    streams that this process has itself, on trio's clock
pushed         what clients are told without asking: one walk over the clients of a stream each tick
stream_rules   what goes on over one WebSocket, by the rules of all doors (`actors.http.door`)
stream_door    the routes: polling, long polls, server-sent events, WebSockets, snapshots, dumps; start here
"""
