"""Which copies of a contested entity count."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from batonpass.actors.base.clock import Bell
from batonpass.authority.errors import MessageError
from batonpass.authority.model.records import LeaseRow, RecoveryRow
from batonpass.authority.model.standing import CopySource, LeasePhase
from batonpass.authority.wire.recovery import AdoptItem, Collect, Collected, FoundItem, RaisedItem
from batonpass.authority.wire.transfer import Adopt
from batonpass.homeserver.failover.collecting import Collecting, WhoIsThere
from batonpass.homeserver.failover.takeover import LOOK_S, PASSED_NS, SUSPECT_NS, Takeovers, believed
from tests.simserver.ports import TrioClock

S1, S2, FAR = "alpha.s1", "alpha.s2", "beta.s1"


def found(epoch: int, sub: int, *, holds: bool) -> FoundItem:
    source = CopySource.OWN
    return FoundItem(entity="alpha.e", epoch=epoch, sub=sub, tick=sub, state_hash="f" * 64, source=source, holds=holds)


@pytest.mark.parametrize(
    ("contested", "own", "theirs", "counts"),
    [
        (True, found(6, 0, holds=True), found(6, 1, holds=False), {S1}),
        (True, found(6, 0, holds=False), found(6, 1, holds=True), {S1, S2}),
        (True, found(3, 0, holds=True), found(6, 1, holds=True), {S1, S2}),
        (False, found(6, 0, holds=True), found(6, 1, holds=False), {S1, S2}),
    ],
    ids=["not passed", "passed", "simulated in an earlier epoch", "not contested"],
)
def test_what_the_last_authority_has_simulated_until_now_counts_against_passes_of_the_same_epoch_alone(
    contested: bool, own: FoundItem, theirs: FoundItem, counts: set[str]
) -> None:
    """It remembers what was taken from it, also when it was given the entity once more since, and has passed it on."""
    row = RecoveryRow(entity="alpha.e", last=S1, epoch=7, contested=contested)
    assert {holder for holder, _ in believed(row, [(S1, own), (S2, theirs)])} == counts


@pytest.mark.parametrize(("born", "epoch", "counts"), [(1, 1, True), (5, 4, False), (5, 5, True)])
def test_no_copy_of_an_earlier_entity_of_its_name_counts(born: int, epoch: int, counts: bool) -> None:
    """That one was deleted; who had copies of it may still have them, or find them on its disk when it is back."""
    store: Any = SimpleNamespace(entity=lambda entity: SimpleNamespace(born=born))
    nothing: Any = None
    takeovers = Takeovers(store, nothing, nothing, nothing)
    assert takeovers._may_count(RecoveryRow(entity="alpha.e", last=S1, epoch=7), S2, epoch) is counts


@pytest.mark.parametrize(("held", "handed_back"), [(True, True), (False, False)])
def test_what_waited_for_its_server_is_handed_back_from_when_somebody_else_is_to_go_on_with_it(
    held: bool, handed_back: bool
) -> None:
    row = RecoveryRow(entity="alpha.e", last=S1, epoch=7, held=held, target=S2)
    rows = {"alpha.e": row}
    store: Any = SimpleNamespace(recovery=rows.get)
    clock: Any = SimpleNamespace(monotonic_ns=lambda: 0)
    nothing: Any = None
    takeovers = Takeovers(store, nothing, clock, nothing)
    assert takeovers.hands_back("alpha.e") is handed_back
    takeovers._return_to_owner.adopted(rows.pop("alpha.e"))
    assert takeovers.hands_back("alpha.e") is handed_back, "the log knows that it has gone on"
    takeovers._return_to_owner.left_office()
    assert not takeovers.hands_back("alpha.e")


@pytest.mark.parametrize(("was_alive", "just_away"), [(True, {S2}), (False, set())])
def test_who_comes_and_goes_and_is_never_quite_back_is_not_waited_for_without_end(
    was_alive: bool, just_away: set[str]
) -> None:
    clock: Any = SimpleNamespace(now_ns=0)
    clock.monotonic_ns = lambda: clock.now_ns
    rows: list[LeaseRow] = []
    store: Any = SimpleNamespace(
        leases=lambda: rows, away=lambda: [row for row in rows if row.phase is LeasePhase.OVER]
    )
    nothing: Any = None
    takeovers = Takeovers(store, nothing, clock, nothing)
    between = LeasePhase.ALIVE if was_alive else LeasePhase.RETURNING
    for at_s, incarnation, phase in ((0, 1, LeasePhase.OVER), (6, 2, between), (8, 2, LeasePhase.OVER)):
        clock.now_ns = at_s * 1_000_000_000
        rows[:] = [LeaseRow(server=S2, incarnation=incarnation, nonce="n", phase=phase)]
        takeovers._note_ends()
    assert takeovers._just_away() == {S2}
    clock.now_ns = PASSED_NS + 1
    assert takeovers._just_away() == just_away


def test_who_has_the_office_again_does_not_go_by_what_it_saw_when_it_had_it_last() -> None:
    """Who was away then may have been back for long, and be away for a moment now, with what it was passed."""
    clock: Any = SimpleNamespace(now_ns=0)
    clock.monotonic_ns = lambda: clock.now_ns
    gone = [LeaseRow(server=S2, incarnation=1, nonce="n", phase=LeasePhase.OVER)]
    store: Any = SimpleNamespace(leases=lambda: gone, away=lambda: gone)
    nothing: Any = None
    takeovers = Takeovers(store, nothing, clock, nothing)
    takeovers._note_ends()
    takeovers._left_office()
    clock.now_ns = 10 * PASSED_NS
    assert takeovers._just_away() == {S2}


class LookingTakeovers(Takeovers):
    """Notes when it looks."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.looked_s: list[float] = []

    async def _look(self) -> None:
        self.looked_s.append(round(trio.current_time(), 3))


async def test_a_recovery_that_has_begun_does_not_wait_for_the_next_look(autojump_clock: MockClock) -> None:
    clock: Any = TrioClock()
    store: Any = SimpleNamespace(takeovers=list, entity=lambda _: None, recovery=lambda _: None)
    nothing: Any = None
    began_s, is_in_office = trio.current_time(), [True]
    takeovers = LookingTakeovers(store, nothing, clock, lambda: is_in_office[0])
    async with trio.open_nursery() as nursery:
        await nursery.start(takeovers.serve)
        await trio.sleep(LOOK_S + 0.1)
        takeovers.begun(["alpha.e"])
        await trio.sleep(0.01)
        takeovers.begun([])
        is_in_office[0] = False
        takeovers.begun(["alpha.e"])
        await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    assert [round(at_s - began_s, 3) for at_s in takeovers.looked_s] == [LOOK_S, LOOK_S + 0.1]


@pytest.mark.parametrize(
    ("here", "there", "abroad", "told"),
    [
        ([], [], [], []),
        ([3], [], [], [3]),
        ([5], [3], [], [3, 5]),
        ([*range(4, 12)], [*range(8)], [], [*range(4, 12)]),
        ([3, 3], [3, 5], [], [3, 3, 5]),
        ([3], [], [4, 5], [3]),
        ([3], [12, 2**63 - 1], [], [3]),
    ],
    ids=[
        "none",
        "one",
        "two",
        "many",
        "one of which several know",
        "in an instance that it has left",
        "under an epoch that nobody had",
    ],
)
async def test_failures_row_41_home_tells_whoever_goes_on_how_often_servers_have_died_of_it(
    here: list[int], there: list[int], abroad: list[int], told: list[int]
) -> None:
    record = SimpleNamespace(incarnation=0, owner="alpha.ada", owner_rev=1, born=1)
    row = RecoveryRow(entity="alpha.e", last=S1, epoch=12, abroad_too=("beta",))
    decided = row.changed(target=S2, state_hash="f" * 64)
    store: Any = SimpleNamespace(entity=lambda _: record, recovery=lambda _: decided)
    clock: Any = SimpleNamespace(monotonic_ns=lambda: 5, bell=Bell)
    died = {S1: here, S2: there, FAR: abroad}

    async def submit(procedure: str, **_args: object) -> list[str]:
        return []

    async def post(message: Collect | Adopt, _trace: object, server: str, **_: object) -> None:
        if isinstance(message, Adopt):
            adopted.extend(message.items)
            return
        answer = Collected(number=message.number, incarnation=1, items=[], deaths={"alpha.e": died[server]})
        for _time in range(2):
            takeovers.collected(answer, server)

    store.submit = submit
    takeovers = Takeovers(store, post, clock, lambda: True)
    adopted: list[AdoptItem] = []
    there_is = WhoIsThere({S1: 1, S2: 1, FAR: 1})

    async def everybody() -> WhoIsThere:
        return there_is

    await takeovers._collect([row], there_is, 1, everybody)
    assert [item.deaths for item in adopted] == [told]


class Suspects:
    """Home, which knows that a server has died of an entity; the one that has had it since may be silent."""

    def __init__(self, deaths: list[int], *, is_known: bool = True) -> None:
        self.now_ns, self.deaths = 0, deaths
        self.phase = LeasePhase.OVER
        row = RecoveryRow(entity="alpha.e", last=S1, epoch=12, stay_epoch=11)
        record = SimpleNamespace(incarnation=0, owner="alpha.ada", owner_rev=1, born=1)
        self.row, self.alive = row, {S2: 1}
        self.finished: list[dict[str, Any]] = []
        store: Any = SimpleNamespace(
            entity=lambda _: record,
            recovery=lambda _: row,
            row=lambda _: SimpleNamespace() if is_known else None,
            leases=lambda: [LeaseRow(server=S1, incarnation=1, nonce="n", phase=self.phase)],
            submit=self._submit,
        )
        clock: Any = SimpleNamespace(monotonic_ns=lambda: self.now_ns, bell=Bell)
        self.takeovers = Takeovers(store, self._post, clock, lambda: True)
        self.takeovers._note_ends()

    async def _submit(self, procedure: str, *, items: list[dict[str, Any]]) -> list[str]:
        if procedure == "recovery.finish":
            self.finished += items
        return []

    async def _post(self, message: Collect | Adopt, _trace: object, server: str, **_: object) -> None:
        if isinstance(message, Collect):
            found_there = FoundItem(
                entity="alpha.e", epoch=11, sub=0, tick=5, state_hash="f" * 64, source=CopySource.BACKUP_REPLICA
            )
            deaths = {"alpha.e": [11]} if server == S1 else {"alpha.e": self.deaths}
            self.takeovers.collected(
                Collected(number=message.number, incarnation=1, items=[found_there], deaths=deaths), server
            )

    async def look(self, at_s: float) -> list[str]:
        """Who is given it by then."""
        self.now_ns = round(at_s * 1e9)
        there = WhoIsThere(dict(self.alive))

        async def everybody() -> WhoIsThere:
            return there

        self.takeovers._note_ends()
        await self.takeovers._collect([self.row], there, 1, everybody)
        return [item["target"] for item in self.finished]


async def test_failures_row_41_whose_server_may_be_the_second_to_die_of_it_waits_for_that_ones_word() -> None:
    home = Suspects([3])
    assert await home.look(0.0) == []
    assert await home.look(SUSPECT_NS / 1e9 - 0.1) == []
    assert home.takeovers.counts["waited_for_witness"] == 1, "it is said once"
    assert home.takeovers.waits_for(home.row) == [S1]
    home.phase = LeasePhase.RETURNING
    home.alive[S1] = 1
    assert len(await home.look(SUSPECT_NS / 1e9 - 0.05)) == 1
    assert home.takeovers._died_of["alpha.e"] == [3, 11], "the server that is told to take it over does not simulate it"


async def test_a_server_that_has_just_come_back_is_asked_before_it_is_gone_on_with() -> None:
    home = Suspects([3])
    assert await home.look(0.0) == []
    home.phase = LeasePhase.ALIVE
    assert await home.look(1.0) == [], "it came after the question"
    home.alive[S1] = 1
    assert len(await home.look(1.25)) == 1


@pytest.mark.parametrize(
    ("deaths", "at_s", "is_known"),
    [([], 0, True), ([3, 5], 0, True), ([3], 31, True), ([3], 0, False)],
    ids=["of whom nobody died", "of whom too many died", "for too long", "whose server was removed"],
)
async def test_nobody_else_waits_for_a_silent_server_to_say_whether_it_died_of_it(
    deaths: list[int], at_s: float, is_known: bool
) -> None:
    assert await Suspects(deaths, is_known=is_known).look(at_s) == [S2]


async def test_who_does_not_answer_is_asked_ever_more_seldom_and_looked_after_as_often(
    autojump_clock: MockClock,
) -> None:
    """It may have too much to do; whether it is alive is known here."""
    store: Any = SimpleNamespace(entity=lambda _: None, confirmed=None)
    asked_s: list[float] = []
    looked = 0

    async def post(_message: Collect, _trace: object, _server: str, **_: object) -> None:
        asked_s.append(trio.current_time() - began_s)

    async def everybody() -> WhoIsThere:
        nonlocal looked
        looked += 1
        return WhoIsThere({S1: 1} if trio.current_time() - began_s < 20 else {})

    takeovers = Takeovers(store, post, TrioClock(), lambda: True)
    began_s = trio.current_time()
    await takeovers._ask(lambda _: [RaisedItem(entity="alpha.e", epoch=7, sub=0)], WhoIsThere({S1: 1}), everybody)
    assert [round(s, 1) for s in asked_s] == [0.0, 0.5, 1.5, 3.5, 7.5, 11.5, 15.5, 19.5]
    assert looked >= 40


def test_who_is_to_go_on_with_something_is_told_so_ever_more_seldom() -> None:
    clock: Any = SimpleNamespace(now_ns=0)
    nothing: Any = None
    takeovers = Takeovers(nothing, nothing, clock, nothing)
    row = RecoveryRow(entity="alpha.e", last=S1, target=S2, epoch=7)
    told = [tick for tick in range(100) if takeovers._is_to_be_told(row, tick * 250_000_000)]
    assert told == [0, 2, 6, 14, 30, 46, 62, 78, 94]
    assert takeovers._is_to_be_told(row.changed(epoch=9), 0), "that is something else"
    takeovers._forget_all_but([])
    assert takeovers._is_to_be_told(row, 0)


@pytest.mark.parametrize(
    ("sender", "incarnation", "is_heard"),
    [(S1, 1, True), (S1, 2, False), (S2, 1, False)],
    ids=["asked", "of another life", "not asked"],
)
async def test_the_answer_of_a_server_counts_that_was_asked_and_of_the_life_that_was(
    sender: str, incarnation: int, is_heard: bool
) -> None:
    """Else a recovery could go on from a state of before the last term, or from one that was made up."""
    refused: list[str] = []

    async def post(message: Collect, _trace: object, _server: str, **_: object) -> None:
        try:
            collecting.collected(Collected(number=message.number, incarnation=incarnation, items=[]), sender)
        except MessageError as error:
            refused.append(str(error))

    async def everybody() -> WhoIsThere:
        # The server that was asked is dead by now, if it has not answered.
        return WhoIsThere({})

    clock: Any = SimpleNamespace(monotonic_ns=lambda: 0, bell=Bell)
    collecting = Collecting(post, clock, lambda: True, Counter())
    heard = await collecting.ask(
        lambda _: [RaisedItem(entity="alpha.e", epoch=12, sub=0)], WhoIsThere({S1: 1}), everybody
    )
    assert (list(heard.answers), not refused) == ([S1] if is_heard else [], is_heard)


async def test_a_member_that_is_not_in_office_looks_for_nothing_to_recover(autojump_clock: MockClock) -> None:
    looked: list[str] = []
    nothing: Any = SimpleNamespace()
    takeovers = Takeovers(nothing, nothing, TrioClock(), lambda: False)
    takeovers._look = lambda: looked.append("looked")  # type: ignore[method-assign, assignment, return-value]
    with trio.move_on_after(10 * LOOK_S):
        await takeovers.serve()
    assert looked == []
