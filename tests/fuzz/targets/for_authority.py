"""Messages about authority, their traces, parcels and certificates."""

import contextlib
import hashlib
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

import cbor2
from pydantic import BaseModel

from batonpass.authority.errors import MessageError
from batonpass.authority.limits import INLINE_STATE_BYTES
from batonpass.authority.machines.precopy import ChunkTable, CopyAhead, parse_recipe_untrusted
from batonpass.authority.trust.certificates import CommitCertificate, DelegationGrant, PassCertificate
from batonpass.authority.trust.signed_positions import LogPosition
from batonpass.authority.wire.batch import MAX_BATCH, Batch, BatchItem, Letter
from batonpass.authority.wire.cbor import loads_plain_untrusted, loads_state_untrusted
from batonpass.authority.wire.columnar import Row, columns_of, rows_untrusted
from batonpass.authority.wire.hops import BadTrace, Trace
from batonpass.authority.wire.queries import place_in_untrusted, place_said_untrusted
from batonpass.authority.wire.sealing import Sealer
from batonpass.authority.wire.transfer import (
    Activated,
    AdmitRequest,
    Input,
    InputAck,
    Manifest,
    Message,
    NotHere,
    NotOwner,
    Parcel,
    decode_link_untrusted,
    decode_message_untrusted,
    encode_link,
    encode_message,
)
from batonpass.crypto import jose, jws
from tests.fuzz.plain import from_cbor, from_json, to_cbor, to_json
from tests.fuzz.target import Target
from tests.fuzz.world import IDENTITIES, NOW_S

STATE: dict[Any, Any] = {
    1: 2**70,
    "a": {1, 2},
    (0, 1): [Decimal("1.5"), Fraction(1, 3), UUID(int=7), datetime(2026, 11, 26, tzinfo=UTC)],
    b"b": -(2**70),
}
TRACE = Trace("transfer-1").leave("alpha.s1", "handoff", 10).arrive("alpha.h1", 20, 500).mark("alpha.h1", "seen", 4)
MESSAGE = AdmitRequest(transfer_id="transfer-1", entity="alpha.e", target="beta.s1")
SEALERS = {name: Sealer.without_log(name, identity) for name, identity in IDENTITIES.items()}


def parcel() -> Parcel:
    """A good one, from alpha.h1 to beta.h1."""
    return SEALERS["alpha.h1"].seal(
        MESSAGE, TRACE, to="beta.h1", keys=IDENTITIES["beta.h1"].public, now_ns=30, now_s=NOW_S, on_path=True
    )


KNOWING = Sealer.without_log("beta.h1", IDENTITIES["beta.h1"])
KNOWING.open_untrusted(parcel(), sender=IDENTITIES["alpha.h1"].public, now_ns=90, now_s=NOW_S)


def _key_ahead(data: bytes) -> None:
    """Whatever header, of a message that is still to come, by somebody who has sealed something before."""
    KNOWING.told_untrusted("alpha.h1", data, NOW_S)


def _key_ahead_seeds() -> list[bytes]:
    keys = [IDENTITIES[name].public for name in ("beta.h1", "alpha.h1")]
    return [Sealer.without_log("alpha.h1", IDENTITIES["alpha.h1"]).get_ready(one) for one in keys]


def _batch_parcel() -> Parcel:
    """Two messages in one parcel, one of them on its numbered path."""
    letters = [Letter(MESSAGE, TRACE, on_path=True), Letter(MESSAGE, Trace("transfer-1"))]
    return SEALERS["alpha.h1"].seal_all(
        letters, to="beta.h1", keys=IDENTITIES["beta.h1"].public, now_ns=30, now_s=NOW_S
    )


def _open_beside(contents: bytes) -> object:
    """Whatever contents beside a batch, signed by a peer with good keys."""
    # Shorter ones are sealed, and read in the same way ("parcel-contents").
    contents = contents.ljust(INLINE_STATE_BYTES + 1, b"\0")
    beside = Batch(manifest=Manifest(hash=hashlib.sha256(contents).hexdigest(), length=len(contents)))
    keys = IDENTITIES["beta.h1"].public
    parcel = SEALERS["alpha.h1"].seal(beside, Trace("batch"), to="beta.h1", keys=keys, now_ns=30, now_s=NOW_S)
    return _open(replace(parcel, body=contents))


def _beside_seeds() -> list[bytes]:
    item = BatchItem(trace=Trace("transfer-1").to_data(), on_path=False, body=encode_message(MESSAGE))
    return [encode_message(Batch(messages=[item] * MAX_BATCH)), encode_message(MESSAGE)]


def _open(received: Parcel) -> object:
    return SEALERS["beta.h1"].open_all_untrusted(received, sender=IDENTITIES["alpha.h1"].public, now_ns=90, now_s=NOW_S)


def _open_parcel(data: bytes) -> object:
    return _open(Parcel.from_data_untrusted(from_cbor(data)))


def sealed_contents(contents: bytes) -> Parcel:
    """Whatever contents, sealed and signed by a peer with good keys."""
    good = parcel()
    claims = jose.Claims("alpha.h1", "beta.h1", "transfer-1", 2, NOW_S + 60, good.trace.digest(2))
    sealed = jose.seal(contents, claims, sender=IDENTITIES["alpha.h1"], receiver=IDENTITIES["beta.h1"].public)
    return replace(good, sealed=sealed, kind=_kind_of(contents) or good.kind)


def _kind_of(contents: bytes) -> str:
    """The type that these contents say they have, as whoever sends them would repeat it on the parcel."""
    with contextlib.suppress(Exception):
        found: Any = cbor2.loads(contents)
        return str(found["type"])
    return ""


def message_seeds() -> list[bytes]:
    """Bodies of transfer messages, one of each type that can be made of simple fields."""
    return [encode_message(MESSAGE), encode_message(_batch()), *_all_messages()]


def _batch() -> Batch:
    """Three messages in one: a hop, one beside the hops, and a batch, which must not be there."""
    hop, beside = TRACE.leave("alpha.h1", "admit", 30), Trace("transfer-2")
    inner = Batch(messages=[BatchItem(trace=beside.to_data(), on_path=False, body=encode_message(MESSAGE))])
    bodies: list[tuple[Trace, bool, Message]] = [(hop, True, MESSAGE), (beside, False, MESSAGE), (beside, False, inner)]
    return Batch(
        messages=[BatchItem(trace=t.to_data(), on_path=on_path, body=encode_message(m)) for t, on_path, m in bodies]
    )


_FIELDS: dict[str, Any] = {
    "accepted": True, "applied": 3, "authority": "alpha.s1", "certificate": "a.b.c", "chain": ["a.b.c"],
    "counters": {"x": 1}, "data": b"d", "direct": False, "entity": "alpha.e", "epoch": 3, "forwards": 1,
    "grant": "a.b.c",
    "inputs": [{"source": "alpha.ada", "seq": 1, "data": b"x"}], "kind": "ball", "moved_to": "", "off_path": {"y": 2},
    "leases": [{"server": "alpha.s1", "incarnation": 1}], "over": [], "who_is_alive": True,
    "alive": [{"server": "alpha.s1", "incarnation": 2}], "number": 7,
    "outcome": "committed", "params": {"z": 1}, "reason": "why", "code": "", "seq": 1,
    "source": "alpha.s1", "state": b"state",
    "state_hash": "0" * 64, "sub": 0, "target": "alpha.s2", "tick": 9, "trace": TRACE.to_data(),
    "transfer_id": "transfer-1", "transport": "link",
}  # fmt: skip


def _all_messages() -> list[bytes]:
    """One of every type that there is, made of its fields; a field that is new is left out, which spoils the seed."""
    seeds = []
    for kind in _kinds():
        fields = {name: _FIELDS[name] for name in kind.model_fields if name in _FIELDS}
        seeds.append(to_cbor({**fields, "type": kind.model_fields["type"].default}))
    return seeds


def _kinds() -> list[type[BaseModel]]:
    base: Any = type(MESSAGE).__mro__[1]
    return [kind for kind in base.__subclasses__() if "type" in kind.model_fields]


def _link_seeds() -> list[bytes]:
    player: list[Input | InputAck | NotHere | NotOwner] = [
        Input(entity="alpha.e", owner_rev=1, seq=1, data=b"x"),
        InputAck(entity="alpha.e", applied=1, durable=1, tick=2, epoch=3, sub=0),
        NotHere(entity="alpha.e"),
        NotOwner(entity="alpha.e", reason="", owner="alpha.ada", owner_rev=2, applied=1, epoch=3, sub=0),
    ]
    return [encode_link(parcel()), *(encode_link(message) for message in player)]


CERTIFICATE: dict[str, Any] = {
    "kind": "commit", "entity": "alpha.e", "epoch": 3, "sub": 0, "transfer_id": "transfer-1", "source": "alpha.s1",
    "target": "alpha.s2", "tick": 5, "state_hash": "0" * 64, "holder": "alpha.s1", "group": ["alpha.s1", "alpha.s2"],
    "parent": "0" * 64,
}  # fmt: skip


LOG_POSITION = LogPosition(instance="alpha", office=3, mark="0f" * 16, revision=90)


def _certificates(data: bytes) -> None:
    claims = from_json(data)
    for kind in (CommitCertificate, DelegationGrant, PassCertificate):
        try:
            read = kind.from_claims_untrusted(claims)
        except MessageError:
            continue
        assert kind.from_claims_untrusted(read.to_claims()) == read


def _log_position(data: bytes) -> None:
    read = LogPosition.from_claims_untrusted(from_json(data))
    assert LogPosition.from_claims_untrusted(read.to_claims()) == read


def _log_place(data: bytes) -> None:
    """As claims, and as the payload of a statement that a malicious homeserver signed as it is."""
    claims = from_json(data)
    with contextlib.suppress(MessageError):
        place_in_untrusted(claims)
    # Not by `jose.sign`, which refuses what is not JSON, as NaN is not: who means ill signs that too.
    identity = IDENTITIES["alpha.h1"]
    header = {"alg": "ES256", "typ": "batonpass-statement", "kid": identity.public.signing_kid, "iss": "alpha.h1"}
    token = jws.sign(header, data, identity.signing)
    assert place_said_untrusted(token) == place_in_untrusted(claims)


def _log_place_seeds() -> list[bytes]:
    commit = CERTIFICATE | {"log": "3.0f0f0f0f.90"}
    return [to_json(LOG_POSITION.to_claims()), to_json(commit), to_json(commit | {"log": "3.0f"})]


def _trace(data: bytes) -> None:
    trace = Trace.from_data_untrusted(from_cbor(data))
    assert Trace.from_data_untrusted(trace.to_data()) == trace
    trace.digest()


def _certificate_seeds() -> list[bytes]:
    return [
        to_json({**CERTIFICATE, "kind": "commit"}),
        to_json({**CERTIFICATE, "kind": "delegation"}),
        to_json({**CERTIFICATE, "kind": "pass"}),
    ]


def _columns(data: bytes) -> None:
    value = from_cbor(data)
    if isinstance(value, dict):
        rows = rows_untrusted(value)
        assert rows_untrusted(from_cbor(to_cbor(columns_of(rows)))) == rows


def _columns_seeds() -> list[bytes]:
    hop, beside = TRACE.leave("alpha.h1", "admit", 30), Trace("transfer-2")
    said = Activated(entity="alpha.e", epoch=1, sub=0, transfer_id="transfer-1", trace=TRACE)
    rows: list[Row] = [(MESSAGE, hop, True), (MESSAGE, beside, False), (said, beside, False)]
    return [to_cbor(columns_of(rows)), to_cbor(columns_of(rows[:1] * 3))]


def _read_recipe(data: bytes) -> None:
    """A recipe, and what came beside it."""
    ChunkTable().whole("transfer-1", "alpha.s1", parse_recipe_untrusted(data), data)


TARGETS = [
    # Whoever reads takes any exception for bytes that are none. They must not take long, nor much memory.
    # They are not changed as CBOR: whoever changes them reads them, and that may take long.
    Target(
        "cbor-plain",
        loads_plain_untrusted,
        ["batonpass.authority.wire.cbor:loads_plain_untrusted"],
        lambda: [encode_message(MESSAGE), cbor2.dumps([2**70, -(2**70), {b"a": 0.5}])],
        (Exception,),
    ),
    Target(
        "cbor-state",
        loads_state_untrusted,
        ["batonpass.authority.wire.cbor:loads_state_untrusted"],
        lambda: [cbor2.dumps(value) for value in (STATE, list(STATE), {(1, 2): STATE})],
        (Exception,),
    ),
    Target(
        "parcel",
        _open_parcel,
        [
            "batonpass.authority.wire.envelope:Parcel.from_data_untrusted",
            "batonpass.authority.wire.sealing:Sealer.open_all_untrusted",
            "batonpass.authority.wire.sealing:Sealer.open_untrusted",
            "batonpass.authority.wire.sealing:_row_untrusted",
            "batonpass.authority.wire.sealing:_attach_untrusted",
        ],
        lambda: [to_cbor(parcel().to_data()), to_cbor(_batch_parcel().to_data())],
        (MessageError,),
        plain="cbor",
    ),
    Target(
        "parcel-contents",
        lambda data: _open(sealed_contents(data)),
        [],
        message_seeds,
        (MessageError,),
        plain="cbor",
        slow=True,
    ),
    Target(
        "batch-beside",
        _open_beside,
        [],
        _beside_seeds,
        (MessageError,),
        plain="cbor",
        slow=True,
    ),
    Target(
        "columns",
        _columns,
        [
            "batonpass.authority.wire.columnar:rows_untrusted",
            "batonpass.authority.wire.columnar:_routes_untrusted",
            "batonpass.authority.wire.columnar:_traces_untrusted",
            "batonpass.authority.wire.columnar:_trace_untrusted",
            "batonpass.authority.wire.columnar:_carried_untrusted",
            "batonpass.authority.wire.columnar:_messages_untrusted",
            "batonpass.authority.wire.columnar:_of_kind_untrusted",
            "batonpass.authority.wire.hops:Trace.unpacked_untrusted",
        ],
        _columns_seeds,
        (MessageError,),
        plain="cbor",
    ),
    Target(
        "recipe",
        _read_recipe,
        [
            "batonpass.authority.machines.precopy:parse_recipe_untrusted",
            "batonpass.authority.machines.precopy:split_untrusted",
        ],
        lambda: [CopyAhead().recipe(bytes(300_000))[0], b""],
        (MessageError,),
    ),
    Target(
        "authority-message",
        decode_message_untrusted,
        ["batonpass.authority.wire.transfer:decode_message_untrusted"],
        message_seeds,
        (MessageError,),
        plain="cbor",
    ),
    Target(
        "key-ahead",
        _key_ahead,
        ["batonpass.authority.wire.sealing:Sealer.told_untrusted", "batonpass.crypto.jose:agree_ahead_untrusted"],
        _key_ahead_seeds,
        (MessageError,),
    ),
    Target(
        "authority-link",
        decode_link_untrusted,
        ["batonpass.authority.wire.transfer:decode_link_untrusted"],
        _link_seeds,
        (MessageError,),
        plain="cbor",
    ),
    Target(
        "trace",
        _trace,
        [
            "batonpass.authority.wire.hops:Trace.from_data_untrusted",
            "batonpass.authority.wire.hops:Trace._read_untrusted",
            "batonpass.authority.wire.hops:_hops_untrusted",
            "batonpass.authority.wire.hops:_marks_untrusted",
            "batonpass.authority.wire.hops:_whole_untrusted",
        ],
        lambda: [to_cbor(TRACE.to_data())],
        (BadTrace,),
        plain="cbor",
    ),
    Target(
        "certificates",
        _certificates,
        ["batonpass.authority.trust.certificates:_Certificate.from_claims_untrusted"],
        _certificate_seeds,
        (MessageError,),
        plain="json",
    ),
    Target(
        "log-place",
        _log_place,
        [
            "batonpass.authority.wire.queries:place_in_untrusted",
            "batonpass.authority.wire.queries:place_said_untrusted",
        ],
        _log_place_seeds,
        (MessageError,),
        plain="json",
    ),
    Target(
        "log-position",
        _log_position,
        ["batonpass.authority.trust.signed_positions:LogPosition.from_claims_untrusted"],
        lambda: [to_json(LOG_POSITION.to_claims()), to_json({**LOG_POSITION.to_claims(), "office": 0})],
        (MessageError,),
        plain="json",
    ),
]
