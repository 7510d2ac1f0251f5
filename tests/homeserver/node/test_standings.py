"""How entities stand: asked where they are, in bounded time, and told with what they wait for."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from batonpass.authority.model.records import EntityRecord, LeaseRow, Phase, TransferRecord
from batonpass.authority.model.standing import LeasePhase, Standing
from batonpass.authority.wire.standing import MAX_STANDINGS, At, StandingRow
from batonpass.authority.wire.transfer import StandingInquiry, StandingWord
from batonpass.homeserver.names.federation import InstanceUnreachable
from batonpass.homeserver.node import standings
from batonpass.homeserver.node.standings import ASK_S, MAX_QUESTIONS, SeenAs, StandingQuestions
from batonpass.homeserver.placement.balancer import FRESH_S, Reported
from batonpass.simserver.net.home_answers import HomeUnreachable
from tests.homeserver.served import DEADLINE_S, Home, homeserver_config, new_ports, served, until

BALL = "alpha.ball-1"
S1, S2, FAR = "alpha.s1", "alpha.s2", "beta.s1"
RECORD = EntityRecord(id=BALL, kind="ball", master="alpha.ada", owner="alpha.ada", authority=S1)


class Log:
    """A store with one entity and the transfers and leases that are put there."""

    def __init__(self) -> None:
        self.leases = {S1: LeaseRow(server=S1, incarnation=1, nonce="0" * 32, phase=LeasePhase.ALIVE)}
        self.transfers: list[TransferRecord] = []

    def entity(self, entity: str) -> EntityRecord | None:
        return RECORD if entity == BALL else None

    def lease(self, server: str) -> LeaseRow | None:
        return self.leases.get(server)

    def transfers_of(self, _entity: str, _limit: int) -> list[TransferRecord]:
        return self.transfers


class Servers:
    """Simulation servers that answer what stands in `says`; `reports` are those of the same instance."""

    def __init__(self) -> None:
        self.log = Log()
        self.says: dict[str, StandingRow] = {}
        self.reports: dict[str, float] = {}
        self.asked: list[tuple[str, StandingInquiry]] = []
        self.standings = StandingQuestions(cast(Any, self.log), self.post, self.report, "alpha")

    def report(self, server: str, /) -> Reported | None:
        age_s = self.reports.get(server)
        return None if age_s is None else Reported(cast(Any, SimpleNamespace()), age_s)

    async def post(self, message: Any, trace: Any, to: str, *, on_path: bool) -> None:
        self.asked.append((to, message))
        if to == "alpha.gone":
            raise InstanceUnreachable(f"{to} has no address")
        rows = [self.says[entity] for entity in message.entities if entity in self.says]
        if rows:
            assert self.standings.heard(StandingWord(number=message.number, rows=rows), to)


@pytest.mark.parametrize(
    ("at", "seen"),
    [
        (At.RUNS, "simulated"),
        (At.FROZEN, "frozen"),
        (At.QUARANTINED, "quarantined"),
        (At.UNTAKEN, "quarantined"),
        (At.SUSPENDED, "suspended"),
        (At.UNLEASED, "unleased"),
    ],
)
async def test_the_word_of_the_server_that_has_it_counts(at: At, seen: str) -> None:
    servers = Servers()
    servers.says[BALL] = StandingRow(entity=BALL, at=at)
    assert await servers.standings.of(RECORD) == seen
    assert [to for to, _ in servers.asked] == [S1]


async def test_a_server_that_does_not_answer_in_time_is_unreachable(autojump_clock: MockClock) -> None:
    began_s = trio.current_time()
    assert await Servers().standings.of(RECORD) == SeenAs.UNREACHABLE
    assert trio.current_time() - began_s == ASK_S


async def test_one_that_cannot_be_told_anything_is_unreachable_at_once() -> None:
    servers = Servers()
    servers.log.leases["alpha.gone"] = servers.log.leases[S1]
    assert await servers.standings.of(RECORD.changed(authority="alpha.gone")) == SeenAs.UNREACHABLE


@pytest.mark.parametrize(
    ("record", "reports", "phase", "seen"),
    [
        (RECORD.changed(authority="", standing=Standing.RECOVERING), {}, LeasePhase.ALIVE, "recovering"),
        (RECORD.changed(authority="", standing=Standing.LOST), {}, LeasePhase.ALIVE, "lost"),
        (RECORD, {}, LeasePhase.OVER, "unleased"),
        (RECORD, {S1: FRESH_S + 1.0}, LeasePhase.ALIVE, "unreachable"),
    ],
)
async def test_what_the_log_or_its_silence_says_is_asked_of_nobody(
    record: EntityRecord, reports: dict[str, float], phase: LeasePhase, seen: str
) -> None:
    servers = Servers()
    servers.reports = reports
    servers.log.leases[S1] = servers.log.leases[S1].changed(phase=phase)
    assert (await servers.standings.of(record), servers.standings.known(record)) == (seen, seen)
    assert servers.asked == []


async def test_by_the_log_alone_what_stands_still_for_its_owner_is_suspended() -> None:
    assert Servers().standings.known(RECORD.changed(stands_still=True)) == SeenAs.SUSPENDED


async def test_what_was_given_to_a_server_and_is_not_there_is_frozen_where_it_comes_from() -> None:
    servers = Servers()
    servers.says[BALL] = StandingRow(entity=BALL, at=At.NOT_HERE)
    assert await servers.standings.of(RECORD) == SeenAs.UNREACHABLE
    move = TransferRecord(id="transfer-1", entity=BALL, source=S2, target=S1, phase=Phase.COMMITTED, epoch=1)
    servers.log.transfers = [move]
    assert await servers.standings.of(RECORD) == SeenAs.FROZEN
    servers.says[BALL] = StandingRow(entity=BALL, at=At.NOT_HERE, moved_to=S2)
    assert await servers.standings.of(RECORD) == SeenAs.SIMULATED, "it was passed on, of which the log hears behind"


async def test_many_are_asked_about_in_few_questions_also_abroad() -> None:
    servers = Servers()
    records = [RECORD.changed(id=f"alpha.e-{number}", authority=FAR) for number in range(MAX_STANDINGS + 1)]
    servers.says = {record.id: StandingRow(entity=record.id, at=At.RUNS) for record in records}
    assert set((await servers.standings.of_each(records)).values()) == {SeenAs.SIMULATED}
    assert sorted(len(message.entities) for _, message in servers.asked) == [1, MAX_STANDINGS]


async def test_nobody_answers_for_another_server_nor_twice_nor_about_what_was_not_asked() -> None:
    servers = Servers()
    row = StandingRow(entity=BALL, at=At.QUARANTINED)
    strange = StandingRow(entity="alpha.other", at=At.RUNS)

    async def post(message: Any, trace: Any, to: str, *, on_path: bool) -> None:
        word = StandingWord(number=message.number, rows=[row, strange])
        heard = [servers.standings.heard(word, sender) for sender in (S2, to, to)]
        assert heard == [False, True, False]

    servers.standings = StandingQuestions(cast(Any, servers.log), post, servers.report, "alpha")
    assert await servers.standings.ask([RECORD]) == {BALL: row}
    assert not servers.standings.heard(StandingWord(number=1, rows=[row]), S1), "it is of the past"


async def test_questions_under_way_are_bounded(autojump_clock: MockClock) -> None:
    servers = Servers()
    records = [RECORD.changed(authority=f"alpha.s{number}") for number in range(MAX_QUESTIONS + 10)]
    assert await servers.standings.ask(records) == {}
    assert len(servers.asked) == MAX_QUESTIONS
    assert servers.standings._questions == {}


@pytest.mark.parametrize(
    ("phase", "row", "why"),
    [
        (Phase.ASKED, None, "its master alpha.ada has not answered yet"),
        (Phase.PERMITTED, None, "alpha.s1 does not answer"),
        (
            Phase.PERMITTED,
            StandingRow(entity=BALL, at=At.RUNS, transfer_id="transfer-1", why="alpha.s2 is full"),
            "alpha.s2 is full",
        ),
        (
            Phase.PERMITTED,
            StandingRow(entity=BALL, at=At.FROZEN, transfer_id="another-1", why="no answer"),
            "alpha.s1 is handing it over for transfer another-1 first: no answer",
        ),
        (
            Phase.PERMITTED,
            StandingRow(entity=BALL, at=At.UNLEASED, why="not renewed"),
            "alpha.s1 has not begun with it: it is unleased (not renewed)",
        ),
        (Phase.COMMITTED, StandingRow(entity=BALL, at=At.NOT_HERE), "alpha.s2 does not have alpha.ball-1"),
    ],
)
async def test_a_transfer_that_waits_shows_the_last_reason_of_its_source(
    phase: Phase, row: StandingRow | None, why: str, autojump_clock: MockClock
) -> None:
    servers = Servers()
    servers.says = {} if row is None else {BALL: row}
    move = TransferRecord(id="transfer-1", entity=BALL, source=S2, target=FAR, phase=phase)
    assert await servers.standings.why_waits(move) == why


# --- on real servers --------------------------------------------------------------------------------------------------


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    with new_ports() as ports:
        async with served(homeserver_config(tmp_path, ports)) as home:
            await home.simserver(S1)
            await home.simserver(S2)
            yield home


async def stands(home: Home, cause: str) -> dict[str, Any]:
    """Wait until that is the cause; what is said of it."""
    return await told(home, f"/v1/entities/{BALL}/why", lambda view: view["cause"] == cause)


async def told(home: Home, path: str, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Ask until that is answered."""
    with trio.fail_after(DEADLINE_S):
        while True:
            view: dict[str, Any] = await home.api.get(path)
            if wanted(view):
                return view
            await trio.sleep(0.01)


def says(text: str) -> Callable[[dict[str, Any]], bool]:
    """What is told has this in it."""
    return lambda view: text in view["text"]


async def test_an_operator_finds_why_an_entity_does_not_run(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standings, "ASK_S", 30.0)
    ada = await home.player("alpha.ada")
    await home.entity(BALL, ada, S1)
    node = home.simservers[S1]
    holding = node.holdings.get(BALL)
    assert holding is not None

    view = await stands(home, "runs")
    assert (view["runs"], view["authority"], view["epoch"], view["told_by"]) == (True, S1, 1, "alpha.h1")
    assert (await home.api.get(f"/v1/entities/{BALL}"))["standing"] == "simulated"
    (owned,) = await home.api.get("/v1/players/alpha.ada/entities")
    assert owned["standing"] == "simulated"

    holding.life.enter_quarantine("ZeroDivisionError: poison")
    view = await stands(home, "quarantined")
    assert "ZeroDivisionError: poison" in view["text"]
    assert (view["runs"], "release" in view["remedy"]) == (False, True)
    assert (await home.api.get(f"/v1/entities/{BALL}"))["standing"] == "quarantined"
    assert (await home.api.get(f"/v1/entities/{BALL}?consistency=local"))["standing"] == "simulated", "nobody is asked"
    (owned,) = await home.api.get("/v1/players/alpha.ada/entities")
    assert owned["standing"] == "quarantined"

    monkeypatch.setattr(node.lease, "may_act", lambda _now_ns: False)
    node.lease.why_not = "alpha.h1 says elsewhere"
    assert "it was not renewed: alpha.h1 says elsewhere" in (await stands(home, "unleased"))["text"]
    assert (await home.api.get(f"/v1/entities/{BALL}"))["standing"] == "unleased"

    home.node.leases._shown = ("alpha.s1 proves that the log was elsewhere", 1, 0)
    assert "alpha.s1 proves" in (await stands(home, "log_went_back"))["text"]
    for path in ("/v1/cluster", "/v1/recoveries"):
        assert (await home.api.get(path))["log_went_back"] == "alpha.s1 proves that the log was elsewhere"


async def test_what_is_frozen_says_for_which_transfer_and_what_was_said_last(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standings, "ASK_S", 30.0)
    ada = await home.player("alpha.ada")
    await home.entity(BALL, ada, S1)
    node = home.simservers[S1]

    async def ask(*_: Any, **__: Any) -> None:
        raise HomeUnreachable("no homeserver of alpha answered")

    monkeypatch.setattr(node.home, "ask", ask)
    begun = await home.api.do("POST", f"/v1/entities/{BALL}/transfers", {"to": S2})
    view = await stands(home, "frozen")
    assert (view["transfer_id"], view["phase"]) == (begun["transfer_id"], "requested")
    assert view["since_s"] >= 0
    view = await told(home, f"/v1/transfers/{begun['transfer_id']}", lambda view: "no homeserver" in view["waits"])
    assert view["waits"].startswith("its home instance has not decided yet whether alpha.s2 gets it")
    assert (await home.api.get(f"/v1/entities/{BALL}"))["standing"] == "frozen"
    monkeypatch.undo()
    done = await home.finished(begun["transfer_id"])
    assert (done["result"], done["waits"]) == ("done", "")


async def test_where_its_world_wants_it_in_vain_is_said_with_the_reason_until_it_gets_there(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada = await home.player("alpha.ada")
    await home.entity(BALL, ada, S1)
    world = home.simservers[S1].environment.world
    for name in ("alpha.s9", "alpha.h1", "alpha.ada", "gamma.s1"):
        monkeypatch.setattr(world, "destination", lambda *_, name=name: name, raising=False)
        wants = f"alpha.s1 simulates it; its world wants it at {name}: no simulation server of this name is registered"
        view = await told(home, f"/v1/entities/{BALL}/why", says(wants))
        assert (view["cause"], view["runs"], view["transfer_id"]) == ("runs", True, "")
        assert "`destination` of its world" in view["remedy"]
    monkeypatch.setattr(world, "destination", lambda *_: S2)
    await told(home, f"/v1/entities/{BALL}/why", lambda view: view["authority"] == S2 and view["runs"])


async def test_what_is_gone_or_was_never_there_is_told_apart(home: Home) -> None:
    assert (await stands(home, "not_known"))["epoch"] == 0
    ada = await home.player("alpha.ada")
    await home.entity(BALL, ada, S1)
    await home.node.store.submit("entity.delete", entity=BALL, by="alpha.ada", master_rev=1)
    assert "its id is not given again" in (await stands(home, "deleted"))["remedy"]
    await home.api.refused(421, "wrong_home", "GET", "/v1/entities/beta.ball-1/why")


async def test_what_stands_still_for_its_owner_is_suspended_until_it_has_another(home: Home) -> None:
    ada = await home.player("alpha.ada")
    await home.entity(BALL, ada, S1, on_leave="freeze")
    answer = await home.node.store.submit("entity.owner_left", entity=BALL, by="alpha.ada", owner_rev=1)
    await home.node.owners.carry_out(answer)
    assert "its owner left" in (await stands(home, "suspended"))["text"]
    assert (await home.api.get(f"/v1/entities/{BALL}"))["standing"] == "suspended"
    assert (await home.api.get(f"/v1/entities/{BALL}?consistency=local"))["standing"] == "suspended"


async def test_a_server_that_is_silent_is_unreachable(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standings, "ASK_S", 0.2)
    ada = await home.player("alpha.ada")
    await home.entity(BALL, ada, S1)
    monkeypatch.setattr(home.simservers[S1].outbox, "send", lambda *_, **__: True)
    assert "alpha.s1 does not answer its home instance" in (await stands(home, "unreachable"))["text"]
    assert (await home.api.get(f"/v1/entities/{BALL}"))["standing"] == "unreachable"
    await until(lambda: not home.node.standings._questions)
