"""What a cluster consists of, and the ways between its instances."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.scenarios.cluster.topology import (
    BadSpec,
    ClusterSpec,
    InstanceRoute,
    NextHop,
    parse_instances,
    parse_route,
)

NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,15}", fullmatch=True).filter(lambda name: name != "relay")


@given(st.dictionaries(NAMES, st.integers(1, 9), min_size=1, max_size=6))
def test_what_is_written_as_name_and_count_reads_back(instances: dict[str, int]) -> None:
    text = ",".join(f"{name}:{count}" for name, count in instances.items())

    assert parse_instances(text) == instances


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "cannot read ''; write name:count, for example alpha:3,beta:3"),
        ("alpha", "cannot read 'alpha'"),
        ("alpha:", "cannot read 'alpha:'"),
        ("alpha:three", "cannot read 'alpha:three'"),
        ("alpha:-1", "cannot read 'alpha:-1'"),
        ("alpha:²", "cannot read 'alpha:²'"),
        ("alpha:3,,beta:3", "cannot read ''"),
        ("alpha:0", "homeservers of alpha: 0 is not between 1 and 9"),
        ("alpha:10", "homeservers of alpha: 10 is not between 1 and 9"),
        ("Alpha:3", "'Alpha' is not a name"),
        ("a_b:3", "'a_b' is not a name"),
        ("abcdefghijklmnopq:3", "'abcdefghijklmnopq' is not a name"),
        ("alpha:3,alpha:1", "alpha is there twice"),
        ("relay:1", "'relay' is how relays are called"),
    ],
)
def test_other_texts_are_refused_with_the_part_that_is_wrong(text: str, sentence: str) -> None:
    with pytest.raises(BadSpec) as refusal:
        parse_instances(text)

    assert sentence in str(refusal.value)


@given(st.text(max_size=40) | st.from_regex(r"[a-z0-9:,-]*", fullmatch=True))
def test_any_text_is_read_as_a_cluster_or_refused(text: str) -> None:
    with suppress(BadSpec):
        ClusterSpec(parse_instances(text))


def test_servers_are_named_by_instance_and_number() -> None:
    spec = ClusterSpec({"alpha": 3, "beta": 1}, simservers=2, relays=2)

    assert spec.homeserver_names("alpha") == ("alpha.h1", "alpha.h2", "alpha.h3")
    assert spec.simserver_names("beta") == ("beta.s1", "beta.s2")
    assert spec.relay_names == ("relay.r1", "relay.r2")


def test_without_routes_all_instances_talk_directly_even_if_there_are_relays() -> None:
    spec = ClusterSpec({"alpha": 1, "beta": 1}, relays=1)

    assert spec.next_hops()["alpha"] == {"beta": NextHop(via=None, hops=1)}
    assert spec.hops_between("alpha", "beta") == 1


def test_a_route_leads_through_its_relays_there_and_back() -> None:
    spec = ClusterSpec(
        {"alpha": 1, "beta": 1, "gamma": 1, "delta": 1},
        relays=2,
        routes=(
            InstanceRoute("alpha", "gamma", ("relay.r1",)),
            InstanceRoute("alpha", "delta", ("relay.r1", "relay.r2")),
        ),
    )
    hops = spec.next_hops()

    assert hops["alpha"] == {
        "beta": NextHop(None, 1),
        "gamma": NextHop("relay.r1", 2),
        "delta": NextHop("relay.r1", 3),
    }
    assert hops["relay.r1"]["delta"] == NextHop("relay.r2", 2)
    assert hops["relay.r2"]["delta"] == NextHop(None, 1)
    assert hops["delta"]["alpha"] == NextHop("relay.r2", 3)
    assert hops["relay.r2"]["alpha"] == NextHop("relay.r1", 2)
    assert hops["relay.r1"]["alpha"] == NextHop(None, 1)
    assert hops["gamma"]["beta"] == NextHop(None, 1)


def test_a_relay_on_no_route_reaches_every_instance_directly() -> None:
    hops = ClusterSpec({"alpha": 1, "beta": 1}, relays=1).next_hops()

    assert hops["relay.r1"] == {"alpha": NextHop(None, 1), "beta": NextHop(None, 1)}


ROUTES = st.lists(
    st.builds(
        InstanceRoute,
        st.sampled_from(["alpha", "beta", "gamma"]),
        st.sampled_from(["alpha", "beta", "gamma"]),
        st.lists(st.sampled_from([f"relay.r{n}" for n in range(1, 5)]), max_size=4).map(tuple),
    ),
    max_size=3,
).map(tuple)


@given(ROUTES)
def test_following_the_next_hops_takes_exactly_as_many_as_promised(routes: tuple[InstanceRoute, ...]) -> None:
    instances = {"alpha": 1, "beta": 1, "gamma": 1}
    try:
        spec = ClusterSpec(instances, relays=4, routes=routes)
    except BadSpec:
        return
    hops = spec.next_hops()
    for first in instances:
        for last in set(instances) - {first}:
            at, taken = first, 0
            while at != last:
                at = hops[at][last].via or last
                taken += 1
                assert taken <= 8
            assert taken == spec.hops_between(first, last) == spec.hops_between(last, first)
    for route in routes:
        assert spec.hops_between(route.first, route.last) == len(route.through) + 1


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"instances": {}}, "a cluster needs at least one instance"),
        ({"simservers": -1}, "simulation servers per instance: -1 is not between 0 and 99"),
        ({"relays": 10}, "relays: 10 is not between 0 and 9"),
        (
            {"routes": (InstanceRoute("alpha", "omega", ()),)},
            "there is no instance 'omega'; the instances are alpha, beta, gamma",
        ),
        ({"routes": (InstanceRoute("alpha", "alpha", ()),)}, "a route joins two different instances"),
        (
            {"routes": (InstanceRoute("alpha", "beta", ("relay.r3",)),)},
            "there is no relay.r3; with --relays 2 the relays are",
        ),
        ({"routes": (InstanceRoute("alpha", "beta", ("relay.r1", "relay.r1")),)}, "it passes the same relay twice"),
        (
            {"routes": (InstanceRoute("alpha", "beta", ()), InstanceRoute("beta", "alpha", ("relay.r1",)))},
            "given twice",
        ),
        (
            {
                "routes": (
                    InstanceRoute("alpha", "gamma", ("relay.r1",)),
                    InstanceRoute("beta", "gamma", ("relay.r1", "relay.r2")),
                )
            },
            "relay.r1 would reach gamma both through its homeservers and through relay.r2",
        ),
    ],
)
def test_impossible_clusters_are_refused(changes: dict[str, object], sentence: str) -> None:
    possible: dict[str, object] = {"instances": {"alpha": 1, "beta": 1, "gamma": 1}, "relays": 2}

    with pytest.raises(BadSpec) as refusal:
        ClusterSpec(**{**possible, **changes})  # type: ignore[arg-type]  # the table mixes fields of several types

    assert sentence in str(refusal.value)


def test_a_route_is_written_as_ends_and_relays() -> None:
    assert parse_route("alpha:gamma=r1,r2") == InstanceRoute("alpha", "gamma", ("relay.r1", "relay.r2"))


@pytest.mark.parametrize("text", ["", "alpha:gamma", "alpha=r1", "alpha:gamma=", "alpha:gamma=relay.r1", "a:b=r1,"])
def test_other_routes_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(BadSpec, match="for example alpha:gamma=r1,r2"):
        parse_route(text)
