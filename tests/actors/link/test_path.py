"""Where traffic goes when datagrams come from another address: after the peer, and after nobody else."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.actors.link import LinkSettings
from batonpass.actors.link.frames import (
    HEADER_BYTES,
    MAX_CONTROL_FRAMES,
    DatagramKind,
    PathResponse,
    read_frames_untrusted,
    read_header_untrusted,
    write_challenge,
)
from batonpass.actors.link.path import AMPLIFICATION, Path
from tests.actors.link.network import Faults, Network, Node, Transit

HOME, ELSEWHERE, EVIL = ("10.0.0.1", 1), ("10.0.0.3", 3), ("6.6.6.6", 666)


def path_to(address: tuple[str, int] | None = HOME) -> Path:
    tokens = iter(range(100, 200))
    path = Path(lambda: next(tokens))
    if address is not None:
        path.prove(address)
    return path


def asked(path: Path, now: float, size_bytes: int = 41) -> dict[tuple[str, int], int]:
    return {address: token for token, address in path.due_challenges(size_bytes, now)}


class TestPath:
    def test_both_addresses_are_asked_and_traffic_stays_meanwhile(self) -> None:
        path = path_to()
        path.on_arrival(ELSEWHERE, 100, 0.1, 0.0)
        assert asked(path, 0.0).keys() == {HOME, ELSEWHERE}
        assert path.address == HOME

    def test_it_moves_when_the_new_address_has_answered_and_the_old_one_has_had_its_time(self) -> None:
        path = path_to()
        path.on_arrival(ELSEWHERE, 100, 0.1, 0.0)
        token = asked(path, 0.0)[ELSEWHERE]
        assert not path.on_response(token, 0.01)
        assert path.address == HOME
        assert path.next_timer() == 0.1
        assert path.run_timers(0.1)
        assert path.address == ELSEWHERE
        assert path.next_timer() == float("inf")

    def test_an_answer_after_that_time_moves_it_at_once(self) -> None:
        path = path_to()
        path.on_arrival(ELSEWHERE, 100, 0.1, 0.0)
        assert path.on_response(asked(path, 0.0)[ELSEWHERE], 0.2)

    def test_when_the_old_address_answers_too_it_stays(self) -> None:
        path = path_to()
        path.on_arrival(EVIL, 100, 0.1, 0.0)
        tokens = asked(path, 0.0)
        path.on_response(tokens[EVIL], 0.01)
        path.on_response(tokens[HOME], 0.05)
        assert not path.run_timers(0.2)
        assert path.address == HOME
        path.on_arrival(EVIL, 100, 0.1, 0.5)  # too soon to be asked again
        assert not path.is_asking

    def test_when_the_peer_writes_from_the_old_address_again_it_stays(self) -> None:
        path = path_to()
        path.on_arrival(EVIL, 100, 0.1, 0.0)
        path.on_arrival(HOME, 100, 0.1, 0.01)
        assert not path.is_asking
        assert path.address == HOME

    def test_who_does_not_answer_is_forgotten(self) -> None:
        path = path_to()
        path.on_arrival(EVIL, 1000, 0.1, 0.0)
        times = []
        while path.is_asking:
            now = path.next_timer()
            path.run_timers(now)
            times += [now] if asked(path, now) else []
        assert times == pytest.approx([0.0, 0.1, 0.3, 0.7])
        assert path.address == HOME

    @given(st.lists(st.tuples(st.integers(33, 1200), st.floats(0, 0.2)), max_size=20))
    def test_an_address_that_does_not_answer_gets_at_most_three_times_what_came_from_it(
        self, arrivals: list[tuple[int, float]]
    ) -> None:
        path = path_to(None)
        path.suppose(EVIL, 97, 0.02, 0.0)
        received, sent, now = 97, 0, 0.0
        for size, pause_s in arrivals:
            now += pause_s
            path.run_timers(now)
            path.on_arrival(EVIL, size, 0.02, now)
            received += size
            sent += 41 * len(asked(path, now))
            while path.may_send(100):
                path.note_sent(100)
                sent += 100
            assert sent <= AMPLIFICATION * received

    def test_what_is_supposed_is_proved_by_an_answer(self) -> None:
        path = path_to(None)
        path.suppose(HOME, 97, 0.1, 0.0)
        assert not path.may_send(1200)
        path.on_response(asked(path, 0.0)[HOME], 0.01)
        assert path.is_proved
        assert path.may_send(10**9)

    def test_what_is_supposed_follows_the_newest_datagram_and_asks_again_when_it_was_given_up(self) -> None:
        path = path_to(None)
        path.suppose(EVIL, 97, 0.1, 0.0)
        path.on_arrival(HOME, 97, 0.1, 0.0)
        assert path.address == HOME
        assert not path.run_timers(5.0)
        assert not path.may_send(1)
        path.on_arrival(HOME, 97, 0.1, 6.0)
        assert asked(path, 6.0)


def joined(network: Network) -> Network:
    network.send(network.alpha, b"hello")
    network.run(lambda: network.is_quiet)
    network.send(network.beta, b"hello")
    network.run(lambda: network.is_quiet and bool(network.alpha.received and network.beta.received))
    network.run_for(network.settings.retire_after_s + 1)
    network.history.clear()
    return network


def relayed(network: Network, victim: Node, *, and_back: bool) -> None:
    """Mallory sits beside the way to `victim`'s peer: a copy of what `victim` sends gets there first, from her
    address. What she is sent she forwards to `victim`, if `and_back`, from her own address."""
    target = network.other(victim)

    def passes(transit: Transit) -> bool:
        if transit.source == victim.address:
            network.deliver_in(0.0, Transit(EVIL, target.address, transit.datagram))
        elif transit.destination == EVIL and and_back:
            network.deliver_in(0.0005, Transit(EVIL, victim.address, transit.datagram))
        return True

    network.passes = passes


def sent_to_mallory(network: Network) -> list[Transit]:
    return [transit for transit in network.history if transit.destination == EVIL]


@pytest.mark.parametrize("and_back", [False, True])
def test_copies_from_another_address_do_not_pull_traffic_there(and_back: bool) -> None:
    network = joined(Network())
    relayed(network, network.alpha, and_back=and_back)
    for number in range(200):
        network.send(network.alpha, bytes([number]) * 50)
        network.send(network.beta, bytes([number]) * 500)
        network.run_for(0.05)
    network.run(lambda: network.is_quiet)
    assert network.beta.link.address == network.alpha.address
    assert len(network.alpha.received) == len(network.beta.received) == 201
    challenge_bytes = HEADER_BYTES + len(write_challenge(0)) + 16
    sizes = {len(transit.datagram) for transit in sent_to_mallory(network)}
    assert sizes <= {challenge_bytes}  # questions, and answers to the questions that she relays
    assert len(sent_to_mallory(network)) <= 60  # in ten seconds: after a dismissal there is a pause


def test_recorded_datagrams_from_another_address_are_not_even_asked_about() -> None:
    network = joined(Network())
    network.send(network.alpha, b"x")
    network.run(lambda: network.is_quiet)
    for transit in list(network.history):
        network.deliver(Transit(EVIL, transit.destination, transit.datagram))
    network.run_for(2)
    assert not sent_to_mallory(network)


def test_traffic_follows_a_peer_that_moves_and_nothing_is_lost_or_repeated() -> None:
    network = joined(Network())
    for number in range(300):
        if number == 100:
            network.alpha.address = ELSEWHERE
        network.send(network.alpha, number.to_bytes(2, "big"))
        network.beta.link.send(number.to_bytes(2, "big"), network.now)  # no word from the application on where alpha is
        network.pump(network.beta)
        network.run_for(0.001)
    network.run(lambda: network.is_quiet, limit_s=5)
    assert network.beta.link.address == ELSEWHERE
    assert network.beta.counters["address_changes"] == 1
    for node in network.nodes:
        assert node.data_received(0)[1:] == [number.to_bytes(2, "big") for number in range(300)]
        assert node.counters["handshakes"] == 1


def test_a_new_path_begins_with_a_small_window_and_an_unknown_round_trip() -> None:
    network = joined(Network(faults=Faults(delay_s=0.2)))
    network.send(network.beta, bytes(3_000_000))
    network.run(lambda: network.is_quiet)
    grown = network.beta.link._recovery._congestion.bytes
    network.alpha.address = ELSEWHERE
    network.send(network.alpha, b"from elsewhere")
    network.run(lambda: network.beta.link.address == ELSEWHERE)
    recovery = network.beta.link._recovery
    assert recovery._congestion.bytes == network.settings.initial_flight_bytes < grown
    assert not recovery.round_trip.was_measured


def test_what_waits_for_a_peer_that_restarts_behind_a_narrower_path_is_cut_anew() -> None:
    """From the same machine to another one, for instance: datagrams of 60 kB do not get there."""
    wide = replace(LinkSettings(), max_datagram_bytes=61_440)
    network = joined(Network(settings=wide))
    network.alpha.link._settings_for = lambda _: replace(wide, max_datagram_bytes=1200)
    network.passes = lambda transit: transit.destination != network.beta.address
    network.send(network.alpha, bytes(1_000_000))
    network.run_for(0.1)
    network.beta.address = ELSEWHERE
    network.beta.start(network.now)
    network.passes = lambda transit: transit.destination != ELSEWHERE or len(transit.datagram) <= 1200
    network.send(network.beta, b"I am here now")
    network.run(lambda: network.is_quiet and bool(network.beta.received), limit_s=10)
    assert len(network.beta.data_received(0)[-1]) == 1_000_000


def test_a_peer_that_leaves_and_comes_back_within_the_question_is_not_lost() -> None:
    network = joined(Network())
    home = network.alpha.address
    for address in (ELSEWHERE, home, ELSEWHERE, home):
        network.alpha.address = address
        network.send(network.alpha, b"where am I?")
        network.run_for(0.002)
    network.run(lambda: network.is_quiet, limit_s=5)
    assert network.beta.link.address == home


def test_a_confirm_from_another_address_proves_nothing_and_gets_little_until_it_has_answered() -> None:
    """Mallory holds the CONFIRM back and sends a copy of it from an address that she wants to see flooded."""
    network = Network()
    network.beta.link.send(bytes(500_000), network.now)  # what the victim would get
    network.passes = lambda transit: transit.datagram[0] not in {DatagramKind.CONFIRM, DatagramKind.DATA}
    network.send(network.alpha, b"x")
    network.run_for(0.05)
    confirm = next(transit for transit in network.history if transit.datagram[0] == DatagramKind.CONFIRM)
    network.deliver(Transit(EVIL, confirm.destination, confirm.datagram))
    network.run_for(3)
    sent_bytes = sum(len(transit.datagram) for transit in sent_to_mallory(network))
    assert 0 < sent_bytes <= AMPLIFICATION * len(confirm.datagram)
    network.passes = lambda _: True
    network.run(lambda: len(network.alpha.received) == 1 and network.is_quiet, limit_s=20)
    assert network.beta.link.address == network.alpha.address


def test_an_accept_from_another_address_is_only_a_reason_to_ask_there() -> None:
    network = Network()
    network.passes = lambda transit: transit.datagram[0] != DatagramKind.ACCEPT
    network.send(network.alpha, b"x")
    network.run_for(0.05)
    accept = next(transit for transit in network.history if transit.datagram[0] == DatagramKind.ACCEPT)
    network.deliver(Transit(EVIL, accept.destination, accept.datagram))
    assert network.alpha.link.address == network.beta.address
    network.passes = lambda _: True
    network.run(lambda: network.is_quiet and len(network.beta.received) == 1, limit_s=5)
    assert network.alpha.link.address == network.beta.address


def test_a_datagram_full_of_challenges_gets_one_answer() -> None:
    network = joined(Network())
    session = network.alpha.link._sessions.current
    assert session is not None
    flood = network.alpha.link._sender.seal(session, b"".join(map(write_challenge, range(MAX_CONTROL_FRAMES))))
    network.deliver(Transit(EVIL, network.beta.address, flood))
    assert not network.beta.counters["dropped_violation"], "it is one that is read"
    frames = []
    for transit in sent_to_mallory(network):
        header, body = transit.datagram[:HEADER_BYTES], transit.datagram[HEADER_BYTES:]
        frames += read_frames_untrusted(
            session.session.open_untrusted(read_header_untrusted(header).counter, header, body)
        )
    assert [frame for frame in frames if isinstance(frame, PathResponse)] == [PathResponse(MAX_CONTROL_FRAMES - 1)]
    assert len(frames) == 2  # the answer, and a question


@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.1, 0.3]), st.sampled_from([0.0005, 0.02, 0.2]))
def test_on_a_bad_network_a_peer_that_moves_again_and_again_is_followed(seed: int, lose: float, delay_s: float) -> None:
    network = Network(seed, Faults(lose=lose, repeat=0.1, corrupt=0.02, delay_s=delay_s, jitter_s=delay_s))
    for number in range(12):
        network.alpha.address = ("10.0.1.1", 1 + number // 3)
        network.send(network.alpha, bytes([number]) * 2000)
        network.send(network.beta, bytes([number]) * 2000)
        network.run_for(0.3)
    network.run(lambda: network.is_quiet, limit_s=300)
    for node in network.nodes:
        assert node.data_received(0) == [bytes([number]) * 2000 for number in range(12)]


def test_a_session_is_replaced_when_it_is_two_minutes_old_and_in_use() -> None:
    network = joined(Network())
    handshakes = []
    for _ in range(400):
        network.send(network.alpha, b"every second")
        network.run_for(1)
        handshakes.append(network.alpha.counters["handshakes"])
    network.run(lambda: network.is_quiet)
    assert len(network.beta.received) == 401
    changes = [second for second in range(1, 400) if handshakes[second] > handshakes[second - 1]]
    assert changes == pytest.approx([109, 229, 350], abs=2)  # 11 s were over when this began
    assert len(network.alpha.link._sessions.live) <= 2


def test_an_old_session_that_is_not_used_is_left_alone() -> None:
    network = joined(Network())
    network.run_for(200)
    assert network.history == []
    network.send(network.beta, b"after a pause")
    network.run_for(2)
    assert network.beta.counters["handshakes"] - 1 in {1, 2}  # both may find it old, and open
    assert network.alpha.received[-1].data == b"after a pause"


def test_a_session_ends_with_its_last_datagram_even_if_no_other_can_replace_it() -> None:
    network = joined(Network(settings=replace(LinkSettings(), rekey_after_datagrams=50, max_session_datagrams=100)))
    network.passes = lambda transit: transit.datagram[0] != DatagramKind.HELLO
    for number in range(300):
        network.send(network.alpha, bytes([number % 256]))
        network.run_for(0.002)
    sealed = [transit for transit in network.history if transit.datagram[0] == DatagramKind.DATA]
    from_alpha = [transit for transit in sealed if transit.source == network.alpha.address]
    assert len(from_alpha) <= 102
    network.passes = lambda _: True
    network.run(lambda: network.is_quiet, limit_s=10)
    assert network.beta.data_received(0)[1:] == [bytes([number % 256]) for number in range(300)]


@pytest.mark.parametrize("change", [{"rekey_after_datagrams": 2**23}, {"max_session_datagrams": 2**24}])
def test_a_session_cannot_be_set_to_outlive_its_key(change: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="max_session_datagrams"):
        replace(LinkSettings(), **change)
