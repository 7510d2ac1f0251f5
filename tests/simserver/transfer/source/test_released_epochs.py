"""Which stays ended here by a hand-over: the last of each entity, and of so many entities."""

from batonpass.authority.wire.queries import MAX_WENT_ON
from batonpass.simserver.transfer.source.order_history import MAX_REMEMBERED, MAX_STAYS, ReleasedEpochs

BALL = "alpha.ball"


def had(handed_on: ReleasedEpochs, entity: str, up_to: int) -> list[int]:
    return [epoch for epoch in range(up_to) if handed_on.has(entity, epoch)]


def test_each_stay_is_remembered_however_often_it_was_passed_on_under_its_epoch() -> None:
    handed_on = ReleasedEpochs()
    assert had(handed_on, BALL, 10) == []
    for epoch in (2, 2, 5):
        handed_on.note(BALL, epoch)
    assert had(handed_on, BALL, 10) == [2, 5]


def test_an_epoch_passed_on_under_often_takes_the_place_of_one() -> None:
    handed_on = ReleasedEpochs()
    handed_on.note(BALL, 1)
    for _time in range(2 * MAX_STAYS):
        handed_on.note(BALL, 2)
    assert had(handed_on, BALL, 10) == [1, 2]


def test_the_last_ones_are_remembered() -> None:
    handed_on = ReleasedEpochs()
    for epoch in range(1, 300):
        handed_on.note(BALL, epoch)
    assert had(handed_on, BALL, 400) == list(range(300 - MAX_STAYS, 300))


def test_of_those_before_an_epoch_the_last_ones_are_named() -> None:
    handed_on = ReleasedEpochs()
    for epoch in range(1, 100, 2):
        handed_on.note(BALL, epoch)
    assert handed_on.before(BALL, 6) == [1, 3, 5]
    assert handed_on.before(BALL, 5) == [1, 3]
    assert handed_on.before(BALL, 200) == list(range(1, 100, 2))[-MAX_WENT_ON:]
    assert handed_on.before("alpha.other", 6) == []


def test_of_what_was_not_this_servers_nothing_is_remembered() -> None:
    handed_on = ReleasedEpochs()
    for entity in (BALL, "alpha.other"):
        handed_on.note(entity, 1)
    handed_on.forget(BALL)
    handed_on.forget("alpha.third")
    assert had(handed_on, BALL, 5) == []
    assert had(handed_on, "alpha.other", 5) == [1]


def test_whoever_left_longest_ago_is_forgotten_first() -> None:
    handed_on = ReleasedEpochs()
    for number in range(MAX_REMEMBERED):
        handed_on.note(f"alpha.n{number}", 1)
    handed_on.note("alpha.n0", 2)
    handed_on.note(BALL, 1)
    assert had(handed_on, "alpha.n0", 5) == [1, 2]
    assert had(handed_on, "alpha.n1", 5) == []
    assert had(handed_on, BALL, 5) == [1]
