"""Who keeps copies of an entity, which copy counts, and the table in which a server keeps those of others."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from batonpass.authority.fence import Fence
from batonpass.authority.machines.replica_choice import (
    ASKED_NS,
    Candidate,
    Copy,
    CopyTable,
    all_answered,
    backup_replicas_of,
    choose,
)
from batonpass.authority.model.standing import CopySource
from tests.authority.log import BALL, S1, S2, S3

SERVERS = st.lists(st.sampled_from([f"alpha.s{n}" for n in range(9)]), unique=True, max_size=9)


def copy(epoch: int, tick: int, size: int = 1) -> Copy:
    return Copy(Fence(epoch), tick, b"x" * size, f"{epoch}-{tick}")


# --- followers --------------------------------------------------------------------------------------------------------


@given(SERVERS, st.integers(0, 3))
def test_followers_are_others_and_as_many_as_there_are(servers: list[str], count: int) -> None:
    followers = backup_replicas_of(BALL, S1, servers, count)
    assert S1 not in followers
    assert len(followers) == min(count, len(set(servers) - {S1}))


@given(SERVERS, st.sampled_from(["alpha.s7", "alpha.s8"]))
def test_a_server_that_goes_moves_only_the_copies_that_it_had(servers: list[str], gone: str) -> None:
    for number in range(20):
        before = backup_replicas_of(f"alpha.e{number}", S1, servers, 1)
        after = backup_replicas_of(f"alpha.e{number}", S1, [name for name in servers if name != gone], 1)
        assert after == before or gone in before


# --- choosing ---------------------------------------------------------------------------------------------------------


def candidate(holder: str, epoch: int, tick: int, source: CopySource = CopySource.BACKUP_REPLICA) -> Candidate:
    return Candidate(holder, source, Fence(epoch), tick, "0" * 64)


def test_the_highest_fence_counts_before_the_highest_tick() -> None:
    assert choose([candidate(S2, 1, 900), candidate(S3, 2, 3)], last=S1) == candidate(S3, 2, 3)
    assert choose([candidate(S2, 1, 900), candidate(S3, 1, 901)], last=S1) == candidate(S3, 1, 901)


def test_of_equal_copies_that_of_the_former_authority_is_taken() -> None:
    own = candidate(S1, 1, 9, CopySource.CHECKPOINT)
    assert choose([candidate(S2, 1, 9), own, candidate(S3, 1, 9)], last=S1) == own


def test_of_equal_copies_what_the_authority_stood_still_with_is_taken_before_one_that_it_had_sent() -> None:
    """After its last tick it may have taken inputs, and heard of another owner: the hand-over was to the former one."""
    own = candidate(S3, 1, 9, CopySource.OWN)
    assert choose([candidate(S1, 1, 9), own, candidate(S2, 1, 9)], last=S1) == own
    assert choose([candidate(S1, 1, 10), own], last=S1) == candidate(S1, 1, 10), "an earlier state is no equal one"


def test_what_a_follower_has_of_later_counts_whatever_its_server_comes_back_with() -> None:
    """Its checkpoint may be of seconds before it was killed, and what the follower has was told to be durable."""
    its = candidate(S1, 5, 100, CopySource.CHECKPOINT)
    assert choose([candidate(S2, 5, 109), its], last=S1) == candidate(S2, 5, 109)
    assert choose([candidate(S2, 5, 100), its], last=S1) == its


def test_what_its_server_has_of_an_earlier_visit_undoes_nothing() -> None:
    stood_still = candidate(S2, 4, 149, CopySource.OWN)
    assert choose([candidate(S1, 2, 103), stood_still], last=S1) == stood_still
    assert choose([stood_still], last=S1) == stood_still, "it has come back with nothing"
    assert choose([], last=S1) is None


def test_a_server_whose_lease_is_over_is_not_waited_for() -> None:
    assert not all_answered({S1: 1, S2: 4}, {S1}, {S1: 1, S2: 4})
    assert all_answered({S1: 1, S2: 4}, {S1}, {S1: 1})
    assert all_answered({S1: 1, S2: 4}, {S1}, {S1: 1, S2: 5}), "it is another incarnation, and will be asked anew"


# --- the table of copies ----------------------------------------------------------------------------------------------


def test_after_a_fence_was_raised_no_copy_under_a_lower_one_is_kept() -> None:
    table = CopyTable(1000, 10)
    assert table.offer(BALL, copy(1, 5), 0)
    table.raised(BALL, Fence(2))
    assert not table.offer(BALL, copy(1, 6), 0)
    assert table.get(BALL) == copy(1, 5)
    table.raised(BALL, Fence(1))
    assert not table.offer(BALL, copy(1, 7), 0), "a fence does not sink"
    assert table.offer(BALL, copy(2, 1), 0)


def test_an_older_copy_does_not_replace_a_later_one() -> None:
    table = CopyTable(1000, 10)
    assert table.offer(BALL, copy(2, 5), 0)
    assert table.offer(BALL, copy(2, 4), 0), "a later state than this is kept"
    assert not table.offer(BALL, copy(1, 9), 0), "nobody is told that this is kept"
    assert table.get(BALL) == copy(2, 5)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 40)), max_size=60))
def test_the_table_keeps_to_its_bounds(offers: list[tuple[int, int]]) -> None:
    table = CopyTable(60, 3)
    for tick, (entity, size) in enumerate(offers):
        table.offer(f"alpha.e{entity}", copy(1, tick, size), tick)
        assert len(table) <= 3
        assert table.bytes <= 60
    assert not table.offer(BALL, copy(1, 1, 61), 0)


FRESH_NS = 100
E1, E2, E3 = "alpha.e1", "alpha.e2", "alpha.e3"


def test_what_was_acknowledged_makes_no_room_for_what_comes_later() -> None:
    table = CopyTable(1 << 20, 10, FRESH_NS)
    kept = [entity for number in range(5) if table.offer(entity := f"alpha.e{number}", copy(1, 1, 300_000), number)]
    assert kept == ["alpha.e0", "alpha.e1", "alpha.e2"]
    assert all(table.get(entity) for entity in kept)
    assert (len(table), table.without_room, table.evicted) == (3, 2, 0)
    table = CopyTable(1 << 20, 1, FRESH_NS)
    assert table.offer(E1, copy(1, 1), 0)
    assert not table.offer(E2, copy(1, 1), FRESH_NS - 1), "nor by their number"


def test_who_has_no_room_is_believed_about_its_fence() -> None:
    table = CopyTable(10, 10, FRESH_NS)
    assert table.offer(E1, copy(1, 1, 10), 0)
    assert not table.offer(E2, copy(3, 1), 0)
    table.drop(E1)
    assert not table.offer(E2, copy(2, 1), 0)
    assert table.offer(E2, copy(3, 1), 0)


def test_what_was_not_renewed_for_too_long_makes_room_the_oldest_first_and_only_as_much_as_is_needed() -> None:
    table = CopyTable(30, 10, FRESH_NS)
    for now_ns, entity in enumerate((E1, E2, E3)):
        assert table.offer(entity, copy(5, 1, 10), now_ns)
    assert table.offer(E1, copy(5, 1, 10), 50), "it is renewed"
    assert table.offer(BALL, copy(5, 1, 10), 110)
    assert (table.get(E1), table.get(E2), table.get(E3)) == (copy(5, 1, 10), None, copy(5, 1, 10))
    assert not table.offer(E2, copy(4, 9, 10), 110), "what made room has its fence noted"
    assert not table.offer(E2, copy(5, 2, 20), 120), "what is left is fresh"
    assert (table.without_room, table.evicted) == (1, 0)


def test_a_later_copy_that_has_grown_displaces_nobody_and_leaves_the_earlier_one_as_fresh_as_itself() -> None:
    """That is what was acknowledged, and its authority relies on it until it hears of a later one."""
    table = CopyTable(30, 10, FRESH_NS)
    assert table.offer(E1, copy(1, 1, 10), 0)
    assert table.offer(E2, copy(1, 1, 20), 50)
    assert not table.offer(E1, copy(1, 2, 11), 60)
    assert (table.get(E1), table.get(E2)) == (copy(1, 1, 10), copy(1, 1, 20))
    assert not table.offer(E3, copy(1, 1), 149), "neither is stale"
    assert table.offer(E1, copy(1, 3, 11), 150), "but one of them now"
    assert (table.get(E1), table.get(E2)) == (copy(1, 3, 11), None)
    assert table.offer(E1, copy(1, 4, 30), 151), "its own room is its own"


def test_a_later_copy_under_a_higher_fence_without_room_leaves_the_earlier_one_and_none_under_its_fence_comes() -> None:
    table = CopyTable(30, 10, FRESH_NS)
    assert table.offer(E1, copy(1, 1, 10), 0)
    assert table.offer(E2, copy(1, 1, 20), 0)
    assert not table.offer(E1, copy(2, 1, 11), 0)
    assert table.get(E1) == copy(1, 1, 10), "of those that there are it may count: it was acknowledged"
    assert not table.offer(E1, copy(1, 2, 10), 0), "but its authority is one of the past"
    assert table.offer(E1, copy(2, 2, 10), 0)


def test_what_the_server_itself_had_makes_room_for_itself_by_what_is_stale_and_then_by_the_oldest() -> None:
    table = CopyTable(30, 10, FRESH_NS)
    assert table.offer(E1, copy(1, 1, 10), 0)
    assert table.offer(E2, copy(3, 1, 10), 80)
    assert table.offer(E3, copy(1, 1, 10), 90)
    assert table.keep(BALL, copy(1, 1, 10), 100)
    assert (table.get(E1), table.evicted) == (None, 0)
    assert table.keep(BALL, copy(1, 2, 20), 101)
    assert (table.get(E2), table.get(E3), table.evicted) == (None, copy(1, 1, 10), 1)
    assert not table.offer(E2, copy(2, 9), 102), "what made room has its fence noted"
    assert not table.keep(BALL, copy(1, 3, 31), 103)
    assert (table.get(BALL), table.bytes) == (copy(1, 2, 20), 30)


def test_what_was_asked_for_does_not_get_stale_until_nobody_waits_with_it_any_more() -> None:
    """Its authority is dead, and every other server that may have a copy is waited for."""
    table = CopyTable(10, 10, FRESH_NS)
    assert table.offer(E1, copy(1, 1, 5), 0)
    assert table.offer(E2, copy(1, 1, 5), 1)
    table.asked(E1, 2)
    table.asked(E3, 2)
    assert table.offer(E3, copy(1, 1, 5), ASKED_NS)
    assert (table.get(E1), table.get(E2)) == (copy(1, 1, 5), None)
    assert not table.offer(E2, copy(1, 1, 5), ASKED_NS)
    later_ns = ASKED_NS + FRESH_NS
    assert table.offer(E3, copy(1, 1, 5), later_ns)
    assert table.offer(E2, copy(1, 1, 5), later_ns)
    assert table.get(E1) is None


def test_where_nothing_counts_as_fresh_the_oldest_goes_first_whoever_asked_for_it() -> None:
    table = CopyTable(10, 10)
    for entity in (E1, E2):
        assert table.keep(entity, copy(1, 1, 5), 0)
        table.asked(entity, 0)
    assert table.keep(E3, copy(1, 1, 5), 1)
    assert (table.get(E1), table.get(E2), table.evicted) == (None, copy(1, 1, 5), 0)


CALLS = st.lists(
    st.tuples(
        st.sampled_from(("offer", "offer", "offer", "keep", "asked", "raised", "drop")),
        st.sampled_from((E1, E2, E3, BALL)),
        st.integers(1, 3),
        st.sampled_from((10, 25, 40)),
        st.sampled_from((0, 1, FRESH_NS // 2, FRESH_NS)),
    ),
    max_size=60,
)


@given(CALLS)
def test_whatever_is_offered_and_kept_what_was_acknowledged_is_there_while_it_is_fresh(calls: list[Any]) -> None:
    table, now_ns = CopyTable(60, 3, FRESH_NS), 0
    acknowledged: dict[str, tuple[Fence, int]] = {}
    heard_ns: dict[str, int] = {}
    for tick, (call, entity, epoch, size, passes_ns) in enumerate(calls):
        now_ns += passes_ns
        evicted, new = table.evicted, copy(epoch, tick, size)
        if call == "offer":
            if table.offer(entity, new, now_ns):
                acknowledged[entity] = new.rank
                heard_ns[entity] = now_ns
        elif call == "keep":
            table.keep(entity, new, now_ns)
        elif call == "asked":
            table.asked(entity, now_ns)
        elif call == "raised":
            table.raised(entity, Fence(epoch))
        else:
            table.drop(entity)
            acknowledged.pop(entity, None)
        missing = 0
        for one, rank in list(acknowledged.items()):
            there = table.get(one)
            if there is None or there.rank < rank:
                missing += now_ns - heard_ns[one] < FRESH_NS
                del acknowledged[one]
        assert missing <= table.evicted - evicted
        assert call == "keep" or table.evicted == evicted
        there_now = [found for one in (E1, E2, E3, BALL) if (found := table.get(one)) is not None]
        assert (len(table), table.bytes) == (len(there_now), sum(len(one.state) for one in there_now))
        assert len(table) <= 3
        assert table.bytes <= 60


def test_who_copies_more_seldom_than_this_server_is_relied_on_for_longer() -> None:
    table = CopyTable(1000, 1, fresh_ns=100)
    copy = Copy(Fence(1), 1, b"state", "hash")
    for now_ns in (0, 50, 150, 350):
        assert table.offer(BALL, copy, now_ns)
    assert not table.offer(f"{BALL}-2", copy, 350 + 799), "its authority lets 200 pass"
    assert table.offer(f"{BALL}-2", copy, 350 + 801)
