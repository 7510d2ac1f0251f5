"""Owners of whom nothing is heard: who notices, when home is asked, and that nobody is asked about who is there."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from batonpass.authority.fence import Fence
from batonpass.authority.model.ownership import Ownership
from batonpass.authority.wire.transfer import OwnerWord
from batonpass.simserver.owners import inactivity as silence
from batonpass.simserver.owners.inactivity import FIRST_SILENCE_S, Inactivity
from tests.simserver.ports import ports_of

BALL = "alpha.ball"
ADA = "alpha.ada"


class Watch:
    """A server with one ball, and a clock that stands."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.life = SimpleNamespace(ownership=Ownership(ADA, 1), frozen=False, fence=Fence(1))
        self.told: list[OwnerWord] = []
        self.confirmed_at_s: list[float] = []
        holding = cast(Any, SimpleNamespace(id=BALL, life=self.life))
        clock = cast(Any, SimpleNamespace(monotonic_ns=lambda: int(self.now_s * 1e9)))
        self.inactivity = Inactivity(ports_of(clock=clock), [holding], self.told.append)
        self.inactivity.sweep()

    def asked(self, until_s: int, timeout_s: int = 0) -> list[int]:
        """For how long it was silent each time that home was asked until then, which answers with this timeout."""
        silent = []
        while self.now_s < until_s:
            self.now_s += 1
            for request in self.inactivity.sweep():
                assert (request.entity, request.owner_rev) == (BALL, self.life.ownership.rev)
                if request.silent_s:
                    silent.append(request.silent_s)
                else:
                    self.confirmed_at_s.append(self.now_s)
                word = OwnerWord(entity=BALL, owner=ADA, owner_rev=request.owner_rev, timeout_s=timeout_s)
                self.inactivity.answered(request, word)
        return silent


def test_home_is_asked_ever_less_often_if_nobody_minds() -> None:
    watch = Watch()
    assert watch.asked(200) == [10, 20, 40, 80, 160]
    assert len(watch.told) == 5, "whoever owns it by then"


def test_failures_row_40_with_a_timeout_home_is_asked_when_it_is_over() -> None:
    assert Watch().asked(100, timeout_s=35) == [10, 35, 70]


def test_who_is_heard_of_is_not_silent() -> None:
    watch = Watch()
    for _ in range(20):
        assert watch.asked(int(watch.now_s) + FIRST_SILENCE_S - 1) == []
        watch.inactivity.heard(ADA)
    assert watch.asked(int(watch.now_s) + 15, timeout_s=35) == [10]
    watch.inactivity.heard(ADA)
    assert watch.asked(int(watch.now_s) + 36, timeout_s=35) == [10, 35]


def test_who_owns_it_is_asked_now_and_then_though_the_one_who_is_watched_is_heard_of() -> None:
    """The word of another owner was lost: that one may be silent, and the former one be heard of for ever."""
    watch = Watch()
    while watch.now_s < 1700:
        assert watch.asked(int(watch.now_s) + 5) == []
        watch.inactivity.heard(ADA)
    assert watch.confirmed_at_s == [60, 180, 420, 900, 1500]


def test_who_owns_what_is_said_to_be_nobodys_is_asked_too() -> None:
    watch = Watch()
    watch.life.ownership = Ownership("", 2)
    assert watch.asked(200) == []
    assert watch.confirmed_at_s == [61, 181]
    watch.life.frozen = True
    assert watch.asked(900) == []
    assert watch.confirmed_at_s == [61, 181], "what is leaving is asked about where it comes to"


def test_another_owner_is_another_silence_and_nobody_is_none() -> None:
    watch = Watch()
    assert watch.asked(25) == [10, 20]
    watch.life.ownership = Ownership("alpha.bob", 2)
    assert watch.asked(36) == [10]
    watch.life.ownership = Ownership("", 3)
    assert watch.asked(99) == []
    assert watch.inactivity._heard_ns == {}, "players are forgotten who own nothing here"


def test_who_waited_while_it_stood_still_elsewhere_or_here_was_not_silent() -> None:
    """It may leave, or stand still for a recovery, and begin anew between two sweeps, with the same owner."""
    watch = Watch()
    assert watch.asked(9) == []
    watch.life.frozen = True
    assert watch.asked(30) == []
    watch.life.frozen, watch.life.fence = False, Fence(3)
    assert watch.asked(40) == []
    assert watch.asked(42) == [10]


def test_a_leave_that_is_refused_again_and_again_hides_nobodys_silence() -> None:
    watch, silent = Watch(), list[int]()
    for epoch in range(2, 9):
        watch.life.fence = Fence(epoch)
        silent += watch.asked(int(watch.now_s) + 8)
    assert silent == [10, 20, 40]


def test_what_is_asked_in_one_sweep_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silence, "MAX_ASKED", 0)
    watch = Watch()
    assert watch.asked(12) == []
    monkeypatch.setattr(silence, "MAX_ASKED", 1)
    assert watch.asked(14) == [13]
