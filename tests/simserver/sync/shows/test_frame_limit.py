"""Which frames a controller may send: a search through crashes finds no number with two contents, and does without."""

import random
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.simserver.sync.shows.frame_limit import MAX_ASKED, FrameLimit
from tests.budget import examples

LEAD: Final = 8


class WhenApplied(FrameLimit):
    """The weaker rule: a limit counts as soon as this server has it, whatever its copies have."""

    def asked(self, limit: int, number: int) -> None:
        super().asked(limit, number)
        self.kept(number)


class Show:
    """A show whose controllers send frames, and die. A copy is kept some time after it was made, or never."""

    def __init__(self, rule: type[FrameLimit]) -> None:
        self.rule = rule
        self.sent: dict[int, int] = {}
        self.twice: list[int] = []
        self.copy = 0
        self.came_with: int | None = None
        self.life = 0
        self.begin(FrameLimit(0, 0, LEAD).first)

    def begin(self, limit: int, *, allowed: int = 0) -> None:
        self.life += 1
        self.limit = self.rule(limit, allowed, LEAD)
        self.next = limit
        self.number = 0
        self.under_way: list[tuple[int, int]] = []

    def sends(self) -> None:
        if (wanted := self.limit.wanted(self.next)) is not None:
            self.number += 1
            self.limit.asked(wanted, self.number)
            self.under_way.append((self.number, wanted))
        if self.next < self.limit.allowed:
            if self.next in self.sent:
                self.twice.append(self.next)
            self.sent[self.next] = self.life
            self.next += 1

    def keeps(self) -> None:
        if self.under_way:
            number, limit = self.under_way.pop(0)
            self.copy, self.came_with = max(self.copy, limit), None
            self.limit.kept(number)

    def dies(self) -> None:
        """As long as there is no later copy, the state that came with a hand-over is what a failover begins with."""
        if self.came_with is None:
            self.begin(self.copy)
        else:
            self.begin(self.came_with)

    def is_handed_over(self) -> None:
        self.came_with = self.next
        self.begin(self.next)


class WithWhatWasAllowed(Show):
    """The weaker rule: a hand-over brings along below which limit frames may be sent."""

    def is_handed_over(self) -> None:
        self.came_with, allowed = self.next, self.limit.allowed
        self.begin(self.next, allowed=allowed)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.sampled_from(["sends", "sends", "sends", "keeps", "dies", "is_handed_over"]), max_size=80))
def test_no_number_is_sent_twice_whenever_controllers_die(steps: list[str]) -> None:
    show = Show(FrameLimit)
    for step in steps:
        getattr(show, step)()
    assert show.twice == []


def test_without_the_rule_a_number_gets_two_contents() -> None:
    dice, show = random.Random(1), Show(WhenApplied)
    for _ in range(200):
        getattr(show, dice.choice(["sends", "sends", "sends", "keeps", "dies"]))()
    assert show.twice


def test_with_the_limit_of_before_a_hand_over_a_number_gets_two_contents() -> None:
    dice, show = random.Random(1), WithWhatWasAllowed(FrameLimit)
    for _ in range(200):
        getattr(show, dice.choice(["sends", "sends", "sends", "keeps", "dies", "is_handed_over"]))()
    assert show.twice


def test_a_hand_over_passes_over_no_number() -> None:
    show = Show(FrameLimit)
    for _ in range(5):
        show.sends()
        show.keeps()
        show.sends()
        show.is_handed_over()
    assert sorted(show.sent) == list(range(len(show.sent)))
    assert len(show.sent) == 5


@pytest.mark.parametrize("kept_after", [1, 3])
def test_a_controller_whose_copies_are_kept_in_time_never_waits(kept_after: int) -> None:
    show = Show(FrameLimit)
    for _ in range(2 * kept_after):
        show.sends()
        show.keeps()
    for _ in range(50):
        before = show.next
        for _ in range(kept_after):
            show.sends()
        show.keeps()
        assert show.next == before + kept_after


def test_a_controller_whose_copies_are_not_kept_stops_at_the_limit_that_is() -> None:
    show = Show(FrameLimit)
    show.sends()
    show.keeps()
    for _ in range(100):
        show.sends()
    assert show.next == show.limit.allowed == LEAD


def test_no_more_limits_are_asked_for_than_are_remembered() -> None:
    limit = FrameLimit(0, 0, 2)
    asked = 0
    for number in range(1, 1000):
        if (wanted := limit.wanted(number * 10)) is not None:
            limit.asked(wanted, number)
            asked += 1
    assert asked == MAX_ASKED
