"""Who may call which route of a simulation server. A new route has to have its row here, or there is no application."""

from typing import Final

from batonpass.actors.http.callers import Caller, RouteCallers

__all__ = ["SIMSERVER_CALLERS"]

SIMSERVER_CALLERS: Final[RouteCallers] = {
    ("GET", "/healthz"): Caller.ANYBODY,
    ("GET", "/metrics"): Caller.ANYBODY,
    ("GET", "/openapi.json"): Caller.ANYBODY,
    ("GET", "/v1/actors"): Caller.ANYBODY,
    ("DELETE", "/v1/actors/{pid}"): Caller.OPERATOR,
    ("GET", "/v1/actors/{pid}"): Caller.OPERATOR,
    ("POST", "/v1/actors/{pid}/resume"): Caller.OPERATOR,
    ("PUT", "/v1/actors/{pid}/state"): Caller.OPERATOR,
    ("DELETE", "/v1/actors/{pid}/statistics"): Caller.OPERATOR,
    ("PUT", "/v1/actors/{pid}/statistics"): Caller.OPERATOR,
    ("POST", "/v1/actors/{pid}/suspend"): Caller.OPERATOR,
    ("GET", "/v1/actors/{pid}/trace"): Caller.OPERATOR,
    ("GET", "/v1/keys"): Caller.ANYBODY,
    ("DELETE", "/v1/keys/pins/{name}"): Caller.OPERATOR,
    ("POST", "/v1/keys/revoke"): Caller.OPERATOR,
    ("POST", "/v1/keys/rotate"): Caller.OPERATOR,
    ("GET", "/v1/local/contacts"): Caller.ANYBODY,
    ("GET", "/v1/local/custody"): Caller.ANYBODY,
    ("GET", "/v1/local/door"): Caller.ANYBODY,
    ("GET", "/v1/local/entities"): Caller.ANYBODY,
    ("GET", "/v1/local/entities/{entity_id}"): Caller.ANYBODY,
    ("POST", "/v1/local/entities/{entity_id}/release"): Caller.OPERATOR,
    ("GET", "/v1/local/ghosts"): Caller.ANYBODY,
    ("GET", "/v1/local/ghosts/{entity_id}"): Caller.ANYBODY,
    ("GET", "/v1/local/interrupted"): Caller.ANYBODY,
    ("GET", "/v1/local/positions"): Caller.ANYBODY,
    ("GET", "/v1/local/quarantine"): Caller.ANYBODY,
    ("GET", "/v1/local/scenes"): Caller.ANYBODY,
    ("GET", "/v1/local/scenes/{entity_id}"): Caller.ANYBODY,
    ("GET", "/v1/local/shows"): Caller.ANYBODY,
    ("POST", "/v1/local/shows/{entity_id}/nodes/{server}/hold"): Caller.OPERATOR,
    ("POST", "/v1/local/shows/{entity_id}/nodes/{server}/release"): Caller.OPERATOR,
    ("POST", "/v1/local/shows/{entity_id}/reset"): Caller.OPERATOR,
    ("GET", "/v1/local/stats"): Caller.ANYBODY,
    ("GET", "/v1/local/streams"): Caller.ANYBODY,
    ("GET", "/v1/local/synchronisation"): Caller.ANYBODY,
    ("GET", "/v1/supervision"): Caller.ANYBODY,
}
"""The table of docs/reference/threats.md; `make_status_app` holds every route against it."""
