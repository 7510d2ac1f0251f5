"""A stream as an entity: exact over a hand-over, later than anything that was told after a failover."""

import hashlib
import random
from contextlib import suppress
from typing import Any

import cbor2
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from batonpass.authority.wire.recovery import MAX_COPY_BYTES
from batonpass.simserver.entity.inputs import MAX_PENDING_BYTES
from batonpass.simserver.entity.own_inputs import OWN_SOURCE
from batonpass.simserver.sync.events.limits import CHECKPOINT_TICKS
from batonpass.simserver.sync.events.messages import PostedEvent, StreamRequest
from batonpass.simserver.sync.events.refusals import RefusalCode, StreamRefusal
from batonpass.simserver.sync.events.snapshots import SnapshotOffer, signed_text
from batonpass.simserver.sync.events.stream import StreamMachine
from batonpass.simserver.sync.hosting.inputs import (
    DumpGiven,
    Heard,
    SnapshotGiven,
    StreamInput,
    disguised,
    encoded_input,
    read_input,
)
from batonpass.simserver.sync.hosting.world import HOSTED_LIMITS, LEAD_TICKS, EventStreams
from batonpass.simserver.world.pending_input import PendingInput
from batonpass.simserver.world.step import NOTHING_CARRIED, Step

ENTITY = "alpha.stream-game"
INCARNATION = "0123456789abcdef" * 2
ADA, BOB = disguised("ada"), disguised("bob")


class Server:
    """One server's world, and the state of the stream in it."""

    def __init__(self, state: Any = None) -> None:
        self.world = EventStreams()
        self.state = self.world.spawn("stream", {"incarnation": INCARNATION}) if state is None else state
        self.number = 0

    def tick(self, *inputs: StreamInput, source: str = OWN_SOURCE) -> Any:
        pending = []
        for item in inputs:
            self.number += 1
            pending.append(PendingInput(source, self.number, encoded_input(item)))
        self.state = self.world.advance(self.state, pending, 0.05, Step(NOTHING_CARRIED, 1, None, ENTITY))
        return self.state

    def handed_over(self) -> "Server":
        there = Server(cbor2.loads(cbor2.dumps(self.state)))
        for name, part in self.world.participants.items():
            data = part.dehydrate(ENTITY, self.state)
            there.world.participants[name].rehydrate(ENTITY, there.state, data)
        return there

    def failed_over(self) -> "Server":
        return Server(cbor2.loads(cbor2.dumps(self.state)))

    @property
    def events(self) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.state["log"]]


def asks(client: str, *events: str, known: int = 0) -> StreamRequest:
    return StreamRequest(client, known, tuple(PostedEvent("move", body) for body in events), incarnation=INCARNATION)


def test_each_tick_of_the_entity_is_one_of_the_stream_while_a_client_is_connected() -> None:
    server = Server()
    server.tick(asks(ADA))
    for _ in range(3):
        server.tick()
    assert server.state["tick"] == 3, "the first one connected the client"


def test_an_event_is_in_the_tick_that_takes_it() -> None:
    server = Server()
    server.tick(asks(ADA))
    server.tick(asks(ADA, "x"), asks(BOB, "y"))
    assert server.events[-3:] == [(1, "move", "1", "x"), (1, "_c", "_", "2"), (1, "move", "2", "y")]


def test_after_a_hand_over_the_next_tick_follows() -> None:
    here = Server()
    here.tick(asks(ADA))
    here.tick(asks(ADA, "x"))
    there = here.handed_over()
    there.tick(asks(ADA, "y"))
    assert there.events[-2:] == [(1, "move", "1", "x"), (2, "move", "1", "y")]
    assert there.state["tick"] == here.state["tick"] + 1


def test_after_a_failover_nothing_gets_a_tick_that_clients_may_have_been_told() -> None:
    here = Server()
    here.tick(asks(ADA))
    copy = here.failed_over()
    told = here.state["tick"] + LEAD_TICKS
    copy.tick(asks(ADA, "y"))
    assert copy.events[-1] == (told + 1, "move", "1", "y")


def test_a_stream_that_nobody_uses_is_not_changed_and_may_sleep() -> None:
    server = Server()
    server.tick(asks(ADA))
    server.tick(StreamRequest(ADA, 0, incarnation=INCARNATION, leave=True))
    assert server.world.may_sleep(server.state)
    before = server.state
    assert server.tick() is before


def test_clients_that_are_heard_of_stay_connected_and_others_go() -> None:
    server = Server()
    server.tick(asks(ADA), asks(BOB))
    for _ in range(12):
        server.tick(Heard((ADA,)))
        for _ in range(19):
            server.tick()
    assert [row[1:] for row in server.events if row[1] == "_d"] == [("_d", "_", "2")]


def test_what_is_refused_is_said_and_changes_nothing() -> None:
    server = Server()
    server.tick(asks(ADA))
    server.tick(asks(ADA, *"x" * 21))
    refusal = server.world.outcomes[ENTITY, 2].refusal
    assert refusal is not None
    assert refusal.code is RefusalCode.TOO_MANY_EVENTS
    assert server.events[-1][1] == "_c"


def test_inputs_of_players_and_of_other_releases_are_passed_over() -> None:
    server = Server()
    server.tick(asks(ADA), source="alpha.eve")
    assert not server.state["clients"]["connected"]
    assert read_input(cbor2.dumps(["later", 1])) is None
    assert read_input(b"\xff") is None


def test_a_tick_that_was_not_committed_is_done_again_from_the_state_of_before() -> None:
    server = Server()
    server.tick(asks(ADA))
    before = server.state
    server.tick(asks(ADA, "lost"))
    server.state = before
    server.tick(asks(ADA, "x"))
    assert server.events[-1] == (1, "move", "1", "x")


def test_no_private_id_is_in_what_travels() -> None:
    server = Server()
    server.tick(asks(disguised("the secret of ada"), "x"))
    assert b"the secret" not in cbor2.dumps(server.state)
    assert b"the secret" not in encoded_input(asks(disguised("the secret of ada"), "x"))


@pytest.mark.parametrize("params", [{}, {"incarnation": "short"}, {"incarnation": "G" * 32}, {"incarnation": 5}])
def test_a_stream_needs_a_random_name_of_its_life(params: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="32 random hexadecimal digits"):
        EventStreams().spawn("stream", params)


def test_limits_are_options_of_the_world() -> None:
    assert EventStreams(max_clients=3).limits.max_clients == 3
    with pytest.raises(ValueError, match="no limit is called 'max_cats'"):
        EventStreams(max_cats=3)
    with pytest.raises(ValueError, match="give a int"):
        EventStreams(max_clients="3")


def test_a_stream_that_clients_have_filled_fits_a_copy_and_what_one_of_them_gives_fits_the_inbox() -> None:
    """Else no tick of it would ever be told again, or some of them could give nothing."""
    limits = HOSTED_LIMITS
    stream, key = StreamMachine(INCARNATION, limits), Ed25519PrivateKey.generate()
    for number in range(limits.max_remembered + 1):
        stream.take(asks(disguised(f"gone {number}")), 0)
        stream.take(StreamRequest(disguised(f"gone {number}"), 0, leave=True), 0)
        stream.mark_sent()
    full = {"": "x" * limits.max_state_bytes}
    clients = [disguised(f"here {number}") for number in range(limits.max_clients)]
    for client in clients:
        stream.take(StreamRequest(client, 0, state=full, incarnation=INCARNATION), 0)
    event = PostedEvent("", "x" * (limits.max_log_bytes // limits.max_events))
    for at, client in enumerate(clients[: limits.max_events // 20]):
        with suppress(StreamRefusal):
            # As fast as all of them together may.
            stream.take(StreamRequest(client, 0, (event,) * 20, incarnation=INCARNATION), at * 10)
    assert len(stream) > limits.max_events - 20
    stream.skip(2 * limits.checkpoint_window_ticks - stream.tick)
    state = random.Random(1).randbytes(limits.max_snapshot_bytes)
    checkpoints = range(stream.tick - limits.checkpoint_window_ticks, stream.tick, CHECKPOINT_TICKS)[1:]
    agreed = checkpoints[0], hashlib.sha256(state)
    newest = range(stream.tick - limits.hash_window_ticks + 1, stream.tick + 1)
    for client in clients:
        lies = [(tick, hashlib.sha256(f"{tick} {client}".encode())) for tick in [*checkpoints[1:], *newest]]
        said = tuple((tick, digest.hexdigest()) for tick, digest in [agreed, *lies])
        stream.take(StreamRequest(client, 0, incarnation=INCARNATION, hashes=said), 0)
    signature = key.sign(signed_text(INCARNATION, agreed[0], agreed[1].hexdigest()))
    public = key.public_key().public_bytes_raw()
    offer = SnapshotOffer(INCARNATION, agreed[0], state, agreed[1].digest(), public, signature)
    for client in clients:
        stream.offer_snapshot(client, offer)
    for client in clients[:2]:
        stream.store_dump(client, checkpoints[1], "x" * limits.max_dump_bytes)
    assert len(stream.as_data()["votes"]["votes"]) == len({*checkpoints, *newest})
    size = len(cbor2.dumps(stream.as_data())) + MAX_PENDING_BYTES
    assert MAX_COPY_BYTES // 2 < size < MAX_COPY_BYTES
    assert len(encoded_input(SnapshotGiven(ADA, offer))) < MAX_PENDING_BYTES
    assert len(encoded_input(DumpGiven(ADA, 1, "x" * limits.max_dump_bytes))) < MAX_PENDING_BYTES
    assert limits.max_body_bytes * 8 < MAX_PENDING_BYTES


names = st.text(max_size=8)


@given(
    st.one_of(
        st.builds(
            StreamRequest,
            names,
            st.integers(0, 2**52),
            st.lists(st.builds(PostedEvent, names, names, st.none() | st.integers(1, 9)), max_size=3).map(tuple),
            state=st.none() | st.dictionaries(names, names, max_size=2),
            incarnation=st.none() | names,
            leave=st.booleans(),
            hashes=st.lists(st.tuples(st.integers(0, 9), names), max_size=2).map(tuple),
        ),
        st.builds(Heard, st.lists(names, max_size=3).map(tuple)),
        st.builds(DumpGiven, names, st.integers(0, 9), names),
        st.builds(
            SnapshotGiven,
            names,
            st.builds(SnapshotOffer, names, st.integers(0, 9), st.binary(), st.binary(), st.binary(), st.binary()),
        ),
    )
)
def test_inputs_are_read_as_they_were_written(item: StreamInput) -> None:
    assert read_input(encoded_input(item)) == item
