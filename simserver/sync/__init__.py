"""Ways to keep copies of a simulation in step beside hand-overs. So far one: clients replay one stream of events.

    door       streams over HTTP, on a port of its own: polling, long polls, server-sent events, WebSockets
    events     the server's side: streams, their clients, votes and snapshots; pure, it knows nothing of any game

Rooms here import nothing else of `simserver`.
"""
