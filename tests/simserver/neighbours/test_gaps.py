"""Of a server that shows entities nothing is shown after something was lost that it said, or of another life of it."""

import pytest

from batonpass.authority.wire.neighbours import Ghosts
from batonpass.simserver.neighbours.ghost_streams import GhostStream
from batonpass.simserver.neighbours.ghost_table import GhostTable
from tests.simserver.neighbours.test_ghosts import shown, table

PEER = "alpha.s1"


def said(seq: int, life: int = 1) -> Ghosts:
    return Ghosts(stream=1, life=life, seq=seq, at_ms=seq, numbers=[], ticks=[], states=[])


@pytest.fixture
def there() -> GhostTable:
    """What shows a ghost of the peer, which has said one thing."""
    there = table()
    there.expect(PEER, 1, 0)
    (first,) = GhostStream(1, 1).messages([shown("alpha.a")], (), 0)
    assert (first.seq, there.take(PEER, first, 0), len(there)) == (1, True, 1)
    return there


@pytest.mark.parametrize("late", [said(3), said(7), said(1, life=2), said(2, life=2)])
def test_after_a_gap_the_peer_is_asked_anew_and_shows_nothing_meanwhile(there: GhostTable, late: Ghosts) -> None:
    assert not there.take(PEER, late, 0)
    assert len(there) == 0
    assert there.take(PEER, said(2), 0), "it is not listened to until it was asked anew"
    assert len(there) == 0


def test_what_follows_is_gone_on_with_and_what_came_before_is_passed_over(there: GhostTable) -> None:
    for seq in (2, 1, 2, 3):
        assert there.take(PEER, said(seq), 0)
    assert len(there) == 1
