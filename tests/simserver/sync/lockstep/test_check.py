"""Check mode finds on one machine what would make several differ, and says where."""

import gc
import math
import operator
import os
import random
import secrets
import time
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime
from types import FunctionType
from typing import Any

import pytest

from batonpass.simserver.sync.lockstep.check import check
from batonpass.simserver.sync.lockstep.driver import SimDriver
from batonpass.simserver.sync.lockstep.rules import NotDeterministic, only_exact
from tests.simserver.sync.lockstep.bouncers import Board, Bouncers
from tests.simserver.sync.lockstep.games import RESET, SCRIPT, Yard, steps_of


def test_a_game_that_keeps_all_its_state_in_entities_passes() -> None:
    assert check(Bouncers, steps_of(SCRIPT, 40)) is None


class Remembering(Bouncers):
    """Counts in an object that no snapshot has."""

    def __init__(self, **options: Any) -> None:
        self.counted = [0]
        super().__init__(**options)

    def on_tick(self, tick: int) -> None:
        self.counted[0] += 1
        if self.counted[0] == 8:
            self.entities(Board)[0].best = "8"


def test_state_outside_of_entities_is_found_with_the_field_that_it_reaches() -> None:
    report = check(Remembering, steps_of(SCRIPT, 40))
    assert report is not None
    assert report.tick <= 15
    assert str(report.differences[0]).startswith("Board 1.best: ")
    assert report.act is not None


POWER = 0.5


def helper(x: float) -> float:
    return float(x**POWER)


def walk() -> list[str]:
    return [each + each for each in {"a", "b"}]  # noqa: PLC0208


BEST = 0


def remember() -> None:
    global BEST  # noqa: PLW0603
    BEST += 1


class Later(datetime):
    """A class of the game's own that reads the clock."""


@pytest.mark.parametrize(
    ("doing", "said"),
    [
        (lambda: math.sin(1.0), r"math\.sin in a simulation: .* use lockstep.turns"),
        (lambda: math.pow(2.0, 0.5), r"math\.pow"),
        (lambda: helper(2.0), r"test_check\.py:\d+ helper: \*\* in a simulation: .* multiply"),
        (random.Random(1).random, r"random\.random"),
        (time.monotonic, r"time\.monotonic"),
        (lambda: pow(2.0, POWER), r"pow\(…\) in a simulation: .* multiply"),
        (lambda: sum([0.1] * 10), r"sum\(…\) in a simulation: .* in a loop"),
        (lambda: math.fsum([0.1] * 10), r"math\.fsum"),
        (datetime.now, r"datetime\.now in a simulation: .* use the tick"),  # noqa: TID251 — it is refused
        (lambda: datetime.now(UTC), r"datetime\.now"),  # noqa: TID251 — it is refused
        (datetime.utcnow, r"datetime\.utcnow"),
        (date.today, r"date\S*\.today"),
        (Later.today, r"datetime\.today"),
        (lambda: os.urandom(4), r"os\.urandom in a simulation: .* use get_random"),
        (lambda: secrets.token_hex(4), r"(secrets|os|random)\.\w+ in a simulation: .* use get_random"),
        (lambda: secrets.randbelow(4), r"(secrets|os|random)\.\w+ in a simulation: .* use get_random"),
        (uuid.uuid4, r"uuid\.uuid4 in a simulation: .* use get_random"),
        (uuid.uuid1, r"uuid\.uuid1 in a simulation"),
        (lambda: hash("a"), r"hash\(…\)"),
        (lambda: id(1), r"id\(…\)"),
        (lambda: list({POWER, 1.0}), r"a set .* no order"),
        (lambda: {x + x for x in "ab"}, r"a set"),
        (walk, r"a set .* no order"),
        (lambda: "x".__hash__() + 1, r"__hash__ in a simulation"),
        (lambda: POWER.__pow__(2.0), r"__pow__ in a simulation"),
        (lambda: operator.pow(POWER, 3), r"operator\.pow in a simulation"),
        (lambda: Bouncers().__dict__.update(score=1), r"__dict__ in a simulation: .* no field"),
        (remember, r"writing the global BEST in a simulation: it is not saved"),
        (lambda: sorted(set("ab")), r"set\(…\)"),
    ],
)
def test_what_machines_do_not_agree_on_is_refused_with_its_place(doing: Callable[[], object], said: str) -> None:
    with pytest.raises(NotDeterministic, match=said):
        check(lambda **options: Yard(lambda sim, *_: doing(), **options), [[RESET]])


def test_a_set_that_is_only_looked_into_is_as_good_as_a_tuple() -> None:
    assert refused_by(lambda: "a" in {"a", "b"}) == ""


def test_a_game_is_looked_at_whatever_its_module_is_called() -> None:
    doing = FunctionType(walk.__code__, {"__name__": "typing_race"})
    assert "a set" in refused_by(doing)


def refused_by(doing: Callable[[], object]) -> str:
    with only_exact():
        try:
            doing()
        except NotDeterministic as error:
            return str(error)
    return ""


def exact() -> object:
    return math.sqrt(2.0), math.floor(0.5), math.isqrt(9), 1.5 * 2.0 / 3.0 - 1.0, "b" in {"a", "b"}, sorted({"a": 1})


def test_what_machines_agree_on_is_not_refused() -> None:
    def make(**options: Any) -> SimDriver:
        return Yard(lambda *_: exact(), **options)

    assert check(make, [[RESET], []]) is None


def test_what_is_told_of_a_collection_of_garbage_is_not_the_simulation() -> None:
    def timed(*_: object) -> None:
        time.perf_counter()

    def make(**options: Any) -> SimDriver:
        return Yard(lambda *_: [[] for _ in range(100)], **options)

    thresholds = gc.get_threshold()
    gc.callbacks.append(timed)
    try:
        gc.set_threshold(1)
        assert check(make, [[RESET], []]) is None
        assert gc.isenabled()
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(timed)
