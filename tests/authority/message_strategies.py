"""Every message that servers exchange, as hypothesis strategies made from its fields."""

from typing import Any, Final, get_args

from hypothesis import strategies as st
from pydantic import BaseModel

from batonpass.authority.limits import INLINE_STATE_BYTES, MAX_STATE_BYTES
from batonpass.authority.model.standing import CopySource
from batonpass.authority.wire import messages as entity_messages
from batonpass.authority.wire import recovery as recovery_messages
from batonpass.authority.wire import transfer as messages
from batonpass.authority.wire.batch import BatchItem
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.lease import LeaseInquiry, LeaseOf, LeaseWord, Renew, RenewReply
from batonpass.authority.wire.neighbours import GhostNews
from batonpass.authority.wire.placement import MAX_WHY_CHARS, CensusRow, Load, MoveItem, StillRow
from batonpass.authority.wire.queries import HeldInquiry, HeldItem, HeldWord, LogShown, LogWord
from batonpass.authority.wire.regions import CellRow, RegionRow
from batonpass.authority.wire.shows import GROUP_KEY_BYTES, PUBLIC_KEY_BYTES, ShowMember, ShowMembers
from batonpass.authority.wire.standing import At, StandingInquiry, StandingRow, StandingWord
from batonpass.authority.wire.transfer import Manifest

NAMES = st.sampled_from(["alpha.s1", "alpha.h1", "beta.s1", "alpha.ball-7", "alpha.ada"])
IDS = st.sampled_from(["transfer-1", "0123456789abcdef01234567"])
WHOLE = st.integers(0, 2**63 - 1)
HASHES = st.sampled_from(["0" * 64, "f" * 64])
TOKENS = st.text(max_size=20)
TRACES = st.sampled_from(
    [
        Trace("transfer-1"),
        Trace("transfer-1").leave("alpha.s1", "handoff", 1).arrive("alpha.h1", 2, 3).mark("alpha.h1", "committed", 4),
    ]
)
ITEMS = st.builds(
    messages.InputItem, source=NAMES, owner_rev=WHOLE, seq=st.integers(1, 2**63 - 1), data=st.binary(max_size=20)
)

LOADS = st.builds(Load, **(dict.fromkeys(Load.model_fields, WHOLE) | {"is_full": st.booleans()}))
CENSUS_ROWS = st.builds(
    CensusRow,
    entity=NAMES,
    here_ms=WHOLE,
    cost_ppm=WHOLE,
    group=st.text(max_size=20),
    immovable=st.booleans(),
    untaken=st.booleans(),
)
CELL_NAMES = st.sampled_from(["c", "c0", "c101"])
COORDINATES = st.floats(allow_nan=False, allow_infinity=False)
CELL_ROWS = st.builds(
    CellRow,
    cell=CELL_NAMES,
    entities=WHOLE,
    cost_ppm=WHOLE,
    here_ms=WHOLE,
    axis=st.integers(0, 2),
    at=st.none() | COORDINATES,
    low_ppm=WHOLE,
)
REGION_ROWS = st.builds(
    RegionRow,
    revision=st.integers(1, 2**63 - 1),
    axes=st.integers(1, 3),
    margin=st.floats(0, 10),
    hold_s=st.floats(0, 10),
    nodes=st.sampled_from([["alpha.s1"], [[0.0, 1.5], "alpha.s1", "alpha.s2"]]),
)
LETTERS = st.builds(BatchItem, trace=TRACES.map(Trace.to_data), on_path=st.booleans(), body=st.binary(max_size=20))

# One strategy for each name of a field; a field has the same meaning in whichever message it stands.
STILL_ROWS: Final = st.builds(
    StillRow,
    entity=NAMES,
    why=st.text(max_size=MAX_WHY_CHARS),
    still_ms=WHOLE,
    untaken=st.booleans(),
    failed_here=st.booleans(),
)
PORTS: Final = st.integers(1, 65535)
PUBLIC_KEYS: Final = st.binary(min_size=PUBLIC_KEY_BYTES, max_size=PUBLIC_KEY_BYTES)
SHOW_MEMBERS: Final = st.builds(
    ShowMember, name=NAMES, number=st.integers(0, 2**32 - 1), host=st.just("127.0.0.1"), port=PORTS, public=PUBLIC_KEYS
)
_FIELDS: Final[dict[str, st.SearchStrategy[Any]]] = {
    "stands_still": st.booleans(),
    "alone": st.booleans(),
    "accepted": st.booleans(),
    "who_is_alive": st.booleans(),
    "applied": WHOLE,
    "authority": NAMES,
    "base": WHOLE,
    "floor": WHOLE,
    "certificate": TOKENS,
    "challenge": st.none() | st.sampled_from(["", "0123456789abcdef" * 2]),
    "chain": st.lists(TOKENS, max_size=3),
    "columns": st.none() | st.dictionaries(st.text(max_size=5), WHOLE, max_size=2),
    "counters": st.dictionaries(st.text(max_size=32), WHOLE, max_size=3),
    "header": st.binary(min_size=1, max_size=64),
    "data": st.binary(max_size=20),
    "direct": st.booleans(),
    "discard_inputs": st.booleans(),
    "draining": st.booleans(),
    "shared": st.booleans(),
    "durable": WHOLE,
    "entity": NAMES,
    "epoch": WHOLE,
    "given_epoch": WHOLE,
    "forwards": st.integers(1, 4),
    "grant": TOKENS,
    "freeze_budget_ms": st.integers(0, 10_000),
    "aside": st.lists(NAMES, max_size=3),
    "deaths": st.dictionaries(NAMES, st.lists(WHOLE, max_size=3), max_size=3),
    "still": st.lists(STILL_ROWS, max_size=3),
    "handed_to": st.dictionaries(NAMES, NAMES, max_size=3),
    "handed_on": st.lists(NAMES, max_size=3),
    "grouped": st.booleans(),
    "went_on": st.lists(WHOLE, max_size=3),
    "since": WHOLE,
    "inputs": st.lists(ITEMS, max_size=3),
    "incarnation": st.integers(1, 2**63 - 1),
    "kind": st.text(max_size=20),
    "limit": st.integers(1, 512),
    "link_host": st.sampled_from(["", "127.0.0.1"]),
    "link_port": st.integers(0, 65535),
    "load": LOADS,
    "port": PORTS,
    "public": PUBLIC_KEYS,
    "rate": st.tuples(st.integers(1, 10_000_000), st.integers(1, 10_000_000)),
    "cells": st.lists(CELL_ROWS, max_size=3),
    "instead_of": WHOLE,
    "knows": WHOLE,
    "row": st.none() | REGION_ROWS,
    "revision": st.integers(0, 2**63 - 1),
    "fence": st.sampled_from(["none", "soft", "external"]),
    "nodes": st.lists(SHOW_MEMBERS, min_size=1, max_size=3),
    "known": WHOLE,
    "manifest": st.none()
    | st.builds(Manifest, hash=HASHES, length=st.integers(INLINE_STATE_BYTES + 1, MAX_STATE_BYTES)),
    "messages": st.lists(LETTERS, min_size=1, max_size=3),
    "mode": st.sampled_from(["eager", "staged"]),
    "moved_to": st.sampled_from(["", "alpha.s2"]),
    "moves": st.lists(st.builds(MoveItem, transfer_id=IDS, entity=NAMES, target=NAMES), min_size=1, max_size=3),
    "number": WHOLE,
    "now_ms": st.integers(0, 2**53),
    "never": st.booleans(),
    "nonce": st.sampled_from(["0" * 32, "0123456789abcdef" * 2]),
    "notice_ms": st.integers(0, 10_000),
    "within_ms": st.integers(0, 10_000),
    "off_path": st.dictionaries(st.text(max_size=32), WHOLE, max_size=3),
    "officer": NAMES | st.just(""),
    "outcome": st.sampled_from(["committed", "refused"]),
    "owner": NAMES | st.just(""),
    "owner_rev": WHOLE,
    "places": st.integers(0, 1024),
    "protocol": st.integers(0, 2**31),
    "params": st.dictionaries(st.text(max_size=3), st.integers() | st.binary(max_size=3), max_size=3),
    "previous_nonce": st.sampled_from(["", "f" * 32]),
    "reason": st.text(max_size=20),
    "rest_url": st.sampled_from(["", "http://127.0.0.1:1"]),
    "code": st.sampled_from(["", "state_too_large"]),
    "rows": st.lists(CENSUS_ROWS, max_size=3),
    "silent_s": st.integers(0, 2**31),
    "timeout_s": st.integers(0, 86_400),
    "schema_version": st.integers(0, 2**31 - 1),
    "lengths": st.lists(st.integers(1, 1000), min_size=1, max_size=3),
    "recipe": st.binary(max_size=80),
    "round": st.integers(1, 5),
    "renewal": st.integers(1, 2**63 - 1),
    "seq": st.integers(1, 2**63 - 1),
    "server": NAMES,
    "source": NAMES,
    "state": st.binary(max_size=50),
    "state_bytes": st.integers(1, 2**32),
    "state_hash": HASHES,
    "sub": WHOLE,
    "target": NAMES,
    "term_ms": st.integers(0, 3_600_000),
    "tick": WHOLE,
    "trace": TRACES,
    "transfer_id": IDS,
    "verdict": st.sampled_from(["granted", "returning", "held", "over", "elsewhere", "again"]),
    "word": st.sampled_from(["committed", "void", "open"]),
    "transport": st.sampled_from(["rest", "link"]),
    "why": st.sampled_from(["elsewhere", "undecided", "refused"]),
}


NUMBERS: Final = st.tuples(WHOLE, WHOLE)
STAMPS: Final = st.tuples(WHOLE, WHOLE, WHOLE)
PAIRS: Final = st.builds(
    entity_messages.PairMessages,
    sender=NAMES,
    to=NAMES,
    echo=STAMPS,
    closed=NUMBERS,
    items=st.lists(
        st.builds(entity_messages.SentMessage, number=NUMBERS, after=NUMBERS, data=st.binary(max_size=20)), max_size=3
    ),
)
ANSWERS: Final = st.builds(
    entity_messages.MessageAnswer,
    sender=NAMES,
    to=NAMES,
    verdict=st.sampled_from(["taken", "full", "asked", "elsewhere", "not_taken"]),
    accepted=NUMBERS,
    durable=NUMBERS,
    at=STAMPS,
    moved_to=NAMES | st.just(""),
)


def _kinds(union: Any) -> tuple[type[BaseModel], ...]:
    return get_args(get_args(union)[0])


TRANSFER_KINDS: Final = _kinds(messages.Message)
PLAYER_KINDS: Final = _kinds(messages.LinkMessage)


def _rows(model: type[BaseModel], /, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(st.builds(model, **fields), min_size=1, max_size=3)


ROWS: Final = {"entity": NAMES, "epoch": WHOLE, "sub": WHOLE}
FOUND: Final = {**ROWS, "tick": WHOLE, "state_hash": HASHES}
COPIES: Final = st.builds(recovery_messages.CopyItem, **ROWS, tick=WHOLE, state=st.binary(max_size=20))

LEASES: Final = st.lists(st.builds(LeaseOf, server=NAMES, incarnation=WHOLE), max_size=3)

# Where one name stands for different things.
_FIELDS_OF: Final[dict[tuple[type[BaseModel], str], st.SearchStrategy[Any]]] = {
    (entity_messages.EntityMessages, "pairs"): st.lists(PAIRS, min_size=1, max_size=3),
    (entity_messages.EntityMessageAnswers, "answers"): st.lists(ANSWERS, min_size=1, max_size=3),
    (entity_messages.AuthorityWord, "standing"): st.sampled_from(["known", "unknown", "deleted"]),
    (entity_messages.AuthorityWord, "server"): NAMES | st.just(""),
    (ShowMembers, "key"): st.binary(min_size=GROUP_KEY_BYTES, max_size=GROUP_KEY_BYTES),
    (ShowMembers, "mode"): st.sampled_from(["state", "delta", "inputs"]),
    (LeaseInquiry, "leases"): LEASES,
    (LeaseWord, "over"): LEASES,
    (LeaseWord, "alive"): LEASES,
    (Renew, "position"): st.none() | st.sampled_from(["", "head.claims.signature"]),
    (RenewReply, "position"): st.none() | st.sampled_from(["", "head.claims.signature"]),
    (Renew, "heard"): st.sampled_from(["", "3.00ff00ff.17", "3.00ff00ff.17 4.ff00ff00.0"]),
    (RenewReply, "missing"): st.sampled_from(["", "3.00ff00ff.17"]),
    (Renew, "witnesses"): st.lists(st.sampled_from(["head.claims.signature", "head.claims.other"]), max_size=2),
    (LogWord, "witnesses"): st.lists(st.sampled_from(["head.claims.signature", "head.claims.other"]), max_size=2),
    (HeldInquiry, "position"): st.sampled_from(["", "head.claims.signature"]),
    (HeldInquiry, "words"): st.lists(st.sampled_from(["head.claims.signature", "head.claims.other"]), max_size=2),
    (HeldInquiry, "items"): _rows(HeldItem, **ROWS, by=NAMES),
    (HeldWord, "has_been_there"): st.booleans(),
    (HeldWord, "kept"): _rows(HeldItem, **ROWS, by=NAMES),
    (LogShown, "position"): st.sampled_from(["", "head.claims.signature"]),
    (Renew, "members"): st.sampled_from(["", "0123456789abcdef"]),
    (Renew, "peers"): st.sampled_from(["", "0123456789abcdef"]),
    (RenewReply, "members_changed"): st.booleans(),
    (RenewReply, "position_known"): st.booleans(),
    (RenewReply, "lost"): st.booleans(),
    (RenewReply, "peers"): st.none() | st.lists(NAMES, max_size=3),
    (StandingInquiry, "entities"): st.lists(NAMES, min_size=1, max_size=3),
    (StandingWord, "rows"): _rows(StandingRow, entity=NAMES, at=st.sampled_from(At), why=st.text(max_size=20)),
    (messages.ContactHandoff, "contact"): NAMES,
    (messages.ContactClaim, "ghost"): NAMES,
    (messages.ContactClaim, "ghost_epoch"): WHOLE,
    (messages.ContactClaim, "ghost_sub"): WHOLE,
    (messages.GhostInterest, "stream"): WHOLE,
    (messages.GhostInterest, "edge"): st.floats(1.0, 1e9),
    (messages.GhostInterest, "cells"): st.lists(st.lists(st.integers(-9, 9), min_size=1, max_size=3), max_size=3),
    (messages.Ghosts, "stream"): WHOLE,
    (messages.Ghosts, "at_ms"): WHOLE,
    (messages.Ghosts, "life"): WHOLE,
    (messages.Ghosts, "news"): _rows(
        GhostNews,
        **ROWS,
        number=WHOLE,
        kind=st.text(max_size=5),
        rank=st.integers(0, 2),
        priority=st.integers(-5, 5),
    ),
    (messages.Ghosts, "numbers"): st.lists(WHOLE, max_size=3),
    (messages.Ghosts, "ticks"): st.lists(WHOLE, max_size=3),
    (messages.Ghosts, "states"): st.lists(st.binary(max_size=20), max_size=3),
    (messages.Ghosts, "gone"): st.lists(WHOLE, max_size=3),
    (messages.Copies, "items"): st.lists(COPIES, min_size=1, max_size=3),
    (messages.CopiesKept, "items"): _rows(recovery_messages.KeptItem, **ROWS, tick=WHOLE),
    (messages.Collect, "items"): _rows(recovery_messages.RaisedItem, **ROWS),
    (messages.Collected, "items"): _rows(
        recovery_messages.FoundItem, **FOUND, source=st.sampled_from(CopySource), holds=st.booleans()
    ),
    (messages.Adopt, "items"): _rows(
        recovery_messages.AdoptItem, **FOUND, owner=NAMES, owner_rev=WHOLE, deaths=st.lists(WHOLE, max_size=3)
    ),
    (messages.Adopted, "items"): _rows(recovery_messages.AdoptedItem, **ROWS),
}


def of_kind(kind: type[BaseModel]) -> st.SearchStrategy[Any]:
    """Messages of one kind, with every field drawn."""
    names = [name for name in kind.model_fields if name != "type"]
    drawn = {name: _FIELDS_OF[kind, name] if (kind, name) in _FIELDS_OF else _FIELDS[name] for name in names}
    return st.builds(kind, **drawn)


TRANSFER_MESSAGES: Final = st.one_of([of_kind(kind) for kind in TRANSFER_KINDS])
PLAYER_MESSAGES: Final = st.one_of([of_kind(kind) for kind in PLAYER_KINDS])
