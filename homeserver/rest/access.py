"""Who may call what.

Reading is open to every client that reaches the address (loopback by default). Changing things takes a bearer token of
the role server; what is done in a player's name takes that player's signature too. A token of the role player stands in
the place of a server's, for that player alone. A player who is connected to the door of this homeserver
(`homeserver.door`) has proved its key there. Its requests need neither token nor signature, in the routes that take
`player_access`, and in its own name only. Changing the members of the instance, and looking into actors, takes the role
operator (`actors.http.operator_auth`). Servers prove the join token.

Whether a name is of this instance: rows and records live where their names say, and are changed only there.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final, NoReturn, Protocol

from fastapi import Depends, Request
from fastapi.security import HTTPBearer

from batonpass.actors.http.app import ApiError, bearer_access
from batonpass.actors.http.callers import Caller
from batonpass.actors.http.strict_json import read_json_untrusted
from batonpass.actors.http.tokens import TokenGate
from batonpass.authority.errors import Reason
from batonpass.authority.model.enrolment import REGISTERED, DoorGrant
from batonpass.authority.model.records import Role
from batonpass.authority.names import instance_of
from batonpass.crypto import jose
from batonpass.crypto.access_tokens import TokenRole
from batonpass.crypto.errors import CryptoError, Malformed
from batonpass.homeserver.log.store import InstanceStore
from batonpass.homeserver.names.directory import Directory
from batonpass.homeserver.rest.allowed import right_for

__all__ = [
    "AT_DOOR",
    "MAX_PROOF_LIFETIME_S",
    "AtDoor",
    "PlayerAtDoor",
    "as_written",
    "check_home",
    "check_player_proof",
    "check_players",
    "client_access",
    "player_access",
    "viewer_access",
]

# A statement that a player signed can be used once or many times until it expires; none may live longer than this.
MAX_PROOF_LIFETIME_S: Final = 300.0

AT_DOOR: Final = "batonpass.at_door"
"""In the scope of a request of a player: the `PlayerAtDoor`. Nothing of a request over HTTP gets there."""

_bearer = HTTPBearer(auto_error=False, description="a token of the instance, which says what its holder may do")


def client_access(tokens: TokenGate) -> Callable[..., Awaitable[None]]:
    """A dependency that lets programs through: the roles server and operator."""
    return bearer_access(Caller.CLIENT, _bearer, partial(TokenGate.let_in, tokens, caller=Caller.CLIENT))


def viewer_access(tokens: TokenGate) -> Callable[..., Awaitable[None]]:
    """As `client_access`, and lets the role viewer through."""
    return bearer_access(Caller.VIEWER, _bearer, partial(TokenGate.let_in, tokens, caller=Caller.VIEWER))


class ChecksTokens(Protocol):
    """What has to be known of a homeserver to let players in by their tokens."""

    @property
    def tokens(self) -> TokenGate:
        """Which tokens it believes."""

    @property
    def store(self) -> InstanceStore:
        """What players may do."""


@dataclass(frozen=True, slots=True)
class PlayerAtDoor:
    """A player that asks for itself, and what it may do.

    It `signs` what it asks for if it came by a token. Over a connection to the door it does not: it has proved its key.
    """

    name: str
    grant: DoorGrant
    signs: bool = False


async def _at_door(request: Request) -> PlayerAtDoor | None:
    found = request.scope.get(AT_DOOR)
    return found if isinstance(found, PlayerAtDoor) else None


AtDoor = Annotated[PlayerAtDoor | None, Depends(_at_door)]
"""Of a route that takes `player_access`: who asks; None where it was a program, for any player."""


def _is_at_door(request: Request) -> bool:
    return isinstance(request.scope.get(AT_DOOR), PlayerAtDoor)


def player_access(node: ChecksTokens) -> Callable[..., Awaitable[None]]:
    """As `client_access`, and lets players through that ask for themselves: at the door, or with the role player.

    Which of its rights a request takes is looked at before, and all else by the route.
    """
    return bearer_access(Caller.AT_DOOR, _bearer, partial(_let_player_in, node=node), needs_none=_is_at_door)


def _let_player_in(request: Request, node: ChecksTokens) -> None:
    access = node.tokens.let_in(request, Caller.AT_DOOR)
    if access.role is not TokenRole.PLAYER:
        return
    enrolled = node.store.enrolled(access.subject)
    grant = REGISTERED if enrolled is None else enrolled.grant
    right = right_for(request.method, request.scope["path"])
    if right not in grant.rights:
        raise ApiError(403, "not_permitted", f"{access.subject} does not have the right to {right}", access.subject)
    request.scope[AT_DOOR] = PlayerAtDoor(access.subject, grant, signs=True)


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

    A caller that is `at_door` is that player. If it has proved who it is, it does not sign: `proof` is the text of a
    JSON object instead, with those members of the statement that the caller does not send. These are `revisions`, and
    perhaps others.

    Present `revisions` that the caller does not send, but only signs, belong to the statement too. Who signed others,
    and is right in all else, has seen what was so before (`stale_revision`).

    A server may sign, too, as the master that it may be; but not what would make it the owner (`would_own`).

    Raises:
        ApiError: it did not; the code says what is wrong.
    """
    if at_door is not None and at_door.name != player:
        raise ApiError(403, "wrong_signer", f"it is {at_door.name} who asks, not {player}", player)
    if at_door is not None and not at_door.signs:
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
