"""What a drain moves to a server with another world goes ahead one by one, until it is seen to run there."""

from collections.abc import Collection, Sequence

from hypothesis import given
from hypothesis import strategies as st

from batonpass.authority.placement.drain_trials import TRIAL_S, DrainTrials
from batonpass.authority.placement.policy import Move, Resident

OLD, NEW, SAME = "alpha.s1", "alpha.s2", "alpha.s3"


class Drain:
    """A server that is drained onto one with another world, and one with the same; none of its reports has come yet."""

    def __init__(self) -> None:
        self.at: dict[str, str] = {}
        self.reports: dict[str, float] = {}
        self.kinds: dict[str, str] = {}
        self.groups: dict[str, str] = {}
        self.trials = DrainTrials(
            lambda entity: self.kinds.get(entity, "ball"), self.at.__getitem__, lambda name: self.reports.get(name, 0.0)
        )

    def admit(
        self, entities: Sequence[str], now_s: float, target: str = NEW, drained: Collection[str] = (OLD,)
    ) -> list[str]:
        for entity in entities:
            self.at.setdefault(entity, OLD)
        moves = [Move(entity, OLD, target) for entity in entities]
        residents = [Resident(entity, OLD, group=self.groups.get(entity, "")) for entity in entities]
        alike = {OLD, SAME}
        admitted = self.trials.admit(moves, residents, drained, lambda *both: alike.issuperset(both), now_s)
        return [move.entity for move in admitted]


def test_one_of_each_kind_goes_ahead_and_the_others_when_the_server_has_reported_since() -> None:
    drain = Drain()
    drain.kinds = {"e2": "box", "e3": "box"}
    assert drain.admit(["e0", "e1", "e2", "e3"], 1.0) == ["e0", "e2"]
    assert drain.admit(["e1", "e3"], 1.1) == [], "they are under way"
    drain.at["e0"] = NEW
    drain.reports[NEW] = 1.15
    assert drain.admit(["e1", "e3"], 1.2) == [], "it has not reported since it came"
    drain.reports[NEW] = 2.0
    assert drain.admit(["e1", "e3"], 2.1) == ["e1"], "the other kind is not there yet"
    drain.at["e2"] = NEW
    assert drain.admit(["e3"], 2.2) == []
    drain.reports[NEW] = 3.0
    assert drain.admit(["e3"], 3.1) == ["e3"]


def test_nobody_waits_where_the_world_is_the_same_or_for_what_is_of_another_instance_or_without_a_drain() -> None:
    drain = Drain()
    assert drain.admit(["e0", "e1"], 1.0, target=SAME) == ["e0", "e1"]
    drain.kinds = {"e2": "", "e3": ""}
    assert drain.admit(["e2", "e3"], 1.0) == ["e2", "e3"]
    assert drain.admit(["e4", "e5"], 1.0, drained=()) == ["e4", "e5"]


def test_another_one_goes_ahead_if_the_first_is_refused_or_does_not_arrive() -> None:
    drain = Drain()
    assert drain.admit(["e0", "e1", "e2"], 1.0) == ["e0"]
    assert drain.admit(["e0", "e1", "e2"], 1.1) == [], "it may not have heard of it"
    assert drain.admit(["e1", "e0", "e2"], 2.0) == ["e1"]
    assert drain.admit(["e2"], 2.1) == [], "that one is under way"
    assert drain.admit(["e2"], 2.1 + TRIAL_S) == ["e2"]


def test_a_group_goes_ahead_whole_whatever_kinds_are_in_it() -> None:
    drain = Drain()
    drain.kinds = {"e1": "box", "e3": "box"}
    drain.groups = {"e0": "a", "e1": "a", "e2": "b", "e3": "b"}
    assert drain.admit(["e0", "e1", "e2", "e3"], 1.0) == ["e0", "e1"]
    drain.at["e0"] = NEW
    drain.reports[NEW] = 5.0
    assert drain.admit(["e2", "e3"], 2.0) == [], "of one of its kinds nobody has arrived"


def test_the_next_drain_begins_anew() -> None:
    drain = Drain()
    assert drain.admit(["e0"], 1.0) == ["e0"]
    drain.at["e0"] = NEW
    drain.admit([], 1.1)
    drain.reports[NEW] = 2.0
    assert drain.admit(["e1", "e2"], 2.1) == ["e1", "e2"]
    drain.admit([], 3.0, drained=())
    assert drain.admit(["e3", "e4"], 4.0) == ["e3"]


@given(
    st.lists(st.sets(st.integers(0, 30), max_size=8), max_size=30), st.lists(st.booleans(), min_size=30, max_size=30)
)
def test_whatever_arrives_when_a_drain_whose_server_runs_them_never_waits_for_ever(
    rounds: list[set[int]], arrives: list[bool]
) -> None:
    drain, left = Drain(), {f"e{number}" for some in rounds for number in some}
    now_s = 1.0
    for number in range(30):
        admitted = drain.admit(sorted(left), now_s)
        for entity in admitted if arrives[number] else ():
            drain.at[entity] = NEW
            left.discard(entity)
        now_s += 1.0
        drain.reports[NEW] = now_s - 0.5
    for _ in range(200):
        for entity in drain.admit(sorted(left), now_s):
            drain.at[entity] = NEW
            left.discard(entity)
        now_s += 1.0
        drain.reports[NEW] = now_s - 0.5
    assert not left
