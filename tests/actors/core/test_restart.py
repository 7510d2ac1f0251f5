"""The pure decisions of supervisors, against OTP's table and against models too dumb to be wrong."""

from collections.abc import Hashable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.actors.core.restart import ExitKind, Restart, RestartWindow, Strategy, exit_kind, plan, should_restart

OTP_TABLE = """
permanent  normal          restarted
permanent  shutdown        restarted
permanent  {shutdown,x}    restarted
permanent  boom            restarted
transient  normal          -
transient  shutdown        -
transient  {shutdown,x}    -
transient  boom            restarted
temporary  normal          -
temporary  shutdown        -
temporary  {shutdown,x}    -
temporary  boom            -
"""
REASONS: dict[str, object] = {
    "normal": "normal",
    "shutdown": "shutdown",
    "{shutdown,x}": ("shutdown", "x"),
    "boom": "boom",
}


@pytest.mark.parametrize("line", OTP_TABLE.strip().splitlines())
def test_restart_by_exit_reason(line: str) -> None:
    restart, reason, outcome = line.split()
    assert should_restart(Restart(restart), REASONS[reason]) is (outcome == "restarted")


class EqualToEverything:
    """What a reason may be at worst: numpy arrays and mocks are not far from it."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return hash("normal")


@pytest.mark.parametrize(
    "reason",
    [
        ValueError("boom"),
        "killed",
        "noproc",
        None,
        0,
        ("shutdown",),
        ("shutdown", 1, 2),
        ("normal", 1),
        EqualToEverything(),
    ],
)
def test_everything_else_is_a_crash(reason: object) -> None:
    assert exit_kind(reason) is ExitKind.CRASH


# plans

settings = st.sampled_from(Restart)
families = st.lists(settings, min_size=1, max_size=8).map(lambda kinds: list(enumerate(kinds)))


@pytest.mark.parametrize(
    ("strategy", "stop", "start"),
    [
        (Strategy.ONE_FOR_ONE, "", "b"),
        (Strategy.ONE_FOR_ALL, "ca", "abc"),
        (Strategy.REST_FOR_ONE, "c", "bc"),
    ],
)
def test_b_of_a_b_c_crashes(strategy: Strategy, stop: str, start: str) -> None:
    decided = plan(strategy, [(child, Restart.PERMANENT) for child in "abc"], "b")
    assert ("".join(map(str, decided.stop)), "".join(map(str, decided.start))) == (stop, start)


def test_one_for_all_terminates_a_temporary_sibling_and_does_not_restart_it() -> None:
    children: list[tuple[Hashable, Restart]] = [("a", Restart.TEMPORARY), ("b", Restart.PERMANENT)]
    decided = plan(Strategy.ONE_FOR_ALL, children, "b")
    assert (decided.stop, decided.start) == (("a",), ("b",))


@given(families, st.sampled_from(Strategy), st.data())
def test_every_plan_restarts_exactly_whom_it_should(
    family: list[tuple[Hashable, Restart]], strategy: Strategy, data: st.DataObject
) -> None:
    victim, _ = data.draw(st.sampled_from(family))
    decided = plan(strategy, family, victim)
    for position, (child, restart) in enumerate(family):
        in_group = (
            child == victim
            or strategy is Strategy.ONE_FOR_ALL
            or (strategy is Strategy.REST_FOR_ONE and position > family.index((victim, dict(family)[victim])))
        )
        assert (child in decided.stop) == (in_group and child != victim)
        assert (child in decided.start) == (in_group and (restart is not Restart.TEMPORARY or child == victim))
    order = [child for child, _ in family]
    assert list(decided.start) == sorted(decided.start, key=order.index), "start in order"
    assert list(decided.stop) == sorted(decided.stop, key=order.index, reverse=True), "stop in reverse"


def test_a_plan_for_a_stranger_is_an_error() -> None:
    with pytest.raises(ValueError, match="not in list"):
        plan(Strategy.ONE_FOR_ALL, [("a", Restart.PERMANENT)], "z")


# the window


class DumbWindow:
    """Remembers every restart there ever was, and counts again each time."""

    def __init__(self, max_restarts: int, window_s: float) -> None:
        self.max_restarts, self.window_s, self.all_s = max_restarts, window_s, list[float]()

    def allows_restart(self, now_s: float) -> bool:
        self.all_s.append(now_s)
        return sum(at_s >= now_s - self.window_s for at_s in self.all_s) <= self.max_restarts


@given(
    max_restarts=st.integers(0, 5),
    window_s=st.sampled_from([0.5, 1.0, 5.0]),
    gaps_s=st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0, 4.75, 5.0, 60.0]), max_size=40),
)
def test_the_window_counts_as_the_dumb_one_does(max_restarts: int, window_s: float, gaps_s: list[float]) -> None:
    window, dumb = RestartWindow(max_restarts, window_s), DumbWindow(max_restarts, window_s)
    now_s = 1000.0
    for gap_s in gaps_s:
        now_s += gap_s
        assert window.allows_restart(now_s) == dumb.allows_restart(now_s)


def test_the_memory_of_the_window_is_bounded() -> None:
    window = RestartWindow(3, 5.0)
    for number in range(1000):
        window.allows_restart(number / 1000)
    assert len(window._at_s) == 4


@pytest.mark.parametrize(("max_restarts", "window_s"), [(-1, 5.0), (3, 0.0), (3, -1.0), (3, float("nan"))])
def test_nonsensical_windows_are_refused(max_restarts: int, window_s: float) -> None:
    with pytest.raises(ValueError, match="must be"):
        RestartWindow(max_restarts, window_s)
