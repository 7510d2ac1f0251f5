"""The policy is fair, and what a player drives takes what it touches."""

from hypothesis import given
from hypothesis import strategies as st

from batonpass.simserver.neighbours.contact_policy import CARRIED, DRIVEN, MeetingEntity, Verdict, default_policy

NAMES = st.sampled_from(["alpha.a", "alpha.b", "beta.a"])
ENTITIES = st.builds(
    MeetingEntity, entity=NAMES, rank=st.integers(0, 2), priority=st.integers(-2, 2), server=st.just("alpha.s1")
)
OPPOSITE = {Verdict.TAKES: Verdict.GOES, Verdict.GOES: Verdict.TAKES, Verdict.STAYS: Verdict.STAYS}


def meeting(entity: str, rank: int = 0, priority: int = 0) -> MeetingEntity:
    return MeetingEntity(entity, rank, priority, "alpha.s1")


@given(ENTITIES, ENTITIES)
def test_both_servers_come_to_the_same(one: MeetingEntity, other: MeetingEntity) -> None:
    if one.entity != other.entity:
        assert default_policy(one, other) is OPPOSITE[default_policy(other, one)]


def test_what_a_player_drives_takes_what_it_touches_whatever_the_priority() -> None:
    assert default_policy(meeting("alpha.z", DRIVEN), meeting("alpha.a", 0, 99)) is Verdict.TAKES
    assert default_policy(meeting("alpha.z", CARRIED), meeting("alpha.a", 0, 99)) is Verdict.TAKES


def test_what_players_drive_or_push_is_taken_by_none() -> None:
    for mine in (DRIVEN, CARRIED):
        for theirs in (DRIVEN, CARRIED):
            assert default_policy(meeting("alpha.a", mine), meeting("alpha.b", theirs)) is Verdict.STAYS


def test_then_priority_counts_and_then_the_id() -> None:
    assert default_policy(meeting("alpha.b", 0, 1), meeting("alpha.a", 0, 0)) is Verdict.TAKES
    assert default_policy(meeting("alpha.b"), meeting("alpha.a")) is Verdict.GOES
