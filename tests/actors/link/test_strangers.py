"""How many HELLOs in names without a link may cost a question to the directory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.actors.link.gate import HelloVerdict
from batonpass.actors.link.settings import Address
from batonpass.actors.link.strangers import (
    KNOWN_FOR_S,
    LOOKUP_INTERVAL_S,
    MAX_KNOWN,
    MAX_LOOKUPS,
    MAX_LOOKUPS_PER_SOURCE,
    MAX_SOURCES,
    Strangers,
)
from tests.actors.link.network import IDENTITIES

ALPHA, BETA = IDENTITIES["alpha"], IDENTITIES["beta"]


def begin(strangers: Strangers, name: str, source: Address, now: float, *, is_fresh: bool) -> HelloVerdict:
    verdict = strangers.judge(name, source, now, is_fresh=is_fresh)
    if verdict is HelloVerdict.ANSWER:
        strangers.begin(name, source, now, is_fresh=is_fresh)
    return verdict


def test_half_of_the_look_ups_are_for_those_who_show_a_cookie() -> None:
    strangers = Strangers(0.0)
    verdicts = [begin(strangers, f"a{n}", ("1.1.1.1", n), 0.0, is_fresh=False) for n in range(100)]
    assert verdicts == [HelloVerdict.ANSWER] * (MAX_LOOKUPS // 2) + [HelloVerdict.COOKIE] * (100 - MAX_LOOKUPS // 2)
    verdicts = [begin(strangers, f"b{n}", ("1.1.1.1", n), 0.0, is_fresh=True) for n in range(100)]
    assert verdicts.count(HelloVerdict.ANSWER) == MAX_LOOKUPS_PER_SOURCE
    verdicts = [begin(strangers, f"c{n}", (f"1.1.2.{n}", 1), 0.0, is_fresh=True) for n in range(100)]
    assert verdicts.count(HelloVerdict.ANSWER) == MAX_LOOKUPS // 2 - MAX_LOOKUPS_PER_SOURCE


@pytest.mark.parametrize(
    ("one", "other", "is_one_place"),
    [
        ("1.1.1.1", "1.1.1.2", False),
        ("2001:db8:0:1::1", "2001:db8:0:1:ffff::2", True),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("::ffff:1.1.1.1", "::ffff:1.1.1.2", False),
        ("::ffff:1.1.1.1", "1.1.1.1", True),
    ],
)
def test_a_place_is_an_ipv4_address_or_an_ipv6_network(one: str, other: str, *, is_one_place: bool) -> None:
    strangers = Strangers(0.0)
    for number in range(MAX_LOOKUPS_PER_SOURCE):
        assert begin(strangers, f"a{number}", (one, number), 0.0, is_fresh=True) is HelloVerdict.ANSWER
    verdict = begin(strangers, "b", (other, 9), 0.0, is_fresh=True)
    assert verdict is (HelloVerdict.DROP if is_one_place else HelloVerdict.ANSWER)


def test_look_ups_that_end_at_once_are_bounded_by_rate() -> None:
    strangers = Strangers(0.0)
    given = {True: 0, False: 0}
    for step in range(4000):
        for is_fresh in given:
            name, now = f"{step} {is_fresh}", step / 2000
            given[is_fresh] += begin(strangers, name, ("1.1.1.1", 1), now, is_fresh=is_fresh) is HelloVerdict.ANSWER
            strangers.end(name)
    assert given == {False: 32 + 199, True: 8 + 39}


def test_a_name_is_not_looked_up_twice_at_a_time_nor_right_again() -> None:
    strangers = Strangers(0.0)
    assert begin(strangers, "alpha", ("1.1.1.1", 1), 0.0, is_fresh=False) is HelloVerdict.ANSWER
    assert begin(strangers, "alpha", ("1.1.1.1", 1), 0.0, is_fresh=True) is HelloVerdict.DROP
    strangers.end("alpha")
    secrets = strangers.remember("alpha", BETA, ALPHA.public, 0.0)
    assert strangers.secrets_of("alpha", KNOWN_FOR_S - 0.1) is secrets
    assert strangers.secrets_of("alpha", KNOWN_FOR_S) is None
    assert begin(strangers, "alpha", ("1.1.1.1", 1), LOOKUP_INTERVAL_S - 0.1, is_fresh=True) is HelloVerdict.DROP
    assert begin(strangers, "alpha", ("1.1.1.1", 1), LOOKUP_INTERVAL_S, is_fresh=True) is HelloVerdict.ANSWER
    strangers.forget()
    assert strangers.secrets_of("alpha", 0.0) is None


def test_what_is_remembered_is_bounded() -> None:
    strangers = Strangers(0.0)
    for number in range(2 * MAX_KNOWN):
        strangers.remember(f"a{number}", BETA, ALPHA.public, 0.0)
    assert len(strangers._known) == MAX_KNOWN
    assert strangers.secrets_of(f"a{2 * MAX_KNOWN - 1}", 1.0) is not None
    for number in range(2 * MAX_SOURCES):
        source = f"1.{number // 65536}.{number // 256 % 256}.{number % 256}", 1
        assert begin(strangers, f"b{number}", source, 0.0, is_fresh=True) is HelloVerdict.ANSWER
        strangers.end(f"b{number}")
    assert len(strangers._sources) == MAX_SOURCES


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9), st.integers(0, 5), st.booleans()), max_size=300))
def test_what_is_counted_is_what_is_under_way(steps: list[tuple[bool, int, int, bool]]) -> None:
    strangers = Strangers(0.0)
    under_way: dict[str, str | None] = {}
    for at, (is_end, number, place, is_fresh) in enumerate(steps):
        name, source = f"a{number}", (f"1.1.1.{place}", 1)
        if is_end:
            strangers.end(name)
            under_way.pop(name, None)
        elif begin(strangers, name, source, at * 0.1, is_fresh=is_fresh) is HelloVerdict.ANSWER:
            assert name not in under_way
            under_way[name] = source[0] if is_fresh else None
    assert strangers._lookups == under_way
    assert strangers._unproved_lookups == list(under_way.values()).count(None)
    for host, place_of in strangers._sources.items():
        assert place_of.lookups == list(under_way.values()).count(host) <= MAX_LOOKUPS_PER_SOURCE
