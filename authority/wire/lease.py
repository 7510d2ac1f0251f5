"""What is said about leases, by a simulation server and its home, and between homes; see `authority.machines.lease`.

None of it is a numbered hop.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from batonpass.authority.model.records import DirectoryRow
from batonpass.authority.trust.certificates import Name, OwnerName
from batonpass.authority.trust.signed_positions import MAX_PLACES_CHARS, PLACES_PATTERN
from batonpass.authority.wire.base import MessageModel, Token
from batonpass.authority.wire.queries import MAX_FOREIGN_LOGS

__all__ = [
    "MAX_LEASES",
    "MAX_PEERS",
    "MAX_POSITION_CHARS",
    "RENEWAL_CHANNEL",
    "LeaseInquiry",
    "LeaseOf",
    "LeaseWord",
    "Renew",
    "RenewReply",
    "digest_of",
    "digest_of_members",
    "number_of",
]

# Of the link between a simulation server and the homeservers of its instance: renewals and their answers, nothing else.
RENEWAL_CHANNEL: Final = 2
# Servers of one instance that are named to each other, as those among which to choose whom to send copies.
MAX_PEERS: Final = 4096
# Of servers of one instance that have entities of another one; in one question of that.
MAX_LEASES: Final = 256
# Of a signed position: a header of names and key ids, and five short fields.
MAX_POSITION_CHARS: Final = 2048
# Of an address, as of those in a registration.
MAX_ADDRESS_CHARS: Final = 256

Incarnation = Annotated[int, Field(ge=1, le=2**63 - 1)]
Nonce = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
PreviousNonce = Annotated[str, Field(pattern=r"^([0-9a-f]{32})?$")]
Position = Annotated[str, Field(max_length=MAX_POSITION_CHARS)]
Places = Annotated[str, Field(max_length=MAX_PLACES_CHARS, pattern=PLACES_PATTERN)]
Challenge = Annotated[str, Field(pattern=r"^([0-9a-f]{32})?$")]
ListDigest = Annotated[str, Field(pattern=r"^([0-9a-f]{16})?$")]

_SPARED: Final = (
    "aside",
    "heard",
    "lost",
    "link_host",
    "link_port",
    "members",
    "members_changed",
    "missing",
    "now_ms",
    "position_known",
    "protocol",
    "rest_url",
    "witnesses",
)


class Renew(MessageModel):
    """Simulation server → home: I am there; renew the lease of this incarnation, or begin it.

    `nonce` is the secret of this incarnation, `previous_nonce` that of the one before, as far as it is known. `peers`
    is the digest of the list of the other servers that it knows: another list is told in the answer. `shared`: nothing
    is durable by its disk alone any more (`authority.procedures.lease`). `position`: where the log was, as a homeserver
    signed it last for this server, empty if none has (`authority.trust.signed_positions`). None, and left out of what
    is sent, of one that knows of no such thing. `heard` is where the log stood by what homeservers said to this server
    since (`LogPlace`), which proves nothing. `witnesses` are the last words of other instances' homeservers on where
    their logs stood (`authority.wire.queries`). `members` is the digest of the homeservers and their addresses that it
    knows: of others there is word in the answer. `challenge` is what a homeserver gave last, empty before the first; by
    it this is known to be new, and no clock matters. None is of a server that knows of no such thing, whose messages
    are as old as both clocks say. `rest_url`, `link_host` and `link_port` are where this incarnation is
    (`lease.claim`); port 0 if it does not say. `protocol` is the version that it speaks (`authority.protocol_version`);
    0 of one that does not say.
    """

    type: Literal["renew"] = "renew"
    server: Name
    incarnation: Incarnation
    nonce: Nonce
    previous_nonce: PreviousNonce = ""
    renewal: Annotated[int, Field(ge=1, le=2**63 - 1)]
    peers: ListDigest = ""
    shared: bool = False
    position: Position | None = None
    heard: Places = ""
    witnesses: Annotated[list[Token], Field(max_length=MAX_FOREIGN_LOGS)] = Field(default_factory=list)
    members: ListDigest = ""
    challenge: Challenge | None = None
    rest_url: Annotated[str, Field(max_length=MAX_ADDRESS_CHARS)] = ""
    link_host: Annotated[str, Field(max_length=MAX_ADDRESS_CHARS)] = ""
    link_port: Annotated[int, Field(ge=0, le=65535)] = 0
    protocol: Annotated[int, Field(ge=0, le=2**31)] = 0

    @model_serializer(mode="wrap")
    def _without_what_is_unknown(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return _sparing(handler(self))


class RenewReply(MessageModel):
    """Home → simulation server: the lease is renewed for `term_ms`, counted from when the renewal was sent; or not.

    `known` is the incarnation that the log knows. `returning` means that nothing can be given to this server yet.
    `draining`: the server is drained, and refuses entities from now on. `alone`: its own disk counts
    (`authority.procedures.lease`).
    `aside`, with another list of `peers`: those of them that are drained, and keep no copies if there are others.
    `went_back`: the log has not been where the server's `position` says, or it is `missing` some of what was `heard`.
    Or it was proved by others; with `position_known` it has been where the word of this server says: that is in doubt.
    `lost`: the log has not been there, which was accepted, so the server has followed another history.
    `position`: where it is now, for a server that takes one.
    `elsewhere`: leases are granted by `officer`, another homeserver, if that is known.
    `again`: the `challenge` was none of the last ones; the one in the answer is, and all answers to a server that knows
    of challenges have one. `now_ms` is the time of the instance, in Unix milliseconds; 0 if it is not told.
    `other_release`: the server and this homeserver, whose version is `protocol`, would not understand each other.
    `members_changed`: the directory has other homeservers, or other addresses of them, than `Renew.members` says.
    """

    type: Literal["renew_reply"] = "renew_reply"
    server: Name
    incarnation: Incarnation
    renewal: Annotated[int, Field(ge=1, le=2**63 - 1)]
    verdict: Literal["granted", "returning", "held", "over", "elsewhere", "went_back", "again", "other_release"]
    known: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0
    officer: OwnerName = ""
    term_ms: Annotated[int, Field(ge=0, le=3_600_000)] = 0
    draining: bool = False
    alone: bool = False
    peers: Annotated[list[Name], Field(max_length=MAX_PEERS)] | None = None
    aside: list[Name] = Field(default_factory=list, max_length=MAX_PEERS)
    position: Position | None = None
    members_changed: bool = False
    missing: Places = ""
    position_known: bool = False
    lost: bool = False
    challenge: Challenge | None = None
    now_ms: Annotated[int, Field(ge=0, le=2**53)] = 0
    protocol: Annotated[int, Field(ge=0, le=2**31)] = 0

    @model_serializer(mode="wrap")
    def _without_what_is_unknown(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return _sparing(handler(self))


def digest_of(peers: Sequence[str], aside: Iterable[str]) -> str:
    """By which a list of servers, and of those of them that are drained, is recognised; see `Renew.peers`."""
    return _digest([*peers, *(f"-{name}" for name in sorted(aside))])


def digest_of_members(rows: Iterable[DirectoryRow]) -> str:
    """By which a list of homeservers, and of where they are, is recognised; see `Renew.members`."""
    return _digest(sorted(f"{row.name} {row.rest_url} {row.link_host} {row.link_port}" for row in rows))


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def number_of(digest: str) -> int:
    """A digest as a number of 63 bits, as loads have it; 0 for none."""
    return int(digest or "0", 16) >> 1


def _sparing(data: dict[str, Any]) -> dict[str, Any]:
    """Without what is not there: a server that does not know of it refuses messages with fields that it lacks."""
    for field in ("position", "challenge"):
        if data[field] is None:
            del data[field]
    for field in _SPARED:
        if not data.get(field, True):
            del data[field]
    return data


class LeaseOf(MessageModel):
    """One incarnation of a simulation server; 0 is one that is not known."""

    server: Name
    incarnation: Annotated[int, Field(ge=0, le=2**63 - 1)]


class LeaseInquiry(MessageModel):
    """A record's home → the home of servers that have its entities: are these leases over? Who is alive?"""

    type: Literal["lease_inquiry"] = "lease_inquiry"
    number: Annotated[int, Field(ge=0, le=2**63 - 1)]
    leases: Annotated[list[LeaseOf], Field(max_length=MAX_LEASES)]
    who_is_alive: bool = False


class LeaseWord(MessageModel):
    """Home of the servers → record's home: which of those that were asked about in `number` are over, by its log.

    One that is over stays so for ever. `alive` are the servers whose leases last, or that are coming back, if they were
    asked for: all who may have copies. Then `over` has also the leases of those that are not alive and may return, for
    which there is room.
    """

    type: Literal["lease_word"] = "lease_word"
    number: Annotated[int, Field(ge=0, le=2**63 - 1)]
    over: Annotated[list[LeaseOf], Field(max_length=MAX_LEASES)]
    alive: Annotated[list[LeaseOf], Field(max_length=MAX_PEERS)] = Field(default_factory=list)
