"""Clients ask at random and lose replies: none misses an event, has one twice, or has them in another order (E3)."""

from typing import Any, Final

import cbor2
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from batonpass.simserver.sync.events.limits import StreamLimits
from batonpass.simserver.sync.events.messages import PostedEvent, StreamEvent, StreamReply, StreamRequest
from batonpass.simserver.sync.events.refusals import RefusalCode, StreamRefusal
from batonpass.simserver.sync.events.stream import StreamMachine
from tests.budget import examples
from tests.simserver.sync.events.game import ONE

# Old ones do not number their events, and are told nothing of incarnations.
OLD: Final = ("old-1", "old-2")
NEW: Final = ("new-1", "new-2", "new-3")
clients = st.sampled_from(OLD + NEW)


class Player:
    """What a client has, and what it still has to send."""

    def __init__(self) -> None:
        self.known = 0
        self.events: list[StreamEvent] = []
        self.made = 0
        self.pending: list[PostedEvent] = []

    def hear(self, reply: StreamReply) -> None:
        assert reply.tick >= self.known
        assert all(self.known < event.tick <= reply.tick for event in reply.events)
        self.events.extend(reply.events)
        self.known = reply.tick
        self.pending = [event for event in self.pending if event.number and event.number > reply.acked]


class EventStreams(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.limits = StreamLimits(max_events_per_s=6, max_clients=4)
        self.stream = StreamMachine(ONE, self.limits)
        self.now_ms = 0
        self.players = {name: Player() for name in OLD + NEW}
        self.public_ids: dict[str, str] = {}
        self.posted_without_number = 0

    @rule(ticks=st.integers(0, 5), ms=st.sampled_from([0, 30, 1_000, 10_001]))
    def wait(self, ticks: int, ms: int) -> None:
        self.stream.advance(ticks)
        self.now_ms += 50 * ticks + ms

    @rule()
    def expire(self) -> None:
        self.stream.expire(self.now_ms)

    @rule(name=clients, events=st.integers(0, 3), is_lost=st.booleans(), leave=st.sampled_from([False, False, True]))
    def ask(self, name: str, events: int, is_lost: bool, leave: bool) -> None:
        player, is_new = self.players[name], name in NEW
        for _ in range(events):
            player.made += 1
            player.pending.append(PostedEvent("move", f"{name} {player.made}", player.made if is_new else None))
        # No client of before there were incarnations can leave but by its silence, if the stream does not know it.
        leaves = leave and (is_new or name in self.public_ids)
        request = StreamRequest(
            name, player.known, tuple(player.pending[:6]), incarnation=ONE if is_new else None, leave=leaves
        )
        self.stream.expire(self.now_ms)
        before = self.stream.as_data()
        try:
            reply = self.stream.apply(request, self.now_ms)
        except StreamRefusal as refusal:
            self.refused(refusal, before)
            player.pending = player.pending if is_new else []
            return
        if not is_new:
            self.posted_without_number += len(player.pending)
            player.pending = []
        if reply.public_id:
            assert self.public_ids.setdefault(name, reply.public_id) == reply.public_id, "a public id is stable"
        assert not reply.reset
        if not is_lost:
            player.hear(reply)

    def refused(self, refusal: StreamRefusal, before: dict[str, Any]) -> None:
        assert refusal.code in {RefusalCode.TOO_MANY_EVENTS, RefusalCode.TOO_MANY_CLIENTS}
        assert self.stream.as_data() == before, "a refused request changes nothing"

    @rule(name=clients)
    def push(self, name: str) -> None:
        if name in self.public_ids:
            self.players[name].hear(self.stream.reply_for(name, self.players[name].known))

    @rule()
    def hand_over(self) -> None:
        data = self.stream.as_data()
        self.stream = StreamMachine.from_data(cbor2.loads(cbor2.dumps(data)), self.limits)
        assert self.stream.as_data() == data

    @invariant()
    def every_client_has_the_log_up_to_its_tick(self) -> None:
        log = [tuple(row) for row in self.stream.as_data()["log"]]
        for player in self.players.values():
            assert list(map(tuple, player.events)) == [row for row in log if row[0] <= player.known]

    @invariant()
    def no_event_is_in_the_log_twice_and_none_that_is_acknowledged_is_missing(self) -> None:
        bodies: list[Any] = [row[3] for row in self.stream.as_data()["log"] if row[1] == "move"]
        assert len(bodies) == len(set(bodies))
        assert sum(body.startswith("old") for body in bodies) == self.posted_without_number
        for name in NEW:
            taken = [body for body in bodies if body.startswith(name)]
            assert taken == [f"{name} {number}" for number in range(1, len(taken) + 1)]
            assert len(taken) >= self.players[name].made - len(self.players[name].pending)


TestEventStreams = EventStreams.TestCase
TestEventStreams.settings = settings(max_examples=examples(25), stateful_step_count=30, deadline=None)
