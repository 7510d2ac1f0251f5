"""A divergence is reported with its first tick, entity, field path, both values, and in trace mode its first act."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.simserver.sync.lockstep.desync import MAX_DUMP_CHARS, DesyncReport, DumpRefused, dump_of, explain
from batonpass.simserver.sync.lockstep.driver import SimDriver, SimEvent
from batonpass.simserver.sync.lockstep.generator import Xoshiro128
from tests.budget import examples
from tests.simserver.sync.lockstep.bouncers import Ball, Board, Bouncers
from tests.simserver.sync.lockstep.games import RESET, SCRIPT, Crate, Yard, steps_of

TICKS = 60


def first_report(here: SimDriver, there: SimDriver, ticks: int = TICKS) -> DesyncReport | None:
    """What is reported of two games that are given the same events, as soon as their hashes differ."""
    for events in steps_of(SCRIPT, ticks):
        if here.step(events) != there.step(events):
            return explain(dumped(here), dumped(there))
    return None


def dumped(game: SimDriver, tick: int | None = None) -> str:
    dump = dump_of(game, game.tick if tick is None else tick)
    assert dump is not None
    return dump


class Diverging(Bouncers):
    """A game that does something else than the others at a tick."""

    diverging: tuple[int, Callable[["Diverging"], object]]

    def on_tick(self, tick: int) -> None:
        super().on_tick(tick)
        if tick == self.diverging[0]:
            self.diverging[1](self)


def diverging(tick: int, doing: Callable[[Diverging], object]) -> Diverging:
    game = Diverging(trace=True)
    game.diverging = (tick, doing)
    return game


def test_games_that_are_equal_raise_no_alarm() -> None:
    assert first_report(Bouncers(trace=True), Bouncers(trace=False)) is None
    assert explain(dumped(Bouncers()), dumped(Bouncers())) is None


def change_field(game: Diverging) -> None:
    game.entities(Board)[0].best = "nobody"


@settings(max_examples=examples(15))
@given(st.integers(2, TICKS - 1))
def test_a_changed_field_is_reported_with_both_values_and_the_write(tick: int) -> None:
    report = first_report(Bouncers(trace=True), diverging(tick, change_field))
    assert report is not None
    (difference,) = report.differences
    assert (report.tick, difference.entity, difference.kind, difference.path) == (tick + 1, 1, "Board", "best")
    assert (difference.left, difference.right) == (None, "nobody")
    assert report.act is not None
    _, left, right = report.act
    assert right is not None
    assert (right.what, right.of, right.value) == ("write", "Board 1.best", "nobody")
    assert right.site.startswith("test_desync.py:")
    assert right.site.endswith(" change_field")
    assert left is None or left.of != right.of


@settings(max_examples=examples(15))
@given(st.integers(2, TICKS - 1), st.integers(2, 9))
def test_a_draw_more_is_reported_with_its_index_and_call_site(tick: int, n: int) -> None:
    report = first_report(Bouncers(trace=True), diverging(tick, lambda game: game.get_random().below(n)))
    assert report is not None
    assert report.tick == tick + 1
    assert any(difference.kind == "Random" for difference in report.differences)
    assert report.act is not None
    _, _, right = report.act
    assert right is not None
    assert (right.what, right.of) == ("draw", f"below({n})")
    assert right.site.endswith("<lambda>")


def test_another_draw_at_the_same_place_is_reported_on_both_sides() -> None:
    report = first_report(
        diverging(7, lambda game: game.get_random().below(6)), diverging(7, lambda game: game.get_random().below(7))
    )
    # The generator is as far on both sides, and nothing came of the draw: there is nothing to report.
    assert report is None
    report = first_report(
        diverging(7, lambda game: game.spawn(Board, best=str(game.get_random().below(1000)))),
        diverging(7, lambda game: game.spawn(Board, best=str(game.get_random().below(2000)))),
    )
    assert report is not None
    assert report.act is not None
    index, left, right = report.act
    assert left is not None
    assert right is not None
    assert (index, left.of, right.of) == (0, "below(1000)", "below(2000)")


class ByBuildingOrder(Bouncers):
    """Goes through a map in the order in which it was built, which is not the same on both machines."""

    order: tuple[str, ...] = ("a", "b")

    def on_tick(self, tick: int) -> None:
        weights = dict.fromkeys(self.order, 2)
        if tick == 20:
            self.spawn(Board, best="".join(weights))


class ByOtherOrder(ByBuildingOrder):
    order = ("b", "a")


def test_the_order_of_a_dict_that_reaches_the_state_is_reported() -> None:
    report = first_report(ByBuildingOrder(trace=True), ByOtherOrder(trace=True))
    assert report is not None
    assert report.tick == 21
    assert "Board" in str(report)
    assert ("best", "ab", "ba") in [(one.path, one.left, one.right) for one in report.differences]


def test_a_write_around_the_driver_is_reported_with_its_field_as_soon_as_the_entity_is_written() -> None:
    here, there = Bouncers(), Bouncers()
    for events in steps_of(SCRIPT, 150):
        here.step(events)
        there.step(events)
    ball = there.entities(Ball)[0]
    ball.__dict__["bounces"] += 5
    here.step([])
    there.step([])
    report = explain(dumped(here), dumped(there))
    assert report is not None
    (difference,) = report.differences
    assert (report.tick, difference.entity, difference.path) == (151, ball.id, "bounces")
    assert difference.right == difference.left + 5
    assert report.act is None


def test_a_path_leads_into_values() -> None:
    def crated(items: Any, note: str) -> str:
        yard = Yard(lambda sim, moment, _: sim.spawn(Crate, items=items, note=note) if moment == "reset" else None)
        yard.step([RESET])
        return dumped(yard)

    report = explain(crated([1, {"a": [True, 2]}], "x"), crated([1, {"a": [1, 2, 3], "b": b"\x01"}], "x"))
    assert report is not None
    assert [(one.path, one.left, one.right) for one in report.differences] == [
        ("items[1].a[0]", True, 1),
        ("items[1].a[2]", "(missing)", 3),
        ("items[1].b", "(missing)", b"\x01"),
    ]
    assert str(report.differences[0]) == "Crate 1.items[1].a[0]: True here, 1 there"


def test_a_stream_that_gave_two_clients_other_events_is_named_before_their_states() -> None:
    here, there = Yard(), Yard()
    here.step([RESET, SimEvent(1, "go", "1", "x")])
    there.step([RESET._replace(body="other"), SimEvent(1, "go", "1", "x")])
    report = explain(dumped(here), dumped(there))
    assert report is not None
    assert str(report.differences[0]) == "Events[0][3]: 'seed' here, 'other' there"


def test_an_entity_that_only_one_side_has_is_named() -> None:
    report = first_report(Bouncers(), diverging(5, lambda game: game.spawn(Board)))
    assert report is not None
    assert str(report.differences[0]) == "Board 3: '(missing)' here, 'Board' there".replace("'(missing)'", "(missing)")
    assert ("Next", 3, 4) in [(one.kind, one.left, one.right) for one in report.differences]


def test_a_report_reads_as_sentences() -> None:
    report = first_report(Bouncers(trace=True), diverging(4, change_field))
    lines = str(report).splitlines()
    assert lines[0] == "tick 5 is the first that differs"
    assert lines[1].startswith(
        "  draw or write 0 of the tick: none here, write Board 1.best = 'nobody' at test_desync.py:"
    )
    assert lines[2] == "  Board 1.best: None here, 'nobody' there"


# Dumps


def test_the_dump_of_another_tick_than_the_first_that_differs_is_not_explained() -> None:
    here, there = Bouncers(), diverging(4, change_field)
    for events in steps_of(SCRIPT, 9):
        here.step(events)
        there.step(events)
    with pytest.raises(DumpRefused, match="dump tick 5 of both"):
        explain(dumped(here), dumped(there))
    with pytest.raises(DumpRefused, match="are of ticks 4 and 5"):
        explain(dumped(here, 4), dumped(there, 5))
    assert explain(dumped(here, 5), dumped(there, 5)) is not None


def test_a_tick_that_is_kept_no_more_has_no_dump() -> None:
    game = Bouncers(kept_ticks=3)
    for events in steps_of(SCRIPT, 9):
        game.step(events)
    assert [dump_of(game, tick) is not None for tick in (6, 7, 8, 9, 10)] == [False, True, True, True, False]


def test_a_dump_is_bounded_its_acts_are_cut_and_a_state_that_is_too_long_has_none() -> None:
    def writes(sim: Yard, moment: str, entity: Crate | None) -> None:
        if moment == "reset":
            sim.spawn(Crate)
        for n in range(1_500 if moment == "tick" and entity is not None else 0):
            entity.note = f"{n:>1000}"  # type: ignore[union-attr]

    yard = Yard(writes, trace=True)
    yard.step([RESET])
    yard.step([])
    assert MAX_DUMP_CHARS // 4 < len(dumped(yard)) <= MAX_DUMP_CHARS
    assert explain(dumped(yard), dumped(yard)) is None
    yard = Yard(lambda sim, moment, _: sim.spawn(Crate, note="x" * 800_000) if moment == "reset" else None)
    yard.step([RESET])
    with pytest.raises(DumpRefused, match="too many for a dump"):
        dump_of(yard, 1)


@pytest.mark.parametrize(
    "text", ["", "7", "{}", '{"state": "gA=="}', '{"state": "!"}', "[" * 100_000, "x" * (MAX_DUMP_CHARS + 1)]
)
def test_a_text_that_is_no_dump_is_refused(text: str) -> None:
    with pytest.raises(DumpRefused):
        explain(text, dumped(Bouncers()))


def test_the_generator_of_trace_mode_draws_the_same_numbers() -> None:
    game = Yard(trace=True)
    seen: list[list[Any]] = []

    def draw(sim: Any, moment: str, _: Any) -> None:
        if moment == "on_tick":
            drawn = sim.get_random()
            twin = Xoshiro128(drawn.state)
            for one in (drawn, twin):
                items = list(range(9))
                one.shuffle(items)
                seen.append(
                    [one.next(), one.below(7), one.between(-3, 3), one.chance(1, 2), one.uniform(), items, one.state]
                )

    game.doing = draw
    game.step([RESET])
    assert seen[0] == seen[1]
    record = game.record(1)
    assert record is not None
    assert record.acts is not None
    assert [act.of for act in record.acts] == [
        "shuffle(9)",
        "next()",
        "below(7)",
        "between(-3, 3)",
        "chance(1, 2)",
        "uniform()",
    ]
