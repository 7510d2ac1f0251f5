"""The homeservers' door (docs/reference/players-door.md): one WebSocket for all that a player may do at home.

door        the connections: who comes in, requests, sessions
requests    a request of a client, by the same routes as over HTTP; `allowed` says which and by which right
news        what happens in the log, told to the clients whom it concerns
enrolment   players who come by an invitation
"""
