"""Targets of the homeservers' door, and of who may come in at any door: proofs, sessions, invitations."""

import json
from contextlib import suppress
from typing import Any

from batonpass.actors.base.clock import Clock
from batonpass.actors.base.refusals import DoorRefused
from batonpass.actors.http.app import ApiError
from batonpass.authority.errors import MessageError
from batonpass.authority.model.enrolment import DoorGrant, Invitation
from batonpass.authority.model.records import Role
from batonpass.authority.wire.door import DoorChallenge, DoorHello, proof_statement
from batonpass.authority.wire.door_entry import (
    DoorEntry,
    Entered,
    Known,
    check_entering_proof_untrusted,
    sign_session,
)
from batonpass.authority.wire.home_door import (
    HOME_DOOR_VERSION,
    DoorEnrol,
    EntityNews,
    FromHomeClient,
    FromHomeDoor,
    GoneNews,
    HomeAnswer,
    HomeAsk,
    HomeFollow,
    HomeRenew,
    HomeSession,
    HomeWelcome,
    QuestionNews,
    TransferNews,
    decode_from_home_door_untrusted,
    encode_home,
)
from batonpass.client.home_link import _json_untrusted
from batonpass.crypto import jose, jws
from batonpass.homeserver.door.door import read_home_client_untrusted
from batonpass.homeserver.door.enrolment import Enrolment
from batonpass.homeserver.rest.access import PlayerAtDoor, check_player_proof
from batonpass.homeserver.rest.enrolments import invitation_untrusted
from tests.fuzz.target import Target
from tests.fuzz.targets.for_homeserver import run_at_once
from tests.fuzz.world import IDENTITIES, NOW_S

_HOME = "batonpass.authority.wire.home_door"
_ENTRY = "batonpass.authority.wire.door_entry"
_ENROLMENT = "batonpass.homeserver.door.enrolment"
_PLAYER = "alpha.mallory"
_KEYS = IDENTITIES[_PLAYER]
_CHALLENGE = DoorChallenge(server="alpha.h1", challenge=bytes(32), versions=[1], tick_hz=0.0)
_ENTERED = Entered(_PLAYER, _KEYS.public.signing_kid, NOW_S - 60)
_INVITATION = "0123456789abcdef.secret"


def _signed(data: bytes, name: str) -> str:
    """A statement of this text, also one that `jose.sign` would refuse: who means ill signs that too."""
    identity = IDENTITIES[name]
    header = {"alg": "ES256", "typ": "batonpass-statement", "kid": identity.public.signing_kid, "iss": name}
    return jws.sign_encoded(jws.encode_header(header), data, identity.signing)


def _json(statement: dict[str, Any]) -> bytes:
    return json.dumps(statement).encode()


# --- messages -----------------------------------------------------------------------------------------------------


def _from_client(data: bytes) -> None:
    read_home_client_untrusted(data)


def _client_seeds() -> list[bytes]:
    keys = _KEYS.public.to_jwks()["keys"]
    messages: tuple[FromHomeClient, ...] = (
        DoorHello(version=HOME_DOOR_VERSION, player=_PLAYER, proof="a.b.c"),
        DoorEnrol(version=HOME_DOOR_VERSION, player=_PLAYER, keys=keys, invitation=_INVITATION, proof="a.b.c"),
        HomeAsk(id=1, method="GET", target="/v1/entities/alpha.ball-1?consistency=local"),
        HomeAsk(id=2, method="POST", target="/v1/entities", body=b"{}"),
        HomeFollow(entities=["alpha.ball-1"]),
        HomeRenew(),
    )
    return [encode_home(message) for message in messages]


def _answer(data: bytes) -> None:
    _json_untrusted(data)


def _answer_seeds() -> list[bytes]:
    return [b"{}", b'{"code": "no_quorum", "retry_after_s": 1.5}', b"[" * 300]


def _door_seeds() -> list[bytes]:
    messages: tuple[FromHomeDoor, ...] = (
        _CHALLENGE,
        HomeWelcome(
            player=_PLAYER,
            token=b"t",
            token_s=300.0,
            rights=["own"],
            kinds=["*"],
            entities="{player}-*",
            most_entities=1,
        ),
        HomeAnswer(id=1, status=200, body=b"{}"),
        HomeSession(token=b"", token_s=300.0),
        EntityNews(revision=1, entity={"id": "alpha.ball-1"}),
        TransferNews(revision=1, transfer={"phase": "asked"}),
        QuestionNews(revision=1, question={"entity": "alpha.ball-1"}),
        GoneNews(revision=1, entity="alpha.ball-1"),
    )
    return [encode_home(message) for message in messages]


# --- who comes in -------------------------------------------------------------------------------------------------


async def _known(name: str) -> Known:
    identity = IDENTITIES.get(name)
    if identity is None:
        return None, None
    role = Role.PLAYER if name == _PLAYER else Role.HOMESERVER if name.endswith("h1") else Role.SIMSERVER
    return role, identity.public


def _enter(hello: DoorHello) -> None:
    entry = DoorEntry(_known, lambda: NOW_S, observers=False)
    entered = run_at_once(entry.enter(hello, _CHALLENGE))
    assert isinstance(entered, Entered)
    assert entered.player == _PLAYER


def _session(data: bytes) -> None:
    """Whatever a homeserver of the player's home has signed."""
    _enter(DoorHello(version=1, player=_PLAYER, token=_signed(data, "alpha.h1").encode()[:1024]))


def _session_seeds() -> list[bytes]:
    session = sign_session(_ENTERED, signer=IDENTITIES["alpha.h1"], signer_id="alpha.h1", now_s=NOW_S - 30)
    return [_json(jose.peek_statement_untrusted(session.decode()))]


def _token(data: bytes) -> None:
    _enter(DoorHello(version=1, player=_PLAYER, token=data[:1024]))


def _token_seeds() -> list[bytes]:
    return [
        sign_session(_ENTERED, signer=IDENTITIES[name], signer_id=name, now_s=NOW_S)
        for name in ("alpha.h1", "beta.h1", "alpha.s1", _PLAYER)
    ]


def _proof(data: bytes) -> None:
    check_entering_proof_untrusted(_signed(data, _PLAYER), _PLAYER, _KEYS.public, _CHALLENGE, NOW_S)


def _proof_seeds() -> list[bytes]:
    return [_json(proof_statement(_CHALLENGE) | {"expires_at_s": NOW_S + 60})]


# --- enrolment and requests ---------------------------------------------------------------------------------------


class _NoLog:
    """A log that has one invitation and takes all that comes so far."""

    def invitation(self, name: str) -> Invitation | None:
        given, digest = invitation_untrusted(_INVITATION)
        if name != given:
            return None
        return Invitation(
            id=given, digest=digest, players="alpha.*", grant=DoorGrant(), uses=1, expires_at_s=NOW_S + 60
        )

    async def confirmed(self) -> None:
        pass

    def row(self, name: str) -> None:
        return None

    async def submit(self, procedure: str, **args: Any) -> Any:
        return {"player": args["row"]["name"], "grant": {}, "invitation": args["invitation"]}


class _StoppedClock(Clock):
    def unix_s(self) -> float:
        return NOW_S


def _enrol(data: bytes) -> None:
    """Whatever somebody shows, with a good proof."""
    message = read_home_client_untrusted(data)
    if isinstance(message, DoorEnrol):
        proof = _signed(_json(proof_statement(_CHALLENGE) | {"expires_at_s": NOW_S + 60}), _PLAYER)
        shown = message.model_copy(update={"proof": proof})
        enrolment = Enrolment("alpha", _NoLog(), _StoppedClock(), None)  # type: ignore[arg-type] # as far as it goes
        run_at_once(enrolment.enrol(shown, _CHALLENGE, "127.0.0.1"))


def _enrol_seeds() -> list[bytes]:
    return [data for data in _client_seeds() if b"enrol" in data]


def _unsigned(data: bytes) -> None:
    at_door = PlayerAtDoor(_PLAYER, DoorGrant())
    statement = {"action": "divest", "entity": "alpha.ball-1", "if_wanted": False}
    proof, nobody = data.decode("utf-8", "surrogateescape"), None
    check = check_player_proof(nobody, _PLAYER, proof, statement, NOW_S, {"owner_rev": 3}, at_door=at_door)  # type: ignore[arg-type] # nobody is asked
    with suppress(ApiError):
        run_at_once(check)


def _unsigned_seeds() -> list[bytes]:
    return [b"", b'{"owner_rev": 3}', b'{"owner_rev": 2, "action": "divest"}']


TARGETS = (
    Target(
        "home-door-client",
        _from_client,
        (
            "batonpass.homeserver.door.door:read_home_client_untrusted",
            f"{_HOME}:decode_from_home_client_untrusted",
            f"{_HOME}:_decoded_untrusted",
        ),
        _client_seeds,
        (DoorRefused,),
        "cbor",
    ),
    Target(
        "home-door-server",
        decode_from_home_door_untrusted,
        (f"{_HOME}:decode_from_home_door_untrusted",),
        _door_seeds,
        (MessageError,),
        "cbor",
    ),
    Target(
        "home-door-answer",
        _answer,
        ("batonpass.client.home_link:_json_untrusted",),
        _answer_seeds,
        (MessageError,),
        "json",
    ),
    Target(
        "door-session", _session, (f"{_ENTRY}:_session_untrusted",), _session_seeds, (DoorRefused,), "json", slow=True
    ),
    Target("door-token", _token, (f"{_ENTRY}:_signer_untrusted",), _token_seeds, (DoorRefused,)),
    Target(
        "door-proof",
        _proof,
        (f"{_ENTRY}:check_entering_proof_untrusted",),
        _proof_seeds,
        (DoorRefused,),
        "json",
        slow=True,
    ),
    Target(
        "home-door-enrol",
        _enrol,
        (f"{_ENROLMENT}:_keys_untrusted", "batonpass.homeserver.rest.enrolments:invitation_untrusted"),
        _enrol_seeds,
        (DoorRefused,),
        "cbor",
        slow=True,
    ),
    Target(
        "home-door-unsigned",
        _unsigned,
        ("batonpass.homeserver.rest.access:_unsigned_untrusted",),
        _unsigned_seeds,
        (),
        "json",
    ),
)
