"""Which stays ended here by a hand-over: the last of each entity, and of so many entities."""

from authority.recovery_messages import MAX_HANDED_ON
from simserver.handed_on import MAX_REMEMBERED, HandedOn

BALL = "alpha.ball"


def test_each_epoch_is_remembered_once_however_often_it_was_passed_on_under_it() -> None:
    handed_on = HandedOn()
    assert handed_on.of(BALL) == []
    for epoch in (2, 2, 5):
        handed_on.note(BALL, epoch)
    assert handed_on.of(BALL) == [2, 5]


def test_the_last_ones_are_remembered() -> None:
    handed_on = HandedOn()
    for epoch in range(1, 100):
        handed_on.note(BALL, epoch)
    assert handed_on.of(BALL) == list(range(100 - MAX_HANDED_ON, 100))


def test_whoever_left_longest_ago_is_forgotten_first() -> None:
    handed_on = HandedOn()
    for number in range(MAX_REMEMBERED):
        handed_on.note(f"alpha.n{number}", 1)
    handed_on.note("alpha.n0", 2)
    handed_on.note(BALL, 1)
    assert handed_on.of("alpha.n0") == [1, 2]
    assert handed_on.of("alpha.n1") == []
    assert handed_on.of(BALL) == [1]
