"""Messages as columns come out as they went in, or not at all; and whoever does not know columns gets none."""

import copy
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.authority.errors import MessageError
from batonpass.authority.wire import sealing
from batonpass.authority.wire.batch import MAX_BATCH, Letter
from batonpass.authority.wire.columnar import MAX_SHARED, Row, columns_of, rows_untrusted
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.sealing import OpenedMessage, Sealer
from batonpass.authority.wire.transfer import (
    Activated,
    Grant,
    HandoffRequest,
    Manifest,
    Order,
    StateTransfer,
    encode_message,
)
from batonpass.crypto import jose
from batonpass.crypto.keys import Identity
from tests.authority.message_strategies import TRACES, TRANSFER_MESSAGES

FENCED: dict[str, Any] = {"entity": "alpha.e", "epoch": 1, "sub": 0, "transfer_id": "transfer-1"}
TRACE = Trace("transfer-1").mark("alpha.s1", "frozen", 7)
HOP = TRACE.leave("alpha.s1", "handoff", 9)
NOW_S = 1000.0

ROWS = st.builds(
    lambda message, trace, on_path: (message, trace.leave("alpha.s1", message.type, 5) if on_path else trace, on_path),
    TRANSFER_MESSAGES.filter(lambda message: message.type != "batch" and getattr(message, "manifest", None) is None),
    TRACES,
    st.booleans(),
)


def through_cbor(data: dict[str, Any]) -> dict[str, Any]:
    read: dict[str, Any] = cbor2.loads(cbor2.dumps(data))
    return read


@given(st.lists(ROWS, min_size=1, max_size=12))
def test_what_goes_into_columns_comes_out(rows: list[Row]) -> None:
    read = rows_untrusted(through_cbor(columns_of(rows)))
    assert read == rows
    # True is equal to 1, and its bytes are not.
    assert [encode_message(message) for message, _, _ in read] == [encode_message(message) for message, _, _ in rows]


def test_what_all_have_in_common_is_there_once() -> None:
    rows: list[Row] = [
        (Order(transfer_id=f"transfer-{n}", entity="alpha.e", target="beta.s1"), HOP, True) for n in range(99)
    ]
    data = columns_of(rows)
    assert (data["kinds"], data["on_path"], len(data["routes"])) == (["order"], [True], 1)
    assert data["fields"]["order"]["target"] == ["beta.s1"]
    assert len(data["fields"]["order"]["transfer_id"]) == 99


def good() -> dict[str, Any]:
    request = HandoffRequest(**FENCED, source="alpha.s1", target="beta.s1", tick=1, state_hash="0" * 64)
    answer = Activated(**FENCED, trace=TRACE)
    return through_cbor(columns_of([(request, HOP, True), (answer, TRACE, False), (answer, TRACE, False)]))


LONG = "x" * (MAX_SHARED + 1)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("more",), 1),
        (("count",), 2),
        (("count",), True),
        (("count",), MAX_BATCH + 1),
        (("count",), 0),
        (("routes",), None),
        (("routes",), [[[], []]] * (2 * MAX_BATCH + 1)),
        (("routes", 0), [[]]),
        (("routes", 0), [[], {}]),
        (("routes", 0, 0, 0), ["handoff", "no name", ""]),
        (("routes", 0, 0, 0), ["handoff", "alpha.s1"]),
        (("routes", 0, 0, 0), ["handoff", ["alpha.s1"], ""]),
        (("routes", 0, 0, 0), 7),
        (("traces",), []),
        (("traces", 0), ["short"] * 2),
        (("traces", 0), [""]),
        (("traces", 1), [0, 1, 2]),
        (("traces", 1), [True]),
        (("traces", 1), [-1]),
        (("traces", 2), [b""]),
        (("traces", 2), ["8 chars."]),
        (("traces", 2, 1), b"\xff" * 8),
        (("on_path",), [True]),
        (("on_path",), [1, 0, 0]),
        (("kinds",), ["handoff"]),
        (("kinds",), ["handoff", "activated", "batch"]),
        (("kinds",), ["handoff", "activated", ["activated"]]),
        (("kinds",), ["handoff", "activated"]),
        (("fields",), []),
        (("fields", "grant"), {}),
        (("fields", "activated"), []),
        (("fields", "activated", "type"), ["activated"]),
        (("fields", "activated", "more"), [1]),
        (("fields", "activated", "sub"), [-1]),
        (("fields", "activated", "sub"), "00"),
        (("fields", "activated", "sub"), [0, 0, 0]),
        (("fields", "activated", "trace"), [{}]),
        (("fields", "activated", "trace", 0), ["transfer-1", 9, b""]),
        (("fields", "activated", "trace", 0), ["transfer-1", 0]),
        (("fields", "activated", "trace", 0), TRACE.to_data()),
        (("fields", "handoff", 7), ["x"]),
    ],
)
def test_one_thing_that_is_wrong_spoils_all(path: tuple[Any, ...], value: object) -> None:
    data = good()
    assert len(rows_untrusted(data)) == 3
    place: Any = data
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(MessageError):
        rows_untrusted(data)


@pytest.mark.parametrize("path", [*((key,) for key in good()), ("fields", "activated"), ("fields", "activated", "sub")])
def test_what_is_missing_spoils_all(path: tuple[str, ...]) -> None:
    data = good()
    place: Any = data
    for step in path[:-1]:
        place = place[step]
    del place[path[-1]]
    with pytest.raises(MessageError):
        rows_untrusted(data)


@pytest.mark.parametrize("state", [LONG.encode(), [1], {"a": 1}, 1.5])
def test_only_what_is_short_stands_for_a_column(state: Any) -> None:
    """Else a short message could be made to fill the memory of its reader."""
    message = StateTransfer(**FENCED, kind="ball", tick=1, state=b"s", state_hash="0" * 64)
    data = through_cbor(columns_of([(message, TRACE, False)] * 2))
    assert data["fields"]["state"]["state"] == [b"s"]
    data["fields"]["state"]["state"] = [state]
    with pytest.raises(MessageError, match="short one"):
        rows_untrusted(data)
    both = columns_of([(message.model_copy(update={"state": LONG.encode()}), TRACE, False)] * 2)
    assert len(both["fields"]["state"]["state"]) == 2


def test_a_state_that_travels_beside_its_message_cannot_be_in_columns() -> None:
    manifest = Manifest(hash="0" * 64, length=1 << 20)
    message = StateTransfer(**FENCED, kind="ball", tick=1, state=b"", state_hash="0" * 64, manifest=manifest)
    with pytest.raises(MessageError, match="beside"):
        rows_untrusted(through_cbor(columns_of([(message, TRACE, False)])))


@given(st.recursive(st.integers() | st.text() | st.binary() | st.none(), lambda inner: st.lists(inner, max_size=3)))
def test_hostile_parts_are_refused(part: Any) -> None:
    for key in good():
        data = copy.copy(good()) | {key: part}
        if through_cbor(data) != good():
            with pytest.raises(MessageError):
                rows_untrusted(data)


# --- sealed -----------------------------------------------------------------------------------------------------------

LETTERS = [
    Letter(Grant(certificate="c" * 99), Trace(f"t-{n}").mark("alpha.h1", "committed", n), True) for n in range(64)
]


class Pair:
    """Two servers, who have not heard of each other."""

    def __init__(self) -> None:
        self.ada, self.bob = (Sealer.without_log(name, Identity.generate()) for name in ("alpha.s1", "alpha.h1"))

    def say(
        self, sender: Sealer, to: Sealer, *letters: Letter, over_link: bool = False
    ) -> tuple[Any, list[OpenedMessage]]:
        about: dict[str, Any] = {"to": to.name, "keys": to.identity.public, "now_ns": 10, "now_s": NOW_S}
        parcel = sender.seal_all(letters, **about, over_link=over_link)
        opened = to.open_all_untrusted(parcel, sender=sender.identity.public, now_ns=20, now_s=NOW_S)
        return parcel, opened


@pytest.mark.parametrize("over_link", [False, True])
def test_who_has_said_so_gets_columns_and_reads_what_others_read(*, over_link: bool) -> None:
    pair = Pair()
    before, old = pair.say(pair.ada, pair.bob, *LETTERS, over_link=over_link)
    pair.say(pair.bob, pair.ada, LETTERS[0])
    after, new = pair.say(pair.ada, pair.bob, *LETTERS, over_link=over_link)
    assert after.size_bytes < before.size_bytes / 2
    assert [one.message for one in new] == [one.message for one in old] == [letter.message for letter in LETTERS]
    for one, other in zip(new, old, strict=True):
        assert (one.sender, one.in_batch, one.trace.marks) == (other.sender, True, other.trace.marks)
        assert [(hop.src, hop.dst, hop.sent_ns) for hop in one.trace.hops] == [("alpha.s1", "alpha.h1", 10)]
        assert one.trace.hops[0].size_bytes == after.size_bytes // 64


def test_who_runs_an_older_version_again_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair()
    pair.say(pair.bob, pair.ada, LETTERS[0])
    small, _ = pair.say(pair.ada, pair.bob, *LETTERS)
    monkeypatch.setattr(pair.bob, "_agreed", lambda keys: jose.agree(sender=pair.bob.identity, receiver=keys))
    pair.say(pair.bob, pair.ada, LETTERS[0])
    large, opened = pair.say(pair.ada, pair.bob, *LETTERS)
    assert large.size_bytes > 2 * small.size_bytes
    assert len(opened) == len(LETTERS)


def test_so_many_readers_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "MAX_READERS", 2)
    ada = Sealer.without_log("alpha.s1", Identity.generate())
    for name in ("alpha.s2", "alpha.s3", "alpha.s4", "alpha.s4"):
        peer = Sealer.without_log(name, Identity.generate())
        about: dict[str, Any] = {"now_ns": 1, "now_s": NOW_S}
        parcel = peer.seal(LETTERS[0].message, TRACE, to="alpha.s1", keys=ada.identity.public, **about)
        ada.open_untrusted(parcel, sender=peer.identity.public, **about)
    assert list(ada._readers) == ["alpha.s3", "alpha.s4"]
