"""What a server holds, and where what left has gone."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from batonpass.actors import System
from batonpass.authority.fence import Fence
from batonpass.authority.model.ownership import Ownership
from batonpass.authority.wire.transfer import InputItem
from batonpass.simserver.entity import table as holdings
from batonpass.simserver.entity.custody_log import custody_file
from batonpass.simserver.entity.snapshot import EntitySnapshot
from batonpass.simserver.entity.state import Life
from batonpass.simserver.entity.table import AlreadyHeld, Holding, Holdings, Tombstone
from batonpass.simserver.world.demo_balls import Balls
from tests.simserver.stage import ADA, BALL, Stage, Tally

pytestmark = pytest.mark.usefixtures("either_kind")


class Written:
    """The notes of a server, as text."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def lives(self, entity: str, kind: str, fence: Fence, since: int = 0) -> None:
        self.lines.append(f"{entity} lives as {kind} under {fence.epoch}" + (f" since {since}" if since else ""))

    def left(self, entity: str, moved_to: str, fence: Fence) -> None:
        self.lines.append(f"{entity} left to {moved_to} under {fence.epoch}")

    def forget(self, entity: str) -> None:
        self.lines.append(f"{entity} forgotten")


def held(system: System, notes: Written | None = None) -> Holdings:
    return Holdings(Stage(system).environment, notes or Written())


def at_rest(holding: Holding) -> EntitySnapshot:
    frozen = holding.life.freeze()
    assert frozen is not None
    return EntitySnapshot.decode(frozen.state)


async def test_a_new_entity_begins_at_tick_zero_under_its_fence(system: System) -> None:
    known = held(system)
    holding = known.spawn(BALL, "ball", {"p": [1, 2, 3]}, Fence(1))
    assert (known.get(BALL), len(known), list(known)) == (holding, 1, [holding])
    seen = holding.life.inspected(with_state=False)
    assert (seen["tick"], seen["epoch"], seen["kind"]) == (0, 1, "ball")


async def test_what_the_world_would_not_have_is_not_held(system: System) -> None:
    known = held(system)
    with pytest.raises(ValueError, match="no 'cube'"):
        known.spawn(BALL, "cube", {}, Fence(1))
    assert known.get(BALL) is None
    assert len(known) == 0


async def test_a_kind_that_the_world_does_not_know_is_not_spawned(system: System) -> None:
    class Crates(Tally):
        kinds = ("tally", "crate")

    known = Holdings(Stage(system, world=Crates()).environment, Written())
    known.spawn(BALL, "tally", {}, Fence(1))
    with pytest.raises(ValueError, match="the world here knows no 'ball'; its kinds are crate, tally"):
        known.spawn("alpha.other", "ball", {}, Fence(1))
    assert known.get("alpha.other") is None


async def test_one_entity_is_never_held_twice(system: System) -> None:
    known = held(system)
    first = known.spawn(BALL, "ball", {}, Fence(1))
    with pytest.raises(AlreadyHeld, match="already"):
        known.spawn(BALL, "ball", {}, Fence(2))
    assert known.get(BALL) == first


async def test_what_left_has_a_tombstone_and_what_came_back_has_none(system: System) -> None:
    known = held(system)
    rest = at_rest(known.spawn(BALL, "ball", {}, Fence(1)))
    known.leave(BALL, "alpha.s2", Fence(2))
    assert (known.get(BALL), known.gone(BALL)) == (None, Tombstone("alpha.s2", Fence(2)))
    back = known.start(BALL, Fence(3), rest)
    assert (known.get(BALL), known.gone(BALL)) == (back, None)


async def test_a_departure_that_ends_late_does_not_take_away_what_has_come_back(system: System) -> None:
    known = held(system)
    rest = at_rest(known.spawn(BALL, "ball", {}, Fence(1)))
    known.drop(BALL)
    back = known.start(BALL, Fence(3), rest)
    known.leave(BALL, "alpha.s2", Fence(2))
    assert (known.get(BALL), known.gone(BALL)) == (back, None)
    assert (back.fence, back.life.over) == (Fence(3), False)


async def test_tombstones_are_bounded_and_the_oldest_go_first(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holdings, "MAX_TOMBSTONES", 2)
    known = held(system)
    for entity in ("alpha.a", "alpha.b", "alpha.a", "alpha.c"):
        known.leave(entity, "alpha.s2", Fence(2))
    assert [known.gone(entity) is not None for entity in ("alpha.a", "alpha.b", "alpha.c")] == [True, False, True]


async def test_a_delegation_lasts_until_the_log_speaks_again(system: System) -> None:
    holding = held(system).spawn(BALL, "ball", {}, Fence(1))
    holding.delegated(("grant",), ("alpha.s1", "alpha.s2"), Fence(1))
    assert (holding.chain, holding.group) == (("grant",), ("alpha.s1", "alpha.s2"))
    assert holding.may_pass_to("alpha.s2")
    assert not holding.may_pass_to("alpha.s3")
    at_rest(holding)
    holding.resume(Fence(2))
    assert (holding.fence, holding.chain, holding.group) == (Fence(2), (), ())
    assert not holding.may_pass_to("alpha.s2")


@pytest.mark.parametrize("leads_to", [Fence(1), Fence(2, 1), Fence(3), Fence(0, 0)])
async def test_a_chain_that_leads_to_another_fence_allows_nothing(system: System, leads_to: Fence) -> None:
    holding = held(system).spawn(BALL, "ball", {}, Fence(2))
    group = ("alpha.s1", "alpha.s2")
    holding.delegated(("grant",), group, leads_to)
    assert (holding.chain, holding.group, holding.may_pass_to("alpha.s2")) == ((), (), False)
    holding.delegated(("grant",), group, Fence(2))
    holding.delegated(("stale grant",), group, leads_to)
    assert (holding.chain, holding.may_pass_to("alpha.s2")) == (("grant",), True)
    at_rest(holding)
    holding.life.resume(Fence(3))
    assert not holding.may_pass_to("alpha.s2"), "however it came to be simulated under another fence"


async def test_holdings_may_change_while_somebody_goes_through_them(system: System) -> None:
    known = held(system)
    for number in range(3):
        known.spawn(f"alpha.b{number}", "ball", {}, Fence(1))
    for holding in known:
        known.leave(holding.id, "alpha.s2", Fence(2))
    assert len(known) == 0


async def test_what_lives_here_and_what_left_is_written_down(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holdings, "MAX_TOMBSTONES", 1)
    notes = Written()
    known = held(system, notes)
    known.spawn(BALL, "ball", {}, Fence(1))
    known.leave(BALL, "alpha.s2", Fence(2))
    known.remember("alpha.other", Tombstone("alpha.s3", Fence(7)))
    assert notes.lines == [f"{BALL} lives as ball under 1", f"{BALL} left to alpha.s2 under 2", f"{BALL} forgotten"]
    assert known.gone("alpha.other") == Tombstone("alpha.s3", Fence(7))


async def test_what_lived_here_in_an_earlier_life_is_known_until_it_lives_here_again(system: System) -> None:
    known = held(system)
    assert known.lived(BALL) is None
    known.remember_lived(BALL, Fence(2))
    assert known.lived(BALL) == Fence(2)
    spawned = known.spawn(BALL, "ball", {}, Fence(3))
    assert (known.lived(BALL), spawned.fence) == (None, Fence(3))


async def test_it_is_written_down_since_when_an_entity_has_been_here(system: System) -> None:
    notes = Written()
    known = held(system, notes)
    holding = known.spawn(BALL, "ball", {}, Fence(3))
    holding.life.freeze()
    holding.resume(Fence(4))
    assert known.since(BALL) == 3
    known.goes_on(BALL, 1)
    assert (known.since(BALL), notes.lines[-1]) == (1, f"{BALL} lives as ball under 4 since 1")
    known.remember_lived("alpha.other", Fence(6), 2)
    known.remember_lived("alpha.third", Fence(6))
    assert [known.since(one) for one in ("alpha.other", "alpha.third", "alpha.fourth")] == [2, 6, 0]
    known.give_up("alpha.other", (Fence(6),))
    assert known.since("alpha.other") == 2
    known.give_up("alpha.other", ())
    assert known.since("alpha.other") == 0


async def test_an_entity_is_not_found_before_it_is_seen_to_and_nothing_is_written_down(system: System) -> None:
    """In between its former authority is answered, so that nobody waits for the rest."""
    stage, notes = Stage(system), Written()
    known = Holdings(stage.environment, notes)
    holding = known.begin(BALL, Fence(1), stage.fresh())
    assert (known.get(BALL), stage.custody.to_data(), notes.lines) == (None, [], [])
    known.see_to(holding)
    assert (known.get(BALL), len(stage.custody.to_data()), len(notes.lines)) == (holding, 1, 1)


@pytest.mark.parametrize(
    "make", [lambda: OSError("no space left on device"), SystemExit, lambda: BaseExceptionGroup("", [SystemExit()])]
)
@pytest.mark.parametrize("what", ["custody", "owner", "inputs"])
async def test_an_entity_of_which_others_have_heard_that_it_is_here_is_so_whatever_goes_wrong(
    system: System, monkeypatch: pytest.MonkeyPatch, what: str, make: Callable[[], BaseException]
) -> None:
    def full(*_: object) -> None:
        raise make()

    stage, notes = Stage(system), Written()
    known = Holdings(stage.environment, notes)
    holding = known.begin(BALL, Fence(1), stage.fresh())
    match what:
        case "custody":
            monkeypatch.setattr(stage.custody, "start", full)
        case "owner":
            monkeypatch.setattr(Life, "owned", full)
        case _:
            monkeypatch.setattr(Life, "take_inputs", full)
    known.see_to(holding)
    monkeypatch.undo()
    assert known.get(BALL) is holding
    assert (holding.life.quarantine_reason, stage.counts["internal_error"]) == (
        f"{type(make()).__name__} when it began here",
        1,
    )
    assert notes.lines == [f"{BALL} lives as ball under 1"]
    assert at_rest(holding).broken == holding.life.quarantine_reason, "it can be handed over"


async def test_an_entity_of_which_nobody_has_heard_is_not_held_if_anything_goes_wrong(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError("no space left on device")

    stage = Stage(system)
    known = Holdings(stage.environment, Written())
    monkeypatch.setattr(stage.custody, "start", full)
    with pytest.raises(OSError, match="no space"):
        known.start(BALL, Fence(1), stage.fresh())
    assert known.get(BALL) is None


@pytest.mark.parametrize("make", [KeyboardInterrupt, lambda: BaseExceptionGroup("", [KeyboardInterrupt()])])
async def test_who_is_told_to_stop_in_between_has_the_entity_and_stops(
    system: System, monkeypatch: pytest.MonkeyPatch, make: Callable[[], BaseException]
) -> None:
    def stopped(_: object) -> None:
        raise make()

    stage, notes = Stage(system), Written()
    known = Holdings(stage.environment, notes)
    monkeypatch.setattr(stage.custody, "start", stopped)
    holding = known.begin(BALL, Fence(1), stage.fresh())
    with pytest.raises(type(make())):
        known.see_to(holding)
    assert (known.get(BALL), len(notes.lines)) == (holding, 1)


async def test_who_owns_an_entity_is_known_and_its_inputs_wait_though_something_went_wrong(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: object) -> None:
        raise OSError("no space left on device")

    stage = Stage(system)
    known = Holdings(stage.environment, Written())
    monkeypatch.setattr(stage.custody, "start", full)
    holding = known.begin(BALL, Fence(2), stage.fresh())
    given = [InputItem(source="alpha.bob", owner_rev=2, seq=1, data=b"push")]
    known.see_to(holding, given, Ownership("alpha.bob", 2))
    assert holding.life.quarantine_reason
    assert (holding.life.ownership.owner, holding.life.ownership.rev) == ("alpha.bob", 2)
    assert [item.source for item in holding.life.inbox.pending] == ["alpha.bob"]
    assert holding.life.release()
    holding.life.take_input(ADA, 1, 1, b"push")
    assert [item.source for item in holding.life.inbox.pending] == ["alpha.bob"], "its former owner plays on no more"


async def test_an_entity_has_an_actor_though_it_could_not_be_written_down_or_its_world_has_no_participants_to_name(
    system: System,
) -> None:
    class Failing(Balls):
        @property
        def participants(self) -> dict[str, Any]:
            raise RuntimeError("the engine is gone")

    class Full(Written):
        def lives(self, entity: str, kind: str, fence: Fence, since: int = 0) -> None:
            raise OSError("no space left on device")

    for stage, notes, broken in (
        (Stage(system, world=Failing()), Written(), ""),
        (Stage(system), Full(), "OSError when it began here"),
    ):
        known, attended = Holdings(stage.environment, notes), list[Any]()
        known.actor_keeper = cast(Any, SimpleNamespace(cast=attended.append))
        holding = known.start(BALL, Fence(1), replace(stage.fresh(), parts={"engine": b"\x01"}))
        assert known.get(BALL) is holding
        assert attended == [holding.life]
        assert holding.life.quarantine_reason == broken


async def test_a_full_disk_under_the_evidence_keeps_nobody_from_leaving_or_going_on(
    system: System, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage(system)
    stage.custody._note = custody_file(Path("/dev/full"))
    known = Holdings(stage.environment, Written())
    holding = known.start(BALL, Fence(1), stage.fresh())
    assert holding.life.freeze() is not None
    holding.life.thaw()
    assert not holding.life.frozen
    assert holding.life.freeze() is not None
    holding.resume(Fence(2))
    assert (holding.life.frozen, holding.fence, holding.life.quarantine_reason) == (False, Fence(2), "")
    assert "could not be written down" in caplog.text


async def test_what_an_earlier_life_had_does_not_displace_what_this_one_had_since(system: System) -> None:
    """The ledger is served again while the lease is over, and says what lived here when the process began."""
    known = held(system)
    known.remember_lived(BALL, Fence(5), 5)
    holding = known.spawn(BALL, "ball", {}, Fence(7))
    known.goes_on(BALL, 5)
    known.remember_lived(BALL, holding.fence, holding.since)
    known.drop(BALL)
    known.remember_lived(BALL, Fence(5), 5)
    assert known.lived(BALL) == Fence(7)


async def test_what_has_left_is_not_remembered_as_interrupted_but_what_was_interrupted_later_is(system: System) -> None:
    known = held(system)
    known.spawn(BALL, "ball", {}, Fence(3))
    known.remember_lived(BALL, Fence(3))
    known.leave(BALL, "alpha.s2", Fence(4))
    assert (known.lived(BALL), list(known.all_lived()), known.since(BALL)) == (None, [], 0)
    known.remember_lived(BALL, Fence(7))
    known.leave(BALL, "alpha.s2", Fence(6))
    assert known.lived(BALL) == Fence(7)


async def test_since_when_an_entity_is_here_is_known_though_it_could_not_be_written_down(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = held(system)
    known.spawn(BALL, "ball", {}, Fence(3))

    def full(*_: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(Written, "lives", full)
    known.goes_on(BALL, 2)
    assert known.since(BALL) == 2
