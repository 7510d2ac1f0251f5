"""Whatever way a state came, it is held against the hash that goes with it before anything is made of it."""

import hashlib
from types import SimpleNamespace
from typing import Any, cast

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.authority.errors import MessageError
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.authority.wire.transfer import StateTransfer
from batonpass.simserver.entity.inputs import MAX_PENDING, MAX_PENDING_BYTES, MAX_SOURCES, EntityInbox
from batonpass.simserver.entity.snapshot import EntitySnapshot
from batonpass.simserver.transfer.target.arrivals import Arrivals
from batonpass.simserver.transfer.target.offers import MAX_READ, MAX_READ_BYTES, OfferedStates
from tests.authority.wire.test_cbor import laughs
from tests.simserver.world.test_portability import nested

SETS = nested(10, by=lambda inner: frozenset([inner]))
STATE = EntitySnapshot("ball", 3, {"x": 1.5}, EntityInbox().to_data()).encode()
HASH = hashlib.sha256(STATE).hexdigest()


def offered(state: bytes, state_hash: str) -> StateTransfer:
    return StateTransfer(
        transfer_id="transfer-1",
        entity="alpha.e",
        epoch=1,
        sub=0,
        kind="ball",
        tick=3,
        state=state,
        state_hash=state_hash,
    )


def checked(message: StateTransfer, came: StateTransfer, hashed: str = "") -> EntitySnapshot:
    opened = OpenedMessage(came, "alpha.s2", Trace("transfer-1"), state_hash=hashed)
    return Arrivals._checked(cast(Any, SimpleNamespace(_states=OfferedStates())), message, opened)


def test_a_state_with_its_hash_is_read() -> None:
    message = offered(STATE, HASH)
    assert checked(message, message).tick == 3
    assert checked(message, message, HASH).tick == 3
    assert checked(message, offered(b"", HASH), "b" * 64).tick == 3


def test_a_state_with_another_hash_is_refused() -> None:
    message = offered(STATE, "b" * 64)
    for hashed in ("", HASH):
        with pytest.raises(MessageError, match="does not fit its hash"):
            checked(message, message, hashed)


def test_what_was_put_together_is_hashed_even_if_a_part_had_the_hash_of_the_whole() -> None:
    whole = offered(STATE, "b" * 64)
    with pytest.raises(MessageError, match="does not fit its hash"):
        checked(whole, offered(b"part", "b" * 64), "b" * 64)


def state(tick: int) -> tuple[bytes, str]:
    encoded = EntitySnapshot("ball", tick, {}, EntityInbox().to_data()).encode()
    return encoded, hashlib.sha256(encoded).hexdigest()


def test_what_was_read_of_a_convoy_is_taken_once_each_and_read_anew_afterwards() -> None:
    states, convoy = OfferedStates(), [state(tick) for tick in range(MAX_READ)]
    read = [states.read_untrusted(*one, "alpha.e") for one in convoy]
    assert all(states.take(*one, "alpha.e") is known for one, known in zip(convoy, read, strict=True))
    again = states.take(*convoy[0], "alpha.e")
    assert again == read[0], "it is the same"
    assert again is not read[0], "and another one, since somebody has begun with the first"


def test_a_large_state_is_kept_alone_and_the_oldest_are_forgotten() -> None:
    states, convoy = OfferedStates(), [state(tick) for tick in range(MAX_READ + 1)]
    read = [states.read_untrusted(*one, "alpha.e") for one in convoy]
    assert states.take(*convoy[0], "alpha.e") is not read[0]
    assert states.take(*convoy[1], "alpha.e") is read[1]
    states.keep("large", read[0], MAX_READ_BYTES + 1)
    assert states.take(*convoy[2], "alpha.e") is not read[2]
    assert states.take(b"", "large", "alpha.e") is read[0]


@pytest.mark.parametrize("world", [{"a": nested(390)}, {"a": {1, 2}}, {"a": cbor2.CBORTag(1000, (1,))}])
def test_a_state_that_can_be_written_again_is_read(world: Any) -> None:
    encoded = EntitySnapshot("ball", 3, world, EntityInbox().to_data()).encode()
    assert OfferedStates().read_untrusted(encoded, "", "alpha.e").world == world


def test_a_state_that_cannot_be_written_again_is_no_state() -> None:
    """Who begins with one writes it again, and has answered before that."""
    encoded = EntitySnapshot("ball", 3, SETS, EntityInbox().to_data()).encode()
    assert EntitySnapshot.decode(encoded).world == SETS, "a reader takes it"
    with pytest.raises(MessageError, match="cannot be read: NotPortable: it has sets on more than 8 levels"):
        OfferedStates().read_untrusted(encoded, "", "alpha.e")


def of_fields(**fields: Any) -> bytes:
    """An encoded snapshot of which some fields are others."""
    return cbor2.dumps(cbor2.loads(STATE) | fields, canonical=True)


def inbox_of(cursors: Any = None, pending: Any = ()) -> Any:
    return {"cursors": {} if cursors is None else cursors, "pending": list(pending)}


ODD_INBOXES: list[Any] = [None, [], {}, {"cursors": {}}, {"pending": []}]
CURSOR = [1, 0, bytes(16)]
TEXT = st.characters(exclude_categories=["Cs"])


@pytest.mark.parametrize(
    "state",
    [
        *(of_fields(kind=kind) for kind in (["list"], {"a": 1}, 7, None, b"ball")),
        *(of_fields(tick=tick) for tick in ("x", -7, None, 2**63, 2**70, 1.0, True)),
        *(of_fields(inbox=odd) for odd in ODD_INBOXES),
        *(
            of_fields(inbox=inbox_of({"alpha.ada": cursor}))
            for cursor in (None, [], [1, 0], ["1", 0, bytes(16)], [1, -1, bytes(16)], [1, 2**63, bytes(16)],
                           [1, 0, b""], [1, 0, "text"], [1, 0, bytes(16), 0], {"a": 1})
        ),
        of_fields(inbox=inbox_of({7: CURSOR})),
        of_fields(inbox=inbox_of([CURSOR])),
        of_fields(inbox=inbox_of({str(number): CURSOR for number in range(MAX_SOURCES + 1)})),
        *(
            of_fields(inbox=inbox_of({"alpha.ada": CURSOR}, [item]))
            for item in (None, [], ["alpha.ada", 1], ["alpha.bob", 1, b""], ["alpha.ada", "1", b""],
                         ["alpha.ada", 1, "text"], ["alpha.ada", 1, b"", 0], [["alpha.ada"], 1, b""])
        ),
        of_fields(inbox=inbox_of({"alpha.ada": CURSOR}, [["alpha.ada", 1, b""]] * (MAX_PENDING + 1))),
        of_fields(inbox=inbox_of({"alpha.ada": CURSOR}, [["alpha.ada", 1, bytes(MAX_PENDING_BYTES + 1)]])),
        STATE.replace(cbor2.dumps({"x": 1.5}, canonical=True), laughs(28)),
        STATE.replace(cbor2.dumps({"x": 1.5}, canonical=True), bytes.fromhex("d81c82d81d00d81d00")),
    ],
)  # fmt: skip
def test_what_no_server_can_have_written_is_no_state(state: bytes) -> None:
    """Whoever began with one could not hand it over any more, or would go through it for ever."""
    with pytest.raises(MessageError, match="cannot be read"):
        OfferedStates().read_untrusted(state, "", "alpha.e")


@given(st.dictionaries(st.text(TEXT, max_size=9), st.lists(st.binary(max_size=9), max_size=5), max_size=5))
def test_every_inbox_that_a_server_writes_is_read(inputs: dict[str, list[bytes]]) -> None:
    inbox = EntityInbox()
    for source, given_data in inputs.items():
        for seq, data in enumerate(given_data, start=1):
            inbox.offer(source, seq, data)
        if len(given_data) % 2:
            inbox.take()
    encoded = EntitySnapshot("ball", 3, {}, inbox.to_data()).encode()
    assert (
        EntityInbox.from_data(OfferedStates().read_untrusted(encoded, "", "alpha.e").inbox).to_data() == inbox.to_data()
    )
