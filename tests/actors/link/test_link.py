"""Two links on a bad network: what arrives, how often, and in which order."""

from collections import Counter
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.actors.link import (
    LinkExpired,
    LinkFull,
    LinkSettings,
    PeerReachable,
    PeerRestarted,
    PeerUnreachable,
)
from batonpass.actors.link.frames import (
    HEADER_BYTES,
    DatagramKind,
    message_head,
    read_header_untrusted,
    write_ack,
    write_header,
)
from batonpass.actors.link.settings import INITIAL_CREDIT_MESSAGES, LARGE_MESSAGE_BYTES, MAX_MESSAGE_BYTES
from batonpass.crypto.keys import Identity
from batonpass.crypto.session import Initiator, _hello_mac, _hello_proof
from batonpass.crypto.static_secrets import StaticSecrets
from tests.actors.link.network import IDENTITIES, Faults, Network, Transit
from tests.actors.link.scripts import FAULTS, MESSAGES, SMALL, content, joined, play, sent_by


@given(st.integers(0, 2**32), FAULTS, MESSAGES, st.sampled_from([1200, 9000, 61_440]))
def test_every_message_arrives_once_and_in_the_order_of_its_channel(
    seed: int, faults: Faults, script: list[tuple[bool, int, int, float]], datagram_bytes: int
) -> None:
    network = Network(seed, faults, replace(SMALL, max_datagram_bytes=datagram_bytes))
    play(network, script)
    network.run(lambda: network.is_quiet, limit_s=1000)
    for node in network.nodes:
        expected = sent_by(network, network.other(node), script)
        assert {channel: node.data_received(channel) for channel in range(16)} == expected
        assert not node.counters["dropped_violation"]  # nobody exceeded a credit, nobody misread a frame
        assert not node.counters["dropped_messages"]


@given(st.integers(0, 2**32), FAULTS, MESSAGES, st.data())
def test_an_application_that_stops_and_starts_taking_loses_nothing(
    seed: int, faults: Faults, script: list[tuple[bool, int, int, float]], data: st.DataObject
) -> None:
    network = Network(seed, faults, SMALL)
    for number, (from_alpha, channel, size, pause_s) in enumerate(script * 3):
        network.beta.is_taking = data.draw(st.booleans())
        network.send(network.alpha if from_alpha else network.beta, content(number, size), channel)
        network.run_for(pause_s)
        network.pump(network.beta)
    network.beta.is_taking = True
    network.pump(network.beta)
    network.run(lambda: network.is_quiet, limit_s=1000)
    for node in network.nodes:
        expected = sent_by(network, network.other(node), script * 3)
        assert {channel: node.data_received(channel) for channel in range(16)} == expected
        assert not node.counters["dropped_violation"]


@given(st.integers(0, 2**32), FAULTS, MESSAGES, MESSAGES)
def test_after_a_restart_everything_unacknowledged_arrives_at_least_once_and_in_order(
    seed: int,
    faults: Faults,
    before: list[tuple[bool, int, int, float]],
    after: list[tuple[bool, int, int, float]],
) -> None:
    network = Network(seed, faults, SMALL)
    play(network, before)
    first_life = list(network.beta.received)
    network.beta.start(network.now)
    network.beta.received.clear()
    script = [*before, *((True, channel, size, pause_s) for _, channel, size, pause_s in after)]
    for number in range(len(before), len(script)):
        network.send(network.alpha, content(number, script[number][2]), script[number][1])
        network.run_for(script[number][3])
    network.run(lambda: network.is_quiet, limit_s=1000)

    sent = sent_by(network, network.alpha, script)
    for channel in range(16):
        old = [message.data for message in first_life if message.channel == channel]
        new = network.beta.data_received(channel)
        assert old == sent[channel][: len(old)]  # the first life got a beginning
        assert new == sent[channel][len(sent[channel]) - len(new) :]  # the second an end
        assert len(old) + len(new) >= len(sent[channel])  # and nothing is missing between them


@given(st.integers(0, 2**32), FAULTS)
def test_both_opening_at_once_converges_on_one_session(seed: int, faults: Faults) -> None:
    network = Network(seed, faults)
    for node in network.nodes:
        node.link.find_at(network.other(node).address, 0.0)
        node.link.send(node.name.encode(), 0.0)
    for node in network.nodes:
        network.pump(node)
    network.run(lambda: network.is_quiet and bool(network.alpha.received and network.beta.received), limit_s=300)
    network.faults = Faults()
    network.run_for(30)
    for node in network.nodes:  # whatever was left over has been retired; both use what is left
        network.send(node, b"again")
    network.run(lambda: network.is_quiet)
    live = [list(node.link._sessions.live.values()) for node in network.nodes]
    assert [len(sessions) for sessions in live] == [1, 1]
    assert live[0][0].peer_session_id == live[1][0].session_id
    assert live[1][0].peer_session_id == live[0][0].session_id
    assert [message.data for message in network.alpha.received] == [b"beta", b"again"]
    assert [message.data for message in network.beta.received] == [b"alpha", b"again"]


def test_a_first_message_takes_one_and_a_half_round_trips() -> None:
    network = Network(faults=Faults(delay_s=1.0), settings=LinkSettings(hello_interval_s=10, max_pto_s=10))
    network.send(network.alpha, b"hello")
    network.run(lambda: bool(network.beta.received))
    assert network.now == 3.0


def test_big_state_does_not_hold_up_small_messages() -> None:
    network = joined(Network())
    network.send(network.alpha, bytes(LARGE_MESSAGE_BYTES), channel=1)
    network.send(network.alpha, b"small", channel=2)
    network.run(lambda: network.beta.data_received(2) == [b"small"])
    assert not network.beta.data_received(1)
    network.run(lambda: len(network.beta.data_received(1)) == 1)


def test_a_stream_of_small_messages_does_not_starve_a_big_one() -> None:
    network = joined(Network())
    network.beta.is_taking = False
    for _ in range(3):
        network.send(network.alpha, bytes(LARGE_MESSAGE_BYTES), channel=1)
    network.run_for(5)
    for _ in range(500):
        network.send(network.alpha, bytes(1000), channel=2)
    network.run_for(5)
    network.beta.is_taking = True
    network.pump(network.beta)
    network.run(lambda: network.is_quiet)
    assert len(network.beta.data_received(1)) == 3
    assert len(network.beta.data_received(2)) == 500


def test_a_receiver_that_takes_nothing_holds_no_more_than_its_window() -> None:
    network = joined(Network(settings=SMALL))
    network.beta.is_taking = False
    for _ in range(100):
        network.send(network.alpha, b"x")
    network.run_for(20)
    assert network.beta.link._incoming._used_messages - 1 == SMALL.window_messages
    assert not network.beta.counters["dropped_violation"]
    assert network.alpha.link.queued_messages == 100 - SMALL.window_messages


def test_lost_news_of_credit_is_asked_for_again() -> None:
    network = joined(Network(settings=SMALL))
    network.beta.is_taking = False
    for _ in range(40):
        network.send(network.alpha, b"x")
    network.run_for(1)
    network.passes = lambda transit: transit.source != network.beta.address
    network.beta.is_taking = True
    network.pump(network.beta)  # the news is lost
    network.run_for(1)
    network.passes = lambda _: True
    network.run(lambda: len(network.beta.received) == 41, limit_s=5)


def test_a_sender_that_only_waits_for_credit_asks_too() -> None:
    """The shell holds the message back until it fits; nothing is queued here, and still the lost news is recovered."""
    network = joined(Network(settings=SMALL))
    network.beta.is_taking = False
    for _ in range(SMALL.window_messages):
        network.send(network.alpha, b"x")
    network.run_for(1)
    assert not network.alpha.link.fits_credit(1)
    network.alpha.link.is_credit_awaited = True
    network.pump(network.alpha)
    network.passes = lambda transit: transit.source != network.beta.address
    network.beta.is_taking = True
    network.pump(network.beta)
    network.run_for(1)
    network.passes = lambda _: True
    network.run(lambda: network.alpha.link.fits_credit(1), limit_s=5)


def test_an_idle_link_sleeps_until_it_expires() -> None:
    network = joined(Network())
    network.run_for(network.settings.retire_after_s + 1)
    datagrams = len(network.history)
    for node in network.nodes:
        timer_s = node.link.next_timer()
        assert timer_s > network.now + network.settings.idle_expiry_s / 2
    network.run_for(network.settings.idle_expiry_s)
    assert len(network.history) == datagrams
    assert network.alpha.events == [LinkExpired(0)]
    assert network.beta.events == [LinkExpired(0)]
    assert not network.alpha.ids.used
    assert not network.beta.ids.used


def test_everything_recorded_and_sent_again_changes_nothing() -> None:
    network = joined(Network(1))
    for number in range(20):
        network.send(network.alpha if number % 2 else network.beta, bytes([number]) * 2000, number % 3)
    network.run(lambda: network.is_quiet)
    before = [(list(node.received), node.link.address, len(node.link._sessions.live)) for node in network.nodes]
    recorded = list(network.history)
    replayed = [node.counters["dropped_replayed"] for node in network.nodes]
    for transit in recorded:
        network.deliver(Transit(("6.6.6.6", 666), transit.destination, transit.datagram))
    network.run(lambda: network.is_quiet)
    for node, count in zip(network.nodes, replayed, strict=True):
        data = [one for one in recorded if one.destination == node.address and one.datagram[0] == DatagramKind.DATA]
        assert data
        assert node.counters["dropped_replayed"] == count + len(data)
    assert before == [(list(node.received), node.link.address, len(node.link._sessions.live)) for node in network.nodes]
    network.send(network.alpha, b"still here")
    network.run(lambda: network.beta.received[-1].data == b"still here")


def test_datagrams_of_the_session_before_a_restart_cannot_come_back() -> None:
    network = joined(Network())
    network.send(network.alpha, b"old")
    for number in range(20):
        network.send(network.beta, bytes([number]) * 3000)
    network.run(lambda: network.is_quiet)
    recorded = list(network.history)
    network.beta.start(network.now)
    network.alpha.received.clear()
    network.send(network.beta, b"I am new")
    network.run(lambda: network.is_quiet and len(network.alpha.received) == 1)
    assert network.alpha.events == [PeerRestarted()]
    former = {
        read_header_untrusted(one.datagram).session_id for one in recorded if one.datagram[0] == DatagramKind.DATA
    }
    for node in network.nodes:
        assert former.isdisjoint(node.link._sessions.live), "nothing is kept that could open them"
    network.beta.received.clear()
    for transit in recorded:
        network.deliver(transit)
    network.run_for(5)
    assert network.beta.received == []
    assert [message.data for message in network.alpha.received] == [b"I am new"]


def test_a_forged_hello_leaves_the_session_alone() -> None:
    """Mallory has a HELLO of alpha's that beta has never seen. Beta answers, and nothing else happens; one that she
    writes herself is not even answered (test_handshake_floods.py)."""
    network = joined(Network())
    mallory = Network(2)
    mallory.send(mallory.alpha, b"I am alpha, and restarted")
    network.deliver(Transit(("6.6.6.6", 666), network.beta.address, mallory.history[0].datagram))
    assert network.history[-1].destination == ("6.6.6.6", 666)
    assert network.history[-1].datagram[0] == DatagramKind.ACCEPT
    network.run_for(1)
    network.send(network.beta, b"to the real alpha")
    network.run(lambda: network.is_quiet)
    assert network.alpha.received[-1].data == b"to the real alpha"
    assert network.beta.events == []


def test_a_flood_of_forged_hellos_holds_a_bounded_number_of_handshakes() -> None:
    network = joined(Network())
    for seed in range(30):
        mallory = Network(seed)
        mallory.send(mallory.alpha, b"")
        network.deliver(Transit(("6.6.6.6", 666), network.beta.address, mallory.history[0].datagram))
    assert len(network.beta.ids.used) <= 9


def test_silence_is_reported_and_so_is_its_end() -> None:
    network = joined(Network())
    network.passes = lambda _: False
    network.send(network.alpha, b"anybody there?")
    network.run_for(6)
    assert network.alpha.events == [PeerUnreachable()]
    network.passes = lambda _: True
    network.run(lambda: network.is_quiet, limit_s=5)
    assert network.alpha.events == [PeerUnreachable(), PeerReachable()]
    assert network.beta.received[-1].data == b"anybody there?"


def test_a_partition_is_survived_without_repeating_anything() -> None:
    network = joined(Network())
    network.passes = lambda _: False
    for node in network.nodes:
        network.send(node, b"during")
    network.run_for(60)
    network.passes = lambda _: True
    network.run(lambda: network.is_quiet, limit_s=5)
    assert [message.data for message in network.beta.received] == [b"hello", b"during"]
    assert [message.data for message in network.alpha.received] == [b"during"]


def test_a_peer_that_stays_away_is_given_up() -> None:
    network = Network()
    network.passes = lambda _: False
    network.send(network.alpha, b"nobody there")
    network.run_for(130)
    assert network.alpha.events == [PeerUnreachable(), LinkExpired(1)]
    assert network.alpha.counters["dropped_messages"] == 1
    assert not network.alpha.ids.used


def test_trying_to_reach_a_silent_peer_is_cheap() -> None:
    network = Network()
    network.passes = lambda _: False
    network.send(network.alpha, b"nobody there")
    network.run_for(60)
    assert len(network.history) < 70


def test_a_peer_that_moved_is_found_where_the_application_says() -> None:
    network = joined(Network())
    network.beta.address = ("10.0.0.3", 3)
    network.beta.start(network.now)
    network.send(network.alpha, b"moved?")
    network.run(lambda: [message.data for message in network.beta.received] == [b"hello", b"moved?"], limit_s=0.1)


def test_contradicting_addresses_do_not_open_sessions_for_ever() -> None:
    network = joined(Network())
    for number in range(100):
        network.alpha.link.find_at(("10.9.9.9", 9) if number % 2 else network.beta.address, network.now)
        network.send(network.alpha, bytes([number]))
        network.run_for(0.01)
    network.run(lambda: network.is_quiet)
    assert len(network.beta.received) == 101
    assert network.alpha.counters["handshakes"] <= 3


def test_a_peer_that_moved_while_it_was_being_opened_is_found() -> None:
    network = Network()
    network.beta.address = ("10.0.0.8", 8)
    network.alpha.link.find_at(("10.9.9.9", 9), network.now)
    network.alpha.link.send(b"where are you?", network.now)
    network.pump(network.alpha)
    network.run_for(20)
    network.send(network.alpha, b"here")
    network.run(lambda: len(network.beta.received) == 2, limit_s=0.1)


def test_a_peer_that_moves_without_a_word_is_followed() -> None:
    network = joined(Network())
    network.beta.address = ("10.0.0.3", 3)
    network.send(network.beta, b"it is me")
    network.run(lambda: network.alpha.link.address == ("10.0.0.3", 3))


def test_a_restarted_peer_that_stays_silent_is_noticed_quickly() -> None:
    network = joined(Network())
    network.beta.start(network.now)
    network.beta.received.clear()
    started_s = network.now
    network.send(network.alpha, b"are you new?")
    network.run(lambda: bool(network.beta.received))
    assert network.now - started_s < 0.5
    assert network.alpha.events == [PeerRestarted()]


def test_a_polite_end_is_noticed_at_once() -> None:
    network = joined(Network())
    for datagram, address in network.beta.link.close(network.now):
        network.put(Transit(network.beta.address, address, datagram))
    network.run(lambda: not network.alpha.link.is_open, limit_s=1)
    network.beta.start(network.now)
    network.beta.received.clear()
    network.send(network.alpha, b"welcome back")
    network.run(lambda: bool(network.beta.received), limit_s=0.1)


def test_what_waits_is_bounded() -> None:
    network = Network(settings=LinkSettings(queue_messages=3, queue_bytes=MAX_MESSAGE_BYTES))
    network.passes = lambda _: False
    network.send(network.alpha, bytes(MAX_MESSAGE_BYTES - 1000))
    with pytest.raises(LinkFull, match="67107864 bytes wait"):
        network.send(network.alpha, bytes(2000))
    network.send(network.alpha, b"")
    network.send(network.alpha, b"")
    with pytest.raises(LinkFull, match="3 messages"):
        network.send(network.alpha, b"")


def test_messages_that_can_never_be_sent_are_a_mistake_of_the_caller() -> None:
    network = Network()
    with pytest.raises(ValueError, match="the largest is 67108864"):
        network.send(network.alpha, bytes(MAX_MESSAGE_BYTES + 1))
    with pytest.raises(ValueError, match="channel 32"):
        network.send(network.alpha, b"", channel=32)


@settings(max_examples=10)
@given(st.integers(0, 2**32), FAULTS, MESSAGES)
def test_a_run_is_a_function_of_its_seed(seed: int, faults: Faults, script: list[tuple[bool, int, int, float]]) -> None:
    runs: list[tuple[float, int, Counter[str], Counter[str]]] = []
    for _ in range(2):
        network = Network(seed, faults, SMALL)
        play(network, script)
        network.run(lambda network=network: network.is_quiet, limit_s=1000)  # type: ignore[misc]
        runs.append((network.now, len(network.history), network.alpha.counters, network.beta.counters))
    assert runs[0] == runs[1]


def test_a_violation_by_the_peer_is_not_acknowledged() -> None:
    """A broken or malicious peer with a valid key: it acknowledges what was never sent, or writes nonsense."""
    network = joined(Network())
    received = list(network.beta.received)
    session = network.alpha.link._sessions.current
    assert session is not None
    for body in (write_ack([(0, 10**6)], 0.0, 0, 0), b"\xff", message_head(0, 1, 5)):
        datagram = network.alpha.link._sender.seal(session, body)
        network.deliver(Transit(network.alpha.address, network.beta.address, datagram))
    network.run_for(1)
    assert network.beta.counters["dropped_violation"] == 3
    assert network.beta.received == received


def test_a_hello_that_reached_the_wrong_link_is_dropped() -> None:
    network = Network()
    hello = (
        write_header(DatagramKind.HELLO, 0, 0)
        + Initiator(
            name="gamma",
            identity=Identity.generate(),
            peer="beta",
            peer_keys=IDENTITIES["beta"].public,
            session_id=1,
            incarnation=1,
            generation=1,
            ephemeral=ec.generate_private_key(ec.SECP256R1()),
        ).hello
    )
    network.deliver(Transit(("10.0.0.9", 9), network.beta.address, hello))
    assert network.beta.counters["dropped_malformed"] == 1
    assert not network.beta.ids.used


def test_a_hello_with_an_impossible_key_takes_nothing() -> None:
    network = Network()
    network.send(network.alpha, b"x")
    body = bytearray(network.history[0].datagram[HEADER_BYTES:])
    body[17:82] = b"\x04" + b"\x01" * 64
    secrets = StaticSecrets(IDENTITIES["alpha"], IDENTITIES["beta"].public)
    body[-80:-64] = _hello_proof(secrets.as_initiator()[0], 0, bytes(body[:-80]))
    body[-16:] = _hello_mac(IDENTITIES["beta"].public, bytes(body[:-16]))
    hello = write_header(DatagramKind.HELLO, 0, 0) + bytes(body)
    network.deliver(Transit(network.alpha.address, network.beta.address, hello))
    assert network.beta.counters["dropped_malformed"] == 1
    assert not network.beta.ids.used


def test_a_repeated_hello_gets_the_same_answer() -> None:
    """So that repeating it costs us no second key exchange."""
    network = Network()
    network.send(network.alpha, b"x")
    hello = network.history[0]
    for _ in range(3):
        network.deliver(hello)
    answers = {transit.datagram for transit in network.history if transit.datagram[0] == DatagramKind.ACCEPT}
    assert len(answers) == 1


def test_a_cookie_that_answers_nothing_is_dropped() -> None:
    network = joined(Network())
    cookie = write_header(DatagramKind.COOKIE, 12345, 1)
    network.deliver(Transit(network.beta.address, network.alpha.address, cookie))
    assert network.alpha.counters["dropped_malformed"] == 1


# Keys that change


def test_a_peer_that_restarts_again_and_again_leaves_no_more_than_the_window_and_one_initial_credit() -> None:
    network = joined(Network(settings=SMALL))
    network.beta.is_taking = False
    for life in range(10):
        for number in range(40):
            network.send(network.alpha, bytes([life, number]))
        network.run_for(0.5)
        if life < 9:
            network.alpha.start(network.now)
    incoming = network.beta.link._incoming
    assert incoming.untaken[1] == SMALL.window_messages + INITIAL_CREDIT_MESSAGES
    assert network.beta.counters["dropped_no_room"]
    assert not network.beta.counters["dropped_violation"]
    network.beta.is_taking = True
    network.pump(network.beta)
    network.run(lambda: network.is_quiet, limit_s=30)
    assert network.beta.data_received(0)[-40:] == [bytes([9, number]) for number in range(40)]
