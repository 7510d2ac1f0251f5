"""Two links whose keys change: what is sent meanwhile arrives, and what was proved with keys that are gone ends."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.actors.link import (
    PeerRestarted,
)
from batonpass.crypto.keys import Identity
from tests.actors.link.network import IDENTITIES, Faults, Network, Node
from tests.actors.link.scripts import FAULTS, SMALL, joined, play, sent_by
from tests.budget import examples


@given(st.integers(0, 2**32), FAULTS)
def test_keys_are_replaced_under_way_and_nothing_is_lost(seed: int, faults: Faults) -> None:
    network = Network(seed, faults, replace(SMALL, rekey_after_datagrams=20))
    script = [(number % 3 == 0, number % 4, 500, 0.005) for number in range(150)]
    play(network, script)
    network.run(lambda: network.is_quiet, limit_s=1000)
    for node in network.nodes:
        expected = sent_by(network, network.other(node), script)
        assert {channel: node.data_received(channel) for channel in range(16)} == expected
        assert PeerRestarted() not in node.events
    for _ in range(200):  # a handshake may need more time than all of that, when much is lost
        if network.alpha.counters["handshakes"] > 1:
            break
        network.send(network.alpha, bytes(500))
        network.run_for(0.05)
    assert 1 < network.alpha.counters["handshakes"] < 30


def test_when_the_directory_names_other_keys_the_old_ones_are_not_trusted_any_longer() -> None:
    network = joined(Network())
    network.alpha.link.know_keys(Identity.generate().public)
    assert not network.alpha.link.is_open
    network.send(network.beta, b"with the old key")
    network.run_for(2)
    assert network.alpha.received == []


def test_a_peer_without_the_right_key_never_gets_a_session() -> None:
    network = Network()
    network.alpha.link.know_keys(Identity.generate().public)
    network.send(network.alpha, b"to somebody")
    network.send(network.beta, b"from somebody else")
    network.run_for(10)
    assert not network.alpha.link.is_open
    assert not network.beta.link.is_open
    assert network.alpha.received == network.beta.received == []


def test_a_peer_that_left_the_directory_loses_its_session() -> None:
    network = joined(Network())
    network.alpha.link.know_keys(None)
    assert not network.alpha.link.is_open
    network.send(network.alpha, b"kept until it is back")
    network.run_for(3)
    network.alpha.link.know_keys(IDENTITIES["beta"].public)
    network.run(lambda: network.is_quiet and network.beta.received[-1].data == b"kept until it is back", limit_s=5)


def rotated(name: str, overlap_s: float = 60.0) -> Identity:
    return IDENTITIES[name].rotated(Identity.generate(), now_s=1_700_000_000, overlap_s=overlap_s)


@settings(max_examples=examples(25))
@given(st.integers(0, 2**32), FAULTS, st.permutations(["alpha", "beta"]), st.booleans())
def test_a_change_of_keys_under_way_loses_nothing(
    seed: int, faults: Faults, order: list[str], heard_first: bool
) -> None:
    """One side proves itself with new keys, then with the next; the other hears of each at some time around that."""
    network = Network(seed, faults, SMALL)
    changing, hearing = (getattr(network, name) for name in order)
    script = [(number % 3 == 0, number % 4, 500, 0.005) for number in range(60)]
    play(network, script[:20])
    renewed = rotated(order[0])
    steps = [
        lambda: changing.link.change_identity(renewed, network.now),
        lambda: hearing.link.know_keys(renewed.public),
    ]
    if heard_first:
        steps.reverse()
        changing.link.change_identity(
            renewed.led_by(IDENTITIES[order[0]].public.signing_kid, expires_at_s=0), network.now
        )
    steps[0]()
    play(network, script[20:40])
    steps[1]()
    play(network, script[40:])
    network.run(lambda: network.is_quiet, limit_s=1000)
    for node in network.nodes:
        parts = [sent_by(network, network.other(node), part) for part in (script[:20], script[20:40], script[40:])]
        for channel in range(16):
            assert node.data_received(channel) == [data for part in parts for data in part[channel]]
        assert PeerRestarted() not in node.events
    network.run(lambda: is_proved_with(hearing, renewed), limit_s=60)


def is_proved_with(node: Node, peer: Identity) -> bool:
    """Whether the peer of `node` has proved the session in use with the current keys of `peer`."""
    current = node.link._sessions.current
    return current is not None and current.peer_kid == peer.public.signing_kid


def test_a_peer_that_knows_only_the_old_keys_gets_a_session_until_the_overlap_ends() -> None:
    renewed = rotated("beta")
    for node_opens in ("alpha", "beta"):
        network = Network()
        network.beta.link.change_identity(renewed, network.now)
        network.send(getattr(network, node_opens), b"over the old keys")
        network.run_for(2)
        assert [m.data for n in network.nodes for m in n.received] == [b"over the old keys"]
        network = Network()
        network.beta.link.change_identity(renewed.valid_at(1_700_000_060), network.now)
        network.send(getattr(network, node_opens), b"too late")
        network.run_for(4)
        assert not network.alpha.link.is_open
        assert not network.beta.link.is_open


def test_a_session_proved_with_a_revoked_key_ends_when_that_is_heard_and_what_waits_arrives_over_the_new() -> None:
    network = joined(Network())
    revoked = rotated("beta").without(IDENTITIES["beta"].public.signing_kid, now_s=1_700_000_000)
    network.beta.link.change_identity(revoked, network.now)
    network.passes = lambda _: False
    network.send(network.alpha, b"in between")
    network.alpha.link.know_keys(revoked.public)
    assert not network.alpha.link.is_open
    network.passes = lambda _: True
    network.run_for(2)
    assert b"in between" in [message.data for message in network.beta.received]
    assert is_proved_with(network.alpha, revoked)


def test_the_end_of_an_overlap_ends_no_session_that_was_proved_with_the_new_keys() -> None:
    network = joined(Network())
    renewed = rotated("beta")
    network.beta.link.change_identity(renewed, network.now)
    network.alpha.link.know_keys(renewed.public)
    network.run_for(15)
    sessions = dict(network.alpha.link._sessions.live)
    assert len(sessions) == 1
    network.alpha.link.know_keys(renewed.public.valid_at(1_700_000_060))
    network.beta.link.change_identity(renewed.valid_at(1_700_000_060), network.now)
    assert network.alpha.link._sessions.live == sessions
    assert network.alpha.link.is_open
