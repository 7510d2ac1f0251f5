"""Who waits for questions is woken by its own and looks no more often than it has to, however many wait."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from batonpass.actors.base.clock import Clock
from batonpass.authority.model.records import EntityRecord, Phase, TransferRecord
from batonpass.homeserver.log.store import InstanceStore
from batonpass.homeserver.transfer.master_questions import LOOK_S, MAX_WAITING, MAX_WAITING_EACH, Questions
from batonpass.tree.member.watching import Watch
from batonpass.tree.store.store import Store as TreeStore
from batonpass.tree.store.watch import History

ADA, EVE = "alpha.ada", "alpha.eve"


class At1000(Clock):
    def unix_s(self) -> float:
        return 1000.0


class Instance:
    """A member's rows of entities and of questions, and how often whose questions were looked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows, self.history, self.looks = TreeStore(), History(), Counter[str]()
        self.history.attach(self.rows)
        backend: Any = SimpleNamespace(store=self.rows, watch=lambda pattern: Watch(self.history.watch(pattern)))
        self.store = InstanceStore(lambda: backend)
        self.questions = Questions(self.store, lambda: backend, At1000())
        self.found: list[list[str]] = []
        look = self.store.asks_of

        def counted(master: str, now_s: float, limit: int) -> Any:
            self.looks[master] += 1
            return look(master, now_s, limit)

        monkeypatch.setattr(self.store, "asks_of", counted)

    def entity(self, entity: str, master: str) -> None:
        record = EntityRecord(id=entity, kind="ball", master=master, owner=master, authority="alpha.s1")
        self.rows.put(("entities", entity), record.to_data())

    def phase(self, entity: str, transfer_id: str, phase: Phase) -> None:
        transfer = TransferRecord(
            id=transfer_id,
            entity=entity,
            source="alpha.s1",
            target="alpha.s2",
            requester="alpha.bob",
            phase=phase,
            ask_expires_at_s=2000,
        )
        self.rows.put(("transfers", transfer_id), transfer.to_data())

    def ask(self, entity: str, transfer_id: str) -> None:
        self.phase(entity, transfer_id, Phase.ASKED)
        self.rows.put(("asks", entity), [transfer_id])

    async def wait(self, master: str, *seen: str) -> None:
        found = await self.questions.new_ones(master, 100, seen, 30.0)
        self.found.append([transfer.id for _, transfer in found])

    @asynccontextmanager
    async def waiting(self, *masters: str, seen: tuple[str, ...] = ()) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            await nursery.start(self.questions.serve)
            for master in masters:
                nursery.start_soon(self.wait, master, *seen)
            await wait_all_tasks_blocked()
            yield
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()


@pytest.fixture
def instance(monkeypatch: pytest.MonkeyPatch) -> Instance:
    return Instance(monkeypatch)


async def test_a_question_wakes_only_those_who_wait_as_the_master_of_its_entity(instance: Instance) -> None:
    instance.entity("alpha.ball", EVE)
    async with instance.waiting(ADA, EVE):
        instance.ask("alpha.ball", "transfer-1")
        await wait_all_tasks_blocked()
        assert instance.found == [["transfer-1"]]
        assert instance.looks == {ADA: 1, EVE: 2}, "one at the beginning each"


async def test_who_waits_looks_no_more_than_ten_times_a_second(instance: Instance, mock_clock: MockClock) -> None:
    instance.entity("alpha.ball", ADA)
    instance.ask("alpha.ball", "transfer-0")
    async with instance.waiting(ADA, seen=("transfer-0",)):
        instance.looks.clear()
        for number in range(100):
            instance.rows.put(("asks", "alpha.ball"), ["transfer-0"] * (1 + number % 2))
            await wait_all_tasks_blocked()
            mock_clock.jump(0.01)
            await wait_all_tasks_blocked()
        assert 1 <= instance.looks[ADA] <= 11
        assert instance.found == []


async def test_few_wait_for_one_player_and_not_too_many_for_all(instance: Instance) -> None:
    async with instance.waiting(*[ADA] * (MAX_WAITING_EACH + 1)):
        assert instance.found == [[]]
    instance.found.clear()
    async with instance.waiting(*[f"alpha.p{number // MAX_WAITING_EACH}" for number in range(MAX_WAITING + 3)]):
        assert instance.found == [[]] * 3


async def test_without_open_questions_all_who_wait_cost_one_look_around(
    instance: Instance, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    around = Counter[str]()
    look = instance.store.asked_entities

    def counted() -> list[str]:
        around["all"] += 1
        return look()

    monkeypatch.setattr(instance.store, "asked_entities", counted)
    for number in range(300):
        instance.entity(f"alpha.e{number}", f"alpha.p{number % MAX_WAITING}")
        instance.ask(f"alpha.e{number}", f"transfer-{number}")
        instance.phase(f"alpha.e{number}", f"transfer-{number}", Phase.REFUSED)
    players = [f"alpha.p{number}" for number in range(MAX_WAITING)]
    async with instance.waiting(*players):
        await trio.sleep(3.5 * LOOK_S)
        assert (around["all"], instance.looks) == (3, Counter(players))


async def test_a_question_comes_with_the_entity_too(instance: Instance, autojump_clock: MockClock) -> None:
    instance.entity("alpha.ball", ADA)
    for number in range(300):
        instance.entity(f"alpha.a{number}", ADA)
        instance.ask(f"alpha.a{number}", f"another-{number}")
    instance.ask("alpha.ball", "transfer-1")
    async with instance.waiting(EVE):
        instance.entity("alpha.ball", EVE)
        await trio.sleep(LOOK_S + 0.1)
        assert instance.found == [["transfer-1"]]
