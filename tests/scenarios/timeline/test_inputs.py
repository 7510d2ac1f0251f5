"""What anybody may throw or kick: nothing that would fail when it is executed; and what a peer promises."""

from collections.abc import Callable

import pytest

from batonpass.scenarios.timeline.circles import CIRCLES, FASTEST, Rebound, Throw, is_throw
from batonpass.scenarios.timeline.collisions import Kick
from batonpass.scenarios.timeline.peer_process import is_kick, next_promise
from batonpass.simserver.sync.timeline.events import TimelineEvent


@pytest.mark.parametrize(("allows", "kind"), [(is_throw, Throw), (is_kick, Kick)])
def test_what_may_be_given_is_of_one_kind_and_within_bounds(
    allows: Callable[[str, TimelineEvent], bool], kind: Callable[[object, object], TimelineEvent]
) -> None:
    assert allows("7", kind(0, (1, -1)))
    for number in (-1, 60, True, "1", None, 0.5):
        assert not allows("7", kind(number, (1, 1)))
    for velocity in ((1,), (1, 2, 3), (1, "2"), (1, True), (1, FASTEST + 1), (-FASTEST - 1, 0), 5, None):
        assert not allows("7", kind(0, velocity))
    assert not allows("7", Rebound(CIRCLES - 1))


def test_a_peer_who_was_taken_for_gone_promises_no_less_than_before() -> None:
    assert next_promise(70, [], 10, 60) == 70
    assert next_promise(70, [50], 10, 20) == 51
    # He promised before he had heard when play begins.
    assert next_promise(70, [50], 10, 60) == 60
    assert next_promise(70, [50], 65, 60) == 65
