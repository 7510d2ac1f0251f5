"""Who may call what.

Reading is open to every client that reaches the address (loopback by default). Changing things takes the instance's
client token as a bearer token; what is done in a player's name takes that player's signature too. A player who is
connected to the door of this homeserver (`homeserver.door`) has proved its key there: its requests need neither, in the
routes that take `player_access`, and in its own name only. Changing the members of the instance, and looking into
actors, takes the operator token (`actors.http.operator_auth`). Servers prove the join token.

Whether a name is of this instance: rows and records live where their names say, and are changed only there.
"""

import json
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final, NoReturn

from fastapi import Depends, Request
from fastapi.security import HTTPBearer

from batonpass.actors.http.app import ApiError, bearer_access, bearer_token
from batonpass.actors.http.callers import Caller
from batonpass.actors.http.strict_json import read_json_untrusted
from batonpass.authority.errors import Reason
from batonpass.authority.model.enrolment import DoorGrant
from batonpass.authority.model.records import Role
from batonpass.authority.names import instance_of
from batonpass.crypto import jose
from batonpass.crypto.errors import CryptoError, Malformed
from batonpass.homeserver.names.directory import Directory

__all__ = [
    "AT_DOOR",
    "MAX_PROOF_LIFETIME_S",
    "AtDoor",
    "PlayerAtDoor",
    "as_written",
    "check_client_token",
    "check_home",
    "check_player_proof",
    "check_players",
    "client_access",
    "player_access",
    "token_check",
]

# A statement that a player signed can be used once or many times until it expires; none may live longer than this.
MAX_PROOF_LIFETIME_S: Final = 300.0

AT_DOOR: Final = "batonpass.at_door"
"""In the scope of a request that came over the door: the `PlayerAtDoor`. Nothing of a request over HTTP gets there."""

_bearer = HTTPBearer(auto_error=False, description="the instance's client token")


def client_access(token: bytes) -> Callable[..., Awaitable[None]]:
    """A dependency that lets only holders of the client token through."""
    return bearer_access(Caller.CLIENT, _bearer, partial(_check, token=token))


@dataclass(frozen=True, slots=True)
class PlayerAtDoor:
    """Who asks over a connection to the door: a player that has proved its key there, and what it may do."""

    name: str
    grant: DoorGrant


async def _at_door(request: Request) -> PlayerAtDoor | None:
    found = request.scope.get(AT_DOOR)
    return found if isinstance(found, PlayerAtDoor) else None


AtDoor = Annotated[PlayerAtDoor | None, Depends(_at_door)]
"""Of a route that takes `player_access`: who asks; None where it was the client token that let the request in."""


def _is_at_door(request: Request) -> bool:
    return isinstance(request.scope.get(AT_DOOR), PlayerAtDoor)


def player_access(token: bytes) -> Callable[..., Awaitable[None]]:
    """As `client_access`, and lets those through that are at the door. What they may do, the route has to look at."""
    return bearer_access(Caller.AT_DOOR, _bearer, partial(_check, token=token), needs_none=_is_at_door)


def check_client_token(request: Request, token: bytes) -> None:
    """Let only holders of the client token continue, in a route that is open to all with other parameters.

    Raises:
        ApiError: `no_token`, `wrong_token`.
    """
    _check(bearer_token(request), token)


def token_check(token: bytes) -> Callable[[str | None], None]:
    """What raises `ApiError` (`no_token`, `wrong_token`) unless it is given the client token."""
    return partial(_check, token=token)


def _check(given: str | None, token: bytes) -> None:
    if given is None:
        raise ApiError(401, "no_token", "this needs the client token: send 'Authorization: Bearer TOKEN'")
    if not secrets.compare_digest(given.encode("utf-8", "replace"), token):
        raise ApiError(403, "wrong_token", "this is not the client token of this instance")


async def check_players(directory: Directory, instance: str, names: Mapping[str, str | None]) -> None:
    """Check that all who would be given a right are players: no other could use it, nor ever give it back.

    Only the master may be a simulation server of this `instance`, too: its world may answer and decide, with its own
    keys. `names` are those that are given, by the field that gives each; empty ones and None are none.

    Raises:
        ApiError: one of them is not; the message and the value name it.
    """
    for field, name in names.items():
        if not name:
            continue
        row = await directory.row(name)
        if row is None:
            text = f"{field}: no player {name} is registered; register its keys first (PUT /v1/players/{name}/keys)"
            raise ApiError(422, "not_a_player", text, name)
        may_decide = field == "master" and row.role is Role.SIMSERVER and instance_of(name) == instance
        if row.role is not Role.PLAYER and not may_decide:
            raise ApiError(422, "not_a_player", f"{field}: {name} is a {row.role}, not a player", name)


async def check_player_proof(
    directory: Directory,
    player: str,
    proof: str,
    expected: dict[str, Any],
    now_s: float,
    revisions: Mapping[str, int] | None = None,
    *,
    would_own: bool = False,
    at_door: PlayerAtDoor | None = None,
) -> None:
    """Check that `player` signed exactly the statement `expected`, with an expiry that has not passed.

    Who is `at_door` has proved who it is, and does not sign: `proof` is the text of a JSON object instead, with those
    members of the statement that the caller does not send, which are `revisions`, and perhaps others.

    Present `revisions` that the caller does not send, but only signs, belong to the statement too. Who signed others,
    and is right in all else, has seen what was so before (`stale_revision`).

    A server may sign, too, as the master that it may be; but not what would make it the owner (`would_own`).

    Raises:
        ApiError: it did not; the code says what is wrong.
    """
    if at_door is not None:
        if at_door.name != player:
            raise ApiError(403, "wrong_signer", f"this is the connection of {at_door.name}, not of {player}", player)
        _check_statement({**expected, **_unsigned_untrusted(proof)}, expected, revisions or {})
        return
    row = await directory.row(player)
    if would_own and row is not None and row.role is not Role.PLAYER:
        # Its signature would verify. But what it owned then would take no inputs.
        raise ApiError(422, "not_a_player", f"{player} is a {row.role}, not a player", player)
    keys = None if row is None else await directory.keys_of(player)
    if keys is None:
        raise ApiError(404, "unknown_player", f"no keys are registered for {player}", player)
    try:
        if jose.peek_sender_untrusted(proof) != player:
            raise ApiError(403, "wrong_signer", f"the proof is not signed by {player}", player)
        statement = jose.verify_untrusted(proof, sender=keys)
    except Malformed as error:
        text = f"the proof of {player} is no signed statement ({error}); it must be a compact JWS, signed with ES256"
        raise ApiError(403, "bad_proof", text) from error
    except CryptoError as error:
        raise ApiError(403, "bad_proof", f"the proof of {player} does not verify: {error}") from error
    expires_at_s = statement.pop("expires_at_s", None)
    if not isinstance(expires_at_s, int | float) or not now_s < expires_at_s <= now_s + MAX_PROOF_LIFETIME_S:
        text = (
            f"the proof must carry expires_at_s within the next {MAX_PROOF_LIFETIME_S:.0f} s: "
            f"it is {now_s:.0f} by the clock here, so it was signed too long ago, or the two clocks differ"
        )
        raise ApiError(403, "proof_expired", text, expires_at_s)
    _check_statement(statement, expected, revisions or {})


def _unsigned_untrusted(proof: str) -> dict[str, Any]:
    """What stands in the place of a signature where none is needed. Raises ApiError: it is no JSON object."""
    try:
        stated = read_json_untrusted(proof.encode()) if proof else {}
    except ValueError as error:
        raise ApiError(403, "bad_proof", f"what stands for the proof is no JSON: {error}") from error
    if not isinstance(stated, dict):
        raise ApiError(403, "bad_proof", "what stands for the proof is no JSON object")
    stated.pop("expires_at_s", None)
    return stated


def _check_statement(statement: Mapping[str, Any], expected: dict[str, Any], revisions: Mapping[str, int]) -> None:
    expected = {**expected, **revisions}
    signed, wanted = as_written(statement), as_written(expected)
    if signed != wanted:
        different = sorted(k for k in signed.keys() | wanted.keys() if signed.get(k) != wanted.get(k))
        if all(name in revisions and type(statement.get(name)) is int for name in different):
            _raise_stale(statement, {name: revisions[name] for name in different})
        raise ApiError(403, "proof_mismatch", "the proof is about something else", ", ".join(different))


def as_written(statement: Mapping[str, Any]) -> dict[str, str]:
    """As JSON, field by field: for Python, 1 is also `true` and `1.0`."""
    return {name: json.dumps(value) for name, value in statement.items()}


def _raise_stale(signed: Mapping[str, Any], present: Mapping[str, int]) -> NoReturn:
    """The statement has other revisions than the present ones."""
    differences = ", ".join(f"{name} is {rev}, not {signed[name]}" for name, rev in present.items())
    text = f"{differences}: look again, and sign anew"
    raise ApiError(409, Reason.STALE_REVISION, text, next(iter(present.values())))


def check_home(instance: str, *names: str) -> None:
    """Raise `ApiError` (421 `wrong_home`) for the first of `names` that is not of `instance`; its value is the name."""
    for name in names:
        home = instance_of(name)
        if home != instance:
            raise ApiError(421, Reason.WRONG_HOME, f"{name} is at home in {home}, this is {instance}", name)
