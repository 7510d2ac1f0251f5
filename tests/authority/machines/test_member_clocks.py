"""What time it is in an instance, by what its members say of their clocks."""

from statistics import median

from hypothesis import given
from hypothesis import strategies as st

from batonpass.authority.machines.member_clocks import MemberClocks

S = 1_000_000_000
SHOWN_S = 1_700_000_000.0


def as_seen_by(name: str, ahead_s: dict[str, float], began_s: float, took_s: float = 0.0) -> dict[str, float]:
    """What a member makes of the clocks of all; its own monotonic clock began at `began_s` of true time."""
    clocks, now_s = MemberClocks(name), 100.0
    for member, ahead in ahead_s.items():
        asked_s = now_s - began_s
        now_s += took_s
        if member != name:
            answered_ms = round((SHOWN_S + now_s - took_s / 2 + ahead) * 1e3)
            clocks.heard(member, answered_ms, round(asked_s * S), round((now_s - began_s) * S))
    clocks.own(SHOWN_S + now_s + ahead_s[name], round((now_s - began_s) * S))
    return clocks.ahead_s()


def test_of_three_members_one_may_show_anything() -> None:
    found = as_seen_by("h1", {"h1": 0.0, "h2": 0.0, "h3": -300_000_000.0}, 0.0)
    assert {name: round(ahead, 3) for name, ahead in found.items()} == {"h1": 0, "h2": 0, "h3": -300_000_000}


def test_two_that_differ_meet_in_the_middle() -> None:
    found = as_seen_by("h2", {"h1": 0.0, "h2": 90.0}, 0.0)
    assert {name: round(ahead, 3) for name, ahead in found.items()} == {"h1": -45, "h2": 45}


def test_who_is_alone_has_the_time_that_it_shows() -> None:
    assert as_seen_by("h1", {"h1": 1e9}, 0.0) == {"h1": 0.0}
    assert MemberClocks("h1").ahead_s() == {}


def test_who_is_no_member_any_more_does_not_count() -> None:
    clocks = MemberClocks("h1")
    clocks.own(SHOWN_S, 0)
    clocks.heard("h2", round((SHOWN_S + 1000) * 1e3), 0, 0)
    clocks.keep(["h3"])
    assert clocks.ahead_s() == {"h1": 0.0}


@given(
    st.dictionaries(st.sampled_from(["h1", "h2", "h3", "h4", "h5"]), st.floats(-1e9, 1e9), min_size=1),
    st.lists(st.floats(0, 1e6), min_size=5, max_size=5),
    st.floats(0, 2),
)
def test_all_members_count_by_the_same_time_whatever_their_clocks_show(
    ahead_s: dict[str, float], began_s: list[float], took_s: float
) -> None:
    middle_s = median(ahead_s.values())
    for name, began in zip(ahead_s, began_s, strict=False):
        found = as_seen_by(name, ahead_s, began, took_s)
        for member, ahead in ahead_s.items():
            # Milliseconds travel, and numbers of this size have microseconds.
            assert abs(found[member] - (ahead - middle_s)) < 0.01
