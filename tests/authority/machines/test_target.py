"""The new authority's machine: nothing is simulated without leave, and only from the state that the leave names."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.authority.fence import MAX_EPOCH, Fence
from batonpass.authority.machines.target import (
    MAX_OFFERS,
    ActivateOffer,
    AnswerAgain,
    AwaitOtherHalf,
    Drop,
    Effect,
    Incoming,
    Offer,
    Permission,
)


def offer(transfer: str = "t1", fence: Fence = Fence(1), state_hash: str = "h1") -> Offer:  # noqa: B008 — immutable
    return Offer(transfer, fence, state_hash, "ball", 7, b"state", 0)


def permission(transfer: str = "t1", fence: Fence = Fence(2), state_hash: str = "h1") -> Permission:  # noqa: B008
    return Permission(transfer, fence, state_hash, "alpha.s1")


def test_a_state_alone_waits_for_leave() -> None:
    machine = Incoming()
    assert not machine.expecting
    assert machine.offered(offer()) == AwaitOtherHalf()
    assert (machine.staged, machine.expecting) == (1, True)


def test_leave_alone_waits_for_the_state() -> None:
    machine = Incoming()
    assert machine.permitted(permission()) == AwaitOtherHalf()
    assert (machine.staged, machine.expecting) == (0, True)


def test_both_together_in_either_order_activate_once() -> None:
    for order in permutations(("offer", "permission")):
        machine = Incoming()
        effects = [machine.offered(offer()) if half == "offer" else machine.permitted(permission()) for half in order]
        assert effects == [AwaitOtherHalf(), ActivateOffer(offer(), permission())]
        assert machine.seen == Fence(2)
        assert (machine.staged, machine.expecting) == (0, False)


def test_a_state_that_leave_names_is_not_of_the_past_whatever_was_heard_since_it_was_frozen() -> None:
    """A server that was asked whether it holds a delegated entity takes no pass of that epoch any more."""
    machine = Incoming()
    machine.offered(offer())
    machine.fence_raised(Fence(1, MAX_EPOCH))
    assert machine.offered(offer()) == Drop("stale_state")
    assert machine.permitted(permission()) == AwaitOtherHalf()
    assert machine.offered(offer("t2")) == Drop("stale_state")
    assert machine.offered(offer()) == ActivateOffer(offer(), permission())


def active() -> Incoming:
    machine = Incoming()
    machine.offered(offer())
    machine.permitted(permission())
    return machine


def test_leave_that_waits_when_the_lease_is_over_is_nothing_to_the_next_life() -> None:
    machine = Incoming()
    machine.permitted(permission())
    machine.step_down()
    assert machine.offered(offer()) == AwaitOtherHalf()
    assert machine.permitted(permission(fence=Fence(4))) == ActivateOffer(offer(), permission(fence=Fence(4)))


def test_a_repeated_leave_is_answered_and_nothing_else() -> None:
    machine = active()
    assert [machine.permitted(permission()) for _ in range(3)] == [AnswerAgain(permission())] * 3


def test_a_repeated_state_is_of_the_past() -> None:
    assert active().offered(offer()) == Drop("stale_state")


def test_leave_under_a_lower_fence_than_seen_is_answered_because_its_holder_was_active() -> None:
    machine = Incoming(seen=Fence(5))
    assert machine.permitted(permission()) == AnswerAgain(permission())
    assert machine.seen == Fence(5)


def test_leave_under_the_fence_seen_that_was_not_acted_on_is_dropped() -> None:
    assert Incoming(seen=Fence(2)).permitted(permission()) == Drop("stale_certificate")


def test_another_leave_under_the_same_fence_is_dropped() -> None:
    assert active().permitted(permission("t2")) == Drop("stale_certificate")


def test_an_older_leave_does_not_push_out_a_newer_one_that_waits() -> None:
    machine = Incoming()
    assert machine.permitted(permission("t2", Fence(4))) == AwaitOtherHalf()
    assert machine.permitted(permission("t1", Fence(2))) == Drop("stale_certificate")
    assert machine.offered(offer("t2", Fence(3))) == ActivateOffer(offer("t2", Fence(3)), permission("t2", Fence(4)))


def test_a_newer_leave_takes_the_place_of_an_older_one_that_waits() -> None:
    machine = Incoming()
    machine.permitted(permission("t1", Fence(2)))
    machine.permitted(permission("t2", Fence(4)))
    assert machine.offered(offer("t1")) == AwaitOtherHalf()
    assert isinstance(machine.offered(offer("t2", Fence(3))), ActivateOffer)


def test_a_state_that_leave_does_not_name_is_thrown_away_and_the_right_one_still_taken() -> None:
    machine = Incoming()
    machine.permitted(permission())
    assert machine.offered(offer(state_hash="other")) == Drop("wrong_state")
    assert machine.staged == 0
    assert machine.offered(offer()) == ActivateOffer(offer(), permission())


def test_the_newest_state_of_a_transfer_counts() -> None:
    machine = Incoming()
    machine.offered(offer(state_hash="first try"))
    machine.offered(offer())
    assert machine.staged == 1
    assert isinstance(machine.permitted(permission()), ActivateOffer)


def test_states_are_staged_a_few_at_a_time_and_the_oldest_goes_first() -> None:
    machine = Incoming()
    for number in range(MAX_OFFERS + 1):
        machine.offered(offer(f"t{number}"))
    assert machine.staged == MAX_OFFERS
    assert machine.permitted(permission("t0")) == AwaitOtherHalf(), "the oldest was pushed out; it will be sent again"
    assert isinstance(machine.offered(offer("t0")), ActivateOffer)


def test_the_same_transfer_id_may_come_again_under_a_higher_fence() -> None:
    machine = active()
    machine.fence_raised(Fence(3))
    again, leave = offer(fence=Fence(3), state_hash="h2"), permission(fence=Fence(4), state_hash="h2")
    assert machine.offered(again) == AwaitOtherHalf()
    assert machine.permitted(leave) == ActivateOffer(again, leave)


def test_what_this_server_learns_elsewhere_puts_an_end_to_older_offers_and_leave() -> None:
    machine = Incoming()
    machine.offered(offer("t1", Fence(1)))
    machine.offered(offer("t3", Fence(3)))
    machine.permitted(permission("t2", Fence(2)))
    machine.fence_raised(Fence(3))
    assert (machine.seen, machine.staged) == (Fence(3), 1)
    assert machine.offered(offer("t2", Fence(1))) == Drop("stale_state")
    assert isinstance(machine.permitted(permission("t3", Fence(4))), ActivateOffer)


def test_leave_that_waits_survives_a_fence_below_it() -> None:
    machine = Incoming()
    machine.permitted(permission("t2", Fence(4)))
    machine.fence_raised(Fence(3))
    assert isinstance(machine.offered(offer("t2", Fence(3))), ActivateOffer)


def test_a_fence_never_goes_down() -> None:
    machine = Incoming(seen=Fence(5))
    machine.fence_raised(Fence(4))
    assert machine.seen == Fence(5)


FENCES = st.builds(Fence, st.integers(0, 3), st.integers(0, 1))
OFFERS = st.builds(offer, st.sampled_from("abc"), FENCES, st.sampled_from("xy"))
LEAVES = st.builds(permission, st.sampled_from("abc"), FENCES, st.sampled_from("xy"))


@given(st.lists(st.one_of(OFFERS, LEAVES, FENCES)))
def test_whatever_comes_fences_rise_and_states_fit(events: list[Offer | Permission | Fence]) -> None:
    machine, activated = Incoming(), [Fence(0)]
    for event in events:
        before = machine.seen
        effect: Effect = AwaitOtherHalf()
        match event:
            case Offer():
                effect = machine.offered(event)
            case Permission():
                effect = machine.permitted(event)
            case _:
                machine.fence_raised(event)
        assert machine.seen >= before
        assert machine.staged <= MAX_OFFERS
        if isinstance(effect, ActivateOffer):
            assert effect.offer.state_hash == effect.permission.state_hash
            assert effect.offer.transfer_id == effect.permission.transfer_id
            assert effect.permission.fence > activated[-1]
            assert machine.seen == effect.permission.fence
            activated.append(effect.permission.fence)
        elif isinstance(effect, AnswerAgain):
            assert effect.permission.fence <= machine.seen


@pytest.mark.parametrize("fence", [Fence(1), Fence(0, 1)])
def test_a_state_under_the_fence_seen_is_taken_for_its_holder_may_hand_it_on(fence: Fence) -> None:
    assert Incoming(seen=fence).offered(offer(fence=fence)) == AwaitOtherHalf()
