"""A history that servers host, followed by polls, WebSocket and server-sent events.

It is handed over, and taken over from a server that hangs. What was sent to an authority that is superseded is in no
peer's history. Sent again, it counts at its own time.
"""

import json
import secrets
from functools import partial
from typing import Any

import httpx
import trio

from batonpass.simserver.sync.hosting.world import EVENT_STREAMS
from batonpass.simserver.sync.lockstep.follower import StreamFollower
from batonpass.simserver.sync.play.session import follow_stream
from batonpass.simserver.sync.timeline.events import TimelineEvent
from batonpass.simserver.sync.timeline.game import TIMELINE_EVENT, TimelineGame
from batonpass.simserver.sync.timeline.peer_wire import write_messages
from batonpass.simserver.sync.timeline.persistence import dump
from batonpass.simserver.sync.timeline.sharing import InputPromise, SharedInput
from batonpass.simserver.sync.timeline.times import parts_of
from tests.scenarios.asked import LIMIT_S, come, limited
from tests.scenarios.cluster.test_failover import world
from tests.scenarios.lockstep.test_hosted_streams import door_of
from tests.simserver.sync.timeline.village import TYPES, Come, Leave, Pay, make_village

pytestmark = limited

HISTORY = "alpha.stream-history"
END = 100
Given = tuple[int, TimelineEvent]


def is_villager(_: str, event: TimelineEvent) -> bool:
    return isinstance(event, Come | Leave | Pay)


class CountedFollower(StreamFollower):
    """Counts what came by WebSocket."""

    pushed = 0

    def take_push(self, *reply: Any) -> None:
        self.pushed += 1
        super().take_push(*reply)


class Villager:
    """A peer who follows the history by itself, and promises what the test says."""

    def __init__(self, name: str) -> None:
        self.game = TimelineGame(make_village, TYPES, is_villager, chunk=20)
        self.follower = CountedFollower(self.game, "history", name, fault_window_ms=round(LIMIT_S * 1000))
        self.promises = 0
        self._promised = -1

    async def follow(self, doors: list[str], *, push: bool) -> None:
        await follow_stream(self.follower, doors, push=push, on_frame=self._frame)

    async def listen(self, http: httpx.AsyncClient, door: str) -> None:
        """Only hear, by server-sent events."""
        ask = http.stream("GET", f"{door}/history/eve/0", headers={"accept": "text/event-stream"})
        async with ask as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data:"):
                    self.follower.take_push(json.loads(line.removeprefix("data:")))
                    self.follower.run(1_000)
                    self.game.steward.run_until(END)

    def _frame(self, _: int) -> None:
        self.follower.run(1_000)
        game = self.game
        game.me = self.follower.public_id
        if game.me and (self._promised < self.promises or game.me not in game.peer.members):
            game.promise(max(self.promises, game.peer.settled))
            self._promised = self.promises
        game.steward.run_until(END)

    @property
    def inputs(self) -> list[Given]:
        """The inputs that the log had, and those that were given here, in the order of history."""
        return [
            (parts_of(record.time).base, record.event)
            for record in self.game.steward.history()
            if record.made_at is None
        ]

    @property
    def state(self) -> bytes:
        snapshot = self.game.steward.snapshot_before(END)
        assert snapshot is not None
        return dump(snapshot, TYPES)


async def all_have(expected: list[Given], *peers: Villager) -> None:
    async def inputs() -> list[list[Given]]:
        return [peer.inputs for peer in peers]

    await come(inputs, lambda seen: all(one == expected for one in seen), what=f"{expected} in each history")


async def take_part(*peers: Villager) -> None:
    async def members() -> list[int]:
        return [len(peer.game.peer.members) for peer in peers]

    await come(members, lambda seen: min(seen) >= len(peers), what="each peer, in each history")


async def send(http: httpx.AsyncClient, door: str, answers: list[httpx.Response]) -> None:
    """Give an input for a time that is long past, by hand; it is numbered, so it counts once however often it is sent.

    It does not go on from there by itself to where the history is.
    """
    (body,) = write_messages([InputPromise(0), SharedInput(5, Pay(3))], TYPES)
    events = [{"Type": TIMELINE_EVENT, "Body": body, "Id": 1}]
    answers.append(await http.post(f"{door}/history/cleo/0", json={"Events": events}))


async def test_what_was_sent_to_an_authority_that_is_superseded_counts_once_it_is_sent_to_the_new_one() -> None:
    options: dict[str, Any] = {"simservers": 2, "world": EVENT_STREAMS}
    async with world(**options) as running, httpx.AsyncClient(trust_env=False, timeout=LIMIT_S) as http:
        doors = [await door_of(running, server) for server in ("alpha.s1", "alpha.s2")]
        params = {"incarnation": secrets.token_hex(16)}
        await running.create(
            {"id": HISTORY, "kind": "stream", "spawner": "alpha.ada", "server": "alpha.s1", "params": params}
        )
        anna, bert = Villager("anna"), Villager("bert")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(anna.follow, doors, push=False))
            nursery.start_soon(partial(bert.follow, doors[::-1], push=True))
            await take_part(anna, bert)
            anna.game.act(10, Come(1))
            bert.game.act(12, Pay(2))
            given: list[Given] = [(10, Come(1)), (12, Pay(2))]
            await all_have(given, anna, bert)

            await running.hand_over("alpha.s2", HISTORY)
            bert.game.act(8, Come(4))
            given.insert(0, (8, Come(4)))
            await all_have(given, anna, bert)

            before = await running.record(HISTORY)
            await running.cluster.pause("alpha.s2")
            late: list[httpx.Response] = []
            nursery.start_soon(send, http, doors[1], late)
            after = await running.record(HISTORY, lambda record: record["authority"] == "alpha.s1")
            assert after["epoch"] > before["epoch"]
            anna.game.act(14, Leave())
            given.append((14, Leave()))
            await all_have(given, anna, bert)
            running.cluster.resume("alpha.s2")

            async def answer() -> list[httpx.Response]:
                return late

            await come(answer, what="the answer of the server that was superseded")
            assert late[0].status_code != 200 or not late[0].json()["Acked"], late[0].text
            eve = Villager("eve")
            nursery.start_soon(eve.listen, http, doors[0])
            bert.game.act(16, Pay(1))
            given.append((16, Pay(1)))
            await all_have(given, anna, bert, eve)

            # Twice, as one who heard no answer does.
            for _ in range(2):
                await send(http, doors[0], late)
            given.insert(0, (5, Pay(3)))
            await all_have(given, anna, bert, eve)
            anna.promises = bert.promises = END

            async def settled() -> list[int]:
                return [peer.game.peer.settled for peer in (anna, bert, eve)]

            await come(settled, lambda seen: min(seen) >= END, what="the end, settled")
            assert anna.inputs == bert.inputs == eve.inputs == given
            assert anna.state == bert.state == eve.state
            assert (anna.follower.pushed, bert.follower.pushed > 20) == (0, True)
            for peer in (anna, bert, eve):
                assert peer.game.peer.divergence is None
                assert peer.follower.desync is None
                assert list(peer.game.refused) == []
            nursery.cancel_scope.cancel()
