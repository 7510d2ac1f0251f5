"""The REST + JSON face of a homeserver.

`models`    what requests and answers look like (the OpenAPI document is made from these)
`api`       routes for people, players and tools
`servers`   routes for other servers: registration, directory, sealed parcels
`tree`, `transactions`, `watches`, `transport`
            the replicated tree: nodes, several operations as one, events, export and import
`tree_inputs`, `tree_models`
            how requests and answers about the tree look
`errors`    one JSON error with a stable code for everything that is refused
`rights`, `groups`, `hierarchy`, `deletion`, `absence`, `placement`, `quarantine`, `why`
            routes of one concept each; a new route is a module like `why`, which `api.make_app` adds
`overview`  (a room of its own) the map, the lists, the stream and the dashboard
`cluster`   the members of the instance, and changing them
`access`    who may call what: client token, join token, players' signatures
"""

from batonpass.homeserver.rest.api import make_app

__all__ = ["make_app"]
