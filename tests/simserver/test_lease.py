"""Which lives of a server give up what they have when the log says that they are over."""

from collections import Counter
from pathlib import Path
from typing import Any, cast

import pytest

from authority.lease import LeaseTerms, Renewed
from simserver.lease import LeaseKeeper, Nonces
from tests.simserver.test_departures import TrioClock

S = 1_000_000_000


@pytest.mark.parametrize("was_granted", [True, False])
async def test_whoever_hears_that_it_is_over_gives_up_what_it_has_before_it_is_the_next_one(
    was_granted: bool, tmp_path: Path
) -> None:
    """Also if the word that granted its lease never came: it may have been given entities all the same."""
    as_whom: list[int] = []
    keeper = LeaseKeeper(
        "alpha.s1",
        Nonces(tmp_path / "lease.json"),
        cast(Any, None),
        TrioClock(),
        Counter(),
        lambda: as_whom.append(keeper.incarnation),
    )
    keeper._begin_as(2)
    if was_granted:
        keeper.holder.handle(Renewed(0, LeaseTerms(2 * S)), 1)
    keeper._is_over(3, 5 * S)
    if was_granted:
        # It claims the next one when it asks again.
        keeper._next_incarnation()
    assert as_whom == [2]
    assert keeper.incarnation > 2
