"""A running server's own keys over HTTP: look, rotate, revoke; and the keys that it believes of others."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Protocol

from fastapi import Depends
from pydantic import BaseModel, Field

from batonpass.actors.http.app import ApiError, RequestBody
from batonpass.actors.http.operator_auth import operator_access
from batonpass.actors.http.routes import Routes
from batonpass.actors.http.tokens import TokenGate
from batonpass.actors.net.key_service import DEFAULT_OVERLAP_S, KeysChanged, KeyService, KeysRefused, NotPublishedYet
from batonpass.crypto.errors import KeyFileError
from batonpass.crypto.key_forms import KID_CHARS
from batonpass.crypto.key_store import KeyRing

__all__ = ["PinTable", "key_routes"]


class PinTable(Protocol):
    """The keys of others, as far as these routes need them."""

    @property
    def counts(self) -> Mapping[str, int]:
        """How often keys were pinned, followed, refused."""
        ...

    @property
    def conflicts(self) -> Mapping[str, str]:
        """Names whose keys were refused lately, and why."""
        ...

    def __len__(self) -> int: ...

    def forget(self, name: str) -> bool:
        """Take a pin back; whether there was one. Raises KeyFileError when that cannot be written down."""
        ...


class RotateBody(RequestBody):
    """New keys for this server."""

    overlap_s: float = Field(
        default=DEFAULT_OVERLAP_S, ge=0, le=366 * 86_400, description="how long the old keys stay good"
    )
    version: int | None = Field(
        default=None, ge=1, description="of the keys that are to be replaced: name it to be able to repeat the request"
    )


class RevokeBody(RequestBody):
    """A key of this server that no peer may believe any more."""

    kid: str = Field(
        min_length=KID_CHARS, max_length=KID_CHARS, description="of either key of a generation: both are revoked"
    )


class OwnKeysView(BaseModel):
    """The keys of this server, and what it knows of those of others."""

    name: str
    version: int
    published: bool = Field(description="whether the directory has this version")
    keys: dict[str, Any] = Field(description="JWK set (RFC 7517): current, retiring (`exp`) and `revoked` keys")
    statements: list[str] = Field(description="signed statements that lead to this version, oldest first")
    pins: int = Field(description="names whose keys are pinned here")
    counts: dict[str, int] = Field(description="how often keys of others were pinned, followed, reset, refused")
    conflicts: dict[str, str] = Field(description="names whose keys were refused lately, and why")


def key_routes(keys: KeyService, pins: PinTable, tokens: TokenGate) -> Routes:
    """Looking is open; changing takes the operator token."""
    routes = Routes(prefix="/v1/keys", tags=["keys"])
    operator = Depends(operator_access(tokens))

    def view() -> OwnKeysView:
        published = keys.ring.published
        return OwnKeysView(
            name=keys.name,
            version=published.version,
            published=keys.is_published,
            keys=published.keys.to_jwks(),
            statements=list(published.statements),
            pins=len(pins),
            counts=dict(pins.counts),
            conflicts=dict(pins.conflicts),
        )

    @routes.get("")
    async def show() -> OwnKeysView:
        """The public keys of this server, their version, and whose keys it has refused."""
        return view()

    @routes.post("/rotate", dependencies=[operator])
    async def rotate(body: RotateBody) -> OwnKeysView:
        """Make new keys; answers when the directory has them and this server signs with them.

        Said again with the same `version`, it makes no others.
        """
        await _changed(lambda: keys.rotate(body.overlap_s, version=body.version))
        return view()

    @routes.post("/revoke", dependencies=[operator])
    async def revoke(body: RevokeBody) -> OwnKeysView:
        """Revoke keys of this server for ever; new ones take the place of current ones."""
        await _changed(lambda: keys.revoke(body.kid))
        return view()

    @routes.delete("/pins/{name}", dependencies=[operator])
    async def forget(name: Annotated[str, Field(max_length=128)]) -> OwnKeysView:
        """Take back what is pinned of a name: whatever keys are shown for it next are believed."""
        try:
            is_forgotten = pins.forget(name)
        except KeyFileError as error:
            raise ApiError(503, "keys_unusable", str(error)) from error
        if not is_forgotten:
            raise ApiError(404, "not_pinned", f"no keys of {name} are pinned here", name)
        return view()

    return routes


async def _changed(change: Callable[[], Awaitable[KeyRing]]) -> None:
    try:
        await change()
    except KeyError as error:
        text = "this is no key of this server that is current or retiring"
        raise ApiError(404, "unknown_key", text, str(error.args[0])) from error
    except KeysChanged as error:
        raise ApiError(409, "stale_revision", f"{error}, so others were made meanwhile", error.version) from error
    except ValueError as error:
        raise ApiError(409, "too_many_keys", str(error)) from error
    except NotPublishedYet as error:
        raise ApiError(503, "not_published", f"{error}; it will be as soon as that can be reached") from error
    except KeysRefused as error:
        raise ApiError(409, "key_conflict", str(error)) from error
    except (KeyFileError, OSError) as error:
        raise ApiError(503, "keys_unusable", str(error)) from error
