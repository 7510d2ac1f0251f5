"""Word of another owner that comes too late: it goes after the entity, never back, and not for ever."""

from collections import Counter
from typing import Any

import pytest

from batonpass.authority.fence import Fence
from batonpass.authority.model.ownership import Ownership
from batonpass.authority.wire.transfer import Message, OwnerHint
from batonpass.simserver.entity.table import Holdings, Tombstone
from batonpass.simserver.owners.lookup import AGAIN_NS, MAX_HINTS, MAX_SENT_ON, OwnerHints
from tests.simserver.entity.test_table import Written
from tests.simserver.stage import ADA, BALL, Stage
from tests.simserver.transfer.source.test_departures import THERE

pytestmark = pytest.mark.usefixtures("either_kind")

BOB = "alpha.bob"


class Here:
    """One server that hears of owners."""

    def __init__(self) -> None:
        nobody: Any = None
        self.stage = Stage(nobody)
        self.sent: list[tuple[str, Message]] = []
        self.counts: Counter[str] = Counter()
        self.holdings = Holdings(self.stage.environment, Written())
        me: Any = self
        self.now_ns = 0
        self.hints = OwnerHints(self.holdings, me, me, self.counts)

    def monotonic_ns(self) -> int:
        return self.now_ns

    def send(self, message: Message, _trace: Any, to: str, **_: Any) -> bool:
        self.sent.append((to, message))
        return True

    def came(self, epoch: int, forwards: int = 1, owner_rev: int = 2) -> list[tuple[str, Message]]:
        self.sent.clear()
        self.hints.came(OwnerHint(entity=BALL, owner_rev=owner_rev, epoch=epoch, sub=0, forwards=forwards))
        return list(self.sent)


def test_failures_row_6_a_hint_goes_only_towards_a_higher_fence_and_to_four_servers() -> None:
    here = Here()
    here.holdings.remember(BALL, Tombstone(THERE, Fence(5)))
    for forwards in range(1, MAX_HINTS):
        onward = OwnerHint(entity=BALL, owner_rev=2, epoch=5, sub=0, forwards=forwards + 1)
        assert here.came(4, forwards) == [(THERE, onward)]
        here.now_ns += AGAIN_NS
    assert here.came(4, MAX_HINTS) == []
    assert here.came(5) == [], "who sends it knows as much"
    assert here.came(6) == [], "or more"
    assert here.counts["owner_not_here"] == 3


def test_of_what_was_never_here_or_was_deleted_nobody_is_told() -> None:
    here = Here()
    here.hints.missed(BALL, 2)
    here.holdings.remember(BALL, Tombstone("", Fence(5)))
    here.hints.missed(BALL, 2)
    assert (here.sent, here.counts["owner_not_here"]) == ([], 2)


def test_who_has_it_asks_home_unless_it_knows() -> None:
    here = Here()
    life = here.holdings.spawn(BALL, "ball", {}, Fence(3), Ownership(ADA, 2)).life
    here.came(3, owner_rev=2)
    assert here.stage.unheard == []
    here.came(3, owner_rev=3)
    assert here.stage.unheard == [BALL]
    life.freeze()
    life.owned(Ownership(BOB, 3))
    here.came(3, owner_rev=3)
    assert here.stage.unheard == [BALL], "it changes hands as it goes on"
    assert (life.ownership, life.acceptance.unsaid_owner_rev) == (Ownership(ADA, 2), 3)


def test_a_hint_that_is_repeated_is_sent_on_once_in_a_second() -> None:
    here = Here()
    here.holdings.remember(BALL, Tombstone(THERE, Fence(5)))
    assert [len(here.came(4)) for _ in range(3)] == [1, 0, 0]
    assert here.counts["owner_hint_again"] == 2
    assert len(here.came(4, owner_rev=3)) == 1, "another revision is news"
    here.now_ns += AGAIN_NS
    assert len(here.came(4)) == 1, "the first may have been lost"


def test_of_hints_that_were_sent_on_a_bounded_number_is_remembered() -> None:
    here = Here()
    here.holdings.remember(BALL, Tombstone(THERE, Fence(5)))
    for owner_rev in range(MAX_SENT_ON + 1):
        here.came(4, owner_rev=owner_rev)
    assert len(here.hints._sent_on_ns) == MAX_SENT_ON
    assert len(here.came(4, owner_rev=0)) == 1, "the oldest was forgotten"
