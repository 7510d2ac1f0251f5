"""Offered states are held within a bound, and whoever takes up most of it pays for it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.authority.fence import Fence
from batonpass.authority.limits import MAX_STATE_BYTES
from batonpass.authority.machines import capacity as staging
from batonpass.authority.machines.capacity import OFFER_BYTES, StagingQuota
from batonpass.authority.machines.target import Incoming, Offer


def offer(transfer_id: str, source: str, size_bytes: int) -> Offer:
    return Offer(transfer_id, Fence(1), "0" * 64, "ball", 1, bytes(size_bytes), 0, source)


def test_the_largest_state_always_fits() -> None:
    with pytest.raises(ValueError, match="the largest would not fit"):
        StagingQuota(MAX_STATE_BYTES)


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.lists(st.tuples(st.integers(0, 9), st.integers(0, 400)), max_size=4)),
        max_size=40,
    )
)
def test_what_is_held_is_bounded_and_only_the_greediest_loses_its_oldest(
    steps: list[tuple[int, list[tuple[int, int]]]],
) -> None:
    """Held against a twin that keeps a plain list and counts anew each time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(staging, "MAX_STATE_BYTES", 400)
        ledger = StagingQuota(2 * OFFER_BYTES + 1000)
    held: list[tuple[str, Offer]] = []
    for entity_number, offers in steps:
        entity = f"alpha.e{entity_number}"
        # A transfer has one source.
        now = [offer(f"transfer-{number}", f"alpha.s{number % 3}", size) for number, size in dict(offers).items()]
        held = [(other, one) for other, one in held if other != entity] + [(entity, one) for one in now]
        dropped = ledger.settle(entity, now)
        for pair in dropped:
            sizes: dict[str, int] = {}
            for _, one in held:
                sizes[one.source] = sizes.get(one.source, 0) + len(one.state) + OFFER_BYTES
            gone = next(item for item in held if (item[0], item[1].transfer_id) == pair)
            assert sizes[gone[1].source] == max(sizes.values())
            assert gone == next(item for item in held if item[1].source == gone[1].source)
            held.remove(gone)
        assert ledger.held_bytes == sum(len(one.state) + OFFER_BYTES for _, one in held)
        assert ledger.held_bytes <= 2 * OFFER_BYTES + 1000


def test_who_offers_too_much_pushes_out_nobody_else() -> None:
    ledger = StagingQuota()
    assert not ledger.settle("alpha.honest", [offer("transfer-1", "alpha.s1", 10_000_000)])
    half = bytes(MAX_STATE_BYTES // 2)
    dropped = []
    for number in range(30):
        greedy = Offer("transfer-2", Fence(1), "0" * 64, "ball", 1, half, 0, "beta.s1")
        dropped += ledger.settle(f"beta.e{number}", [greedy])
    assert len(dropped) > 20
    assert not any(entity == "alpha.honest" for entity, _ in dropped)


def test_an_offer_that_was_let_go_is_taken_again() -> None:
    machine = Incoming()
    machine.offered(offer("transfer-1", "alpha.s1", 10))
    machine.forget_offer("transfer-1")
    machine.forget_offer("transfer-1")
    assert machine.staged == 0
    machine.offered(offer("transfer-1", "alpha.s1", 10))
    assert [one.transfer_id for one in machine.offers] == ["transfer-1"]
