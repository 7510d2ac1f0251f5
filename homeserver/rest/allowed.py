"""Which requests a client of the door may make, and which right each takes; one without a row is refused.

The routes are those of REST (`homeserver.rest`). A route that changes something lets a request of the door in only if
it takes `player_access`, so this table alone opens none.
"""

from typing import Final

from starlette.routing import compile_path

from batonpass.authority.model.enrolment import Right

__all__ = ["ALLOWED", "NOT_ALLOWED", "right_for"]

NOT_ALLOWED: Final = "not_allowed"

_ENTITY: Final = "/v1/entities/{entity_id}"
_TRANSFER: Final = "/v1/transfers/{transfer_id}"
_PLAYER: Final = "/v1/players/{player}"
_SERVER: Final = "/v1/servers/{name}"

ALLOWED: Final[dict[tuple[str, str], Right | None]] = {
    ("GET", "/healthz"): None,
    ("GET", "/v1/servers"): None,
    ("GET", "/v1/servers/load"): None,
    ("GET", _SERVER): None,
    ("GET", _SERVER + "/door"): None,
    ("GET", _ENTITY): None,
    ("GET", _ENTITY + "/why"): None,
    ("GET", _ENTITY + "/transfers"): None,
    ("GET", _TRANSFER): None,
    ("GET", _PLAYER + "/keys"): None,
    ("GET", _PLAYER + "/entities"): None,
    ("GET", _PLAYER + "/asks"): None,
    ("POST", "/v1/entities"): Right.SPAWN,
    ("POST", _ENTITY + "/ownership"): Right.OWN,
    ("POST", _ENTITY + "/transfers"): Right.OWN,
    ("POST", _ENTITY + "/divest"): Right.OWN,
    ("POST", _ENTITY + "/hand-back"): Right.OWN,
    ("POST", _ENTITY + "/leave"): Right.OWN,
    ("POST", _ENTITY + "/locks/{name}/lock"): Right.OWN,
    ("POST", _ENTITY + "/locks/{name}/unlock"): Right.OWN,
    ("POST", _TRANSFER + "/cancel"): Right.OWN,
    ("PATCH", _ENTITY): Right.DECIDE,
    ("PUT", _ENTITY + "/parent"): Right.DECIDE,
    ("POST", _ENTITY + "/release"): Right.DECIDE,
    ("POST", _ENTITY + "/delete"): Right.DECIDE,
    ("POST", _TRANSFER + "/answer"): Right.DECIDE,
}
"""None: what all may see who are let in."""

_PATTERNS: Final = [(method, compile_path(path)[0], right) for (method, path), right in ALLOWED.items()]


def right_for(method: str, path: str) -> Right | str | None:
    """The right that a request takes, None if it takes none, or `NOT_ALLOWED`. `path` is that of the ASGI scope."""
    for each, pattern, right in _PATTERNS:
        if each == method and pattern.match(path):
            return right
    return NOT_ALLOWED
