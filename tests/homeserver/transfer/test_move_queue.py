"""Moves of one entity are done in the order in which they were asked for, each when the one before is over."""

import pytest
import trio
from trio.testing import MockClock

from batonpass.authority.model.records import Phase, TransferRecord
from batonpass.homeserver.transfer.move_queue import COMMITTED_NS, MAX_MOVES, UNKNOWN_NS, MoveQueues
from tests.homeserver.served import Home
from tests.simserver.ports import TrioClock


def transfer_of(name: str, entity: str = "alpha.e", group: str = "") -> TransferRecord:
    return TransferRecord(
        id=name, entity=entity, source="alpha.s1", target="alpha.s2", phase=Phase.PERMITTED, group=group
    )


class Log:
    """Transfers as the log has them, and which were ordered."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.rows: dict[str, TransferRecord] = {}
        self.ordered: list[str] = []
        self.moves = MoveQueues(self.rows.get, self, TrioClock())
        nursery.start_soon(self.moves.serve)

    async def order(self, transfer: TransferRecord) -> None:
        self.ordered.append(transfer.id)

    async def ask(self, name: str, **fields: str) -> None:
        self.rows[name] = transfer_of(name, **fields)
        await self.moves.begin(self.rows[name])

    async def becomes(self, name: str, phase: Phase) -> None:
        self.rows[name] = self.rows[name].changed(phase=phase)
        await trio.sleep(0.1)


@pytest.fixture
def log(nursery: trio.Nursery, autojump_clock: MockClock) -> Log:
    return Log(nursery)


async def test_the_next_begins_when_the_one_before_is_over(log: Log) -> None:
    for name in ("one", "two", "three"):
        await log.ask(name)
    await log.ask("other", entity="alpha.f")
    assert log.ordered == ["one", "other"]
    await log.becomes("one", Phase.COMMITTED)
    assert log.ordered == ["one", "other"], "its new authority does not simulate it yet"
    await log.becomes("one", Phase.DONE)
    assert log.ordered == ["one", "other", "two"]
    await log.becomes("three", Phase.REFUSED)
    await log.becomes("two", Phase.REFUSED)
    assert log.ordered == ["one", "other", "two"], "what was taken back while it waited is not begun"
    assert log.moves.waiting("alpha.e") == 0


async def test_asking_again_changes_no_order(log: Log) -> None:
    await log.ask("one")
    await log.ask("two")
    await log.moves.begin(log.rows["two"])
    await log.moves.begin(log.rows["one"])
    assert log.ordered == ["one", "one"]
    assert log.moves.waiting("alpha.e") == 2


async def test_a_move_of_which_no_report_comes_keeps_the_next_for_a_second(log: Log) -> None:
    await log.ask("one")
    await log.ask("two")
    await log.becomes("one", Phase.COMMITTED)
    await trio.sleep(COMMITTED_NS / 1e9 - 0.2)
    assert log.ordered == ["one"]
    await trio.sleep(0.3)
    assert log.ordered == ["one", "two"]


async def test_a_move_that_the_log_does_not_have_keeps_the_next_for_some_seconds(log: Log) -> None:
    await log.ask("one")
    await log.ask("two")
    del log.rows["one"]
    await trio.sleep(UNKNOWN_NS / 1e9 - 1)
    assert log.ordered == ["one"]
    await trio.sleep(1.1)
    assert log.ordered == ["one", "two"]


async def test_members_of_a_group_do_not_wait_here(log: Log) -> None:
    await log.ask("one")
    await log.ask("two", group="group-1")
    assert log.ordered == ["one", "two"]


async def test_real_servers_do_a_chain_in_the_order_asked(world: Home) -> None:
    ada = await world.player("alpha.ada")
    await world.entity("alpha.ball-1", ada, "alpha.s1")
    asked = []
    for number in range(6):
        to = "alpha.s2" if number % 2 == 0 else "alpha.s1"
        name = f"chain-{number:04d}"
        view = await world.api.do("POST", "/v1/entities/alpha.ball-1/transfers", {"to": to, "transfer_id": name})
        assert view["phase"] in ("permitted", "committed", "done"), view
        asked.append(name)
    for name in asked:
        await world.finished(name)
    done = [await world.api.get(f"/v1/transfers/{name}") for name in asked]
    assert [one["result"] for one in done] == ["done"] * 6
    epochs = [one["epoch"] for one in done]
    assert epochs == sorted(epochs)
    assert (await world.api.get("/v1/entities/alpha.ball-1"))["authority"] == "alpha.s1"


async def test_more_moves_than_may_wait_are_refused(world: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    ada = await world.player("alpha.ada")
    await world.entity("alpha.ball-1", ada, "alpha.s1")

    async def to_nobody(_transfer: TransferRecord) -> None:
        await trio.lowlevel.checkpoint()

    monkeypatch.setattr(world.node.orders, "order", to_nobody)
    path = "/v1/entities/alpha.ball-1/transfers"
    for number in range(MAX_MOVES):
        await world.api.do("POST", path, {"to": "alpha.s2", "transfer_id": f"move-{number:04d}"})
    one_more = {"to": "alpha.s2", "transfer_id": "move-too-many"}
    assert await world.api.refused(409, "too_many_moves", "POST", path, one_more) == MAX_MOVES
    await world.api.do("POST", path, {"to": "alpha.s2", "transfer_id": "move-0003"})
