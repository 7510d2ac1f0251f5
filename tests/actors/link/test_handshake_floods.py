"""Who cannot prove to be the peer keeps nobody from opening a session, and makes nobody send or remember much."""

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from batonpass.actors.link import Address, LinkExpired
from batonpass.actors.link.frames import HEADER_BYTES, DatagramKind, write_header
from batonpass.actors.link.sessions import HANDSHAKE_BURST, MAX_HALF_OPEN
from batonpass.crypto.keys import Identity
from batonpass.crypto.session import Initiator, echo_cookie, prove_cookie, read_hello_untrusted
from batonpass.crypto.static_secrets import StaticSecrets
from tests.actors.link.network import IDENTITIES, P256_ORDER, Faults, Network, Transit

MALLORY = Identity.generate()
FORGER = ("6.6.6.6", 666)
PATH = Faults(delay_s=0.01)


def initiator_of(identity: Identity, number: int) -> Initiator:
    return Initiator(
        name="alpha",
        identity=identity,
        peer="beta",
        peer_keys=IDENTITIES["beta"].public,
        session_id=1000 + number,
        incarnation=number,
        generation=0xFFFF_FFFF,
        ephemeral=ec.derive_private_key(P256_ORDER - 1 - number, ec.SECP256R1()),
    )


def hellos(identity: Identity, count: int) -> list[bytes]:
    """In alpha's name: recorded ones when the identity is alpha's, or else forged ones."""
    return [write_header(DatagramKind.HELLO, 0, 0) + initiator_of(identity, number).hello for number in range(count)]


FORGED, RECORDED = hellos(MALLORY, 20), hellos(IDENTITIES["alpha"], 200)


def flood(network: Network, datagrams: list[bytes], *, per_s: float, duration_s: float) -> None:
    """These, over and over, from many addresses."""
    sent = itertools.cycle(datagrams)
    for number in range(int(per_s * duration_s)):
        source = ("6.6.6.6", 1 + number % 60_000)
        network.deliver_in(number / per_s, Transit(source, network.beta.address, next(sent)))


@pytest.mark.parametrize("datagrams", [FORGED, RECORDED, FORGED + RECORDED], ids=["forged", "recorded", "both"])
def test_a_session_opens_under_a_flood_of_hellos_in_the_peers_name(datagrams: list[bytes]) -> None:
    network = Network(faults=PATH)
    flood(network, datagrams, per_s=2000, duration_s=2.0)
    network.run_for(0.5)
    network.send(network.alpha, b"through")
    began_s = network.now
    network.run(lambda: bool(network.beta.received), limit_s=1.4)
    # HELLO, COOKIE, HELLO, ACCEPT, CONFIRM: four ways of ten milliseconds before the message.
    assert network.now - began_s == pytest.approx(0.05 if RECORDED[0] in datagrams else 0.03)
    assert len(network.beta.ids.used) <= MAX_HALF_OPEN + 1


@pytest.mark.parametrize("datagrams", [FORGED, RECORDED], ids=["forged", "recorded"])
def test_a_session_that_exists_is_replaced_under_a_flood(datagrams: list[bytes]) -> None:
    network = Network(faults=PATH, settings=replace(Network().settings, rekey_after_s=1.0))
    network.send(network.alpha, b"first")
    network.run(lambda: network.is_quiet and bool(network.beta.received))
    flood(network, datagrams, per_s=1000, duration_s=3.0)
    for number in range(30):
        network.send(network.alpha, bytes([number]))
        network.run_for(0.1)
    assert network.beta.counters["handshakes"] >= 3
    assert len(network.beta.received) == 31


def test_a_forged_hello_costs_no_key_no_memory_and_no_answer() -> None:
    network = Network()
    drawn = network.beta.rng.getstate()
    for datagram in FORGED:
        network.deliver(Transit(FORGER, network.beta.address, datagram))
    assert network.beta.rng.getstate() == drawn
    assert not network.beta.ids.used
    assert not network.history
    assert network.beta.counters["dropped_unproved"] == len(FORGED)


def test_recorded_hellos_push_out_nobody() -> None:
    network = Network()
    for datagram in RECORDED:
        network.deliver(Transit(FORGER, network.beta.address, datagram))
    half_open = network.beta.link._sessions._half_open
    assert [one.hello.session_id for one in half_open.values()] == [1000, 1001, 1002, 1003]
    assert [transit.datagram[0] for transit in network.history[:5]] == [DatagramKind.ACCEPT] * 4 + [DatagramKind.COOKIE]


def test_hellos_with_fresh_cookies_push_out_recordings_first() -> None:
    """Also when those came later; and then the oldest."""
    network = Network()
    place = ("10.0.0.7", 7)

    def deliver(number: int, *, is_fresh: bool) -> None:
        cookie = cookie_of(network, RECORDED[number], place) if is_fresh else 0
        network.deliver(Transit(place, network.beta.address, as_repeated(number, cookie)))

    def half_open() -> list[int]:
        return [one.hello.session_id - 1000 for one in network.beta.link._sessions._half_open.values()]

    for number in range(12):
        deliver(number, is_fresh=number not in {2, 3})
        if number == 7:
            assert half_open() == [0, 1, 2, 3, 4, 5, 6, 7]
        if number == 9:
            assert half_open() == [0, 1, 4, 5, 6, 7, 8, 9]
    assert half_open() == [4, 5, 6, 7, 8, 9, 10, 11]


def cookie_of(network: Network, datagram: bytes, place: Address) -> int:
    """What beta would ask for."""
    keys = IDENTITIES["beta"].public
    hello = read_hello_untrusted(datagram[HEADER_BYTES:], responder="beta", responder_keys=keys)
    return network.beta.link._sessions._gate.cookie(hello, place, network.now)


def as_repeated(number: int, cookie: int) -> bytes:
    """One of `RECORDED`, as its initiator repeats it with a cookie."""
    initiator = initiator_of(IDENTITIES["alpha"], number)
    initiator.take_cookie(cookie)
    return write_header(DatagramKind.HELLO, 0, cookie) + initiator.hello


def test_what_was_fresh_is_a_recording_after_a_restart_of_the_responder() -> None:
    """The key of the cookies is drawn anew, so nothing needs to be remembered for it."""
    network = Network()
    place = ("10.0.0.7", 7)
    recorded = [as_repeated(number, cookie_of(network, RECORDED[number], place)) for number in range(12)]
    for half_open in (8, 4):
        for datagram in recorded:
            network.deliver(Transit(place, network.beta.address, datagram))
        assert len(network.beta.link._sessions._half_open) == half_open
        network.beta.start(network.now)


def with_cookie(network: Network, datagram: bytes, source: tuple[str, int]) -> bytes:
    """The HELLO again as its initiator writes it when it gets the COOKIE that beta sends there."""
    before = len(network.history)
    network.deliver(Transit(source, network.beta.address, datagram))
    (cookie,) = network.history[before:]
    assert cookie.destination == source
    number = int.from_bytes(datagram[HEADER_BYTES + 1 : HEADER_BYTES + 5], "little") - 1000
    initiator = initiator_of(IDENTITIES["alpha"], number)
    assert initiator.read_cookie_untrusted(cookie.datagram[:16], cookie.datagram[16:])
    value = int.from_bytes(cookie.datagram[8:16], "little")
    initiator.take_cookie(value)
    return write_header(DatagramKind.HELLO, 0, value) + initiator.hello


def test_a_cookie_is_good_for_its_hello_its_address_and_under_its_initiators_mac_only() -> None:
    network = Network()
    for datagram in RECORDED[:4]:
        network.deliver(Transit(FORGER, network.beta.address, datagram))
    source = ("10.0.0.7", 7)
    good = with_cookie(network, RECORDED[5], source)
    other = write_header(DatagramKind.HELLO, 0, int.from_bytes(good[8:16], "little")) + RECORDED[6][HEADER_BYTES:]
    for datagram, place in ((good, FORGER), (other, source)):
        network.deliver(Transit(place, network.beta.address, datagram))
        assert len(network.beta.link._sessions._half_open) == 4
    assert network.beta.counters["dropped_unproved"] == 1  # the MAC covers the cookie
    network.deliver(Transit(source, network.beta.address, good))
    assert len(network.beta.link._sessions._half_open) == 5


def test_a_peer_with_good_keys_gets_a_bounded_number_of_answers() -> None:
    """Its own, and not the endpoint's: there are others."""
    network = Network()
    network.beta.link._sessions._gate._tokens = network.beta.link._sessions._gate._burst = 1000.0
    place = ("10.0.0.7", 7)
    for number in range(40):
        cookie = cookie_of(network, RECORDED[number], place)
        network.deliver(Transit(place, network.beta.address, as_repeated(number, cookie)))
    assert network.beta.counters["dropped_handshake_rate"] == 40 - HANDSHAKE_BURST


def test_a_half_open_handshake_ends_and_its_confirm_comes_too_late() -> None:
    network = Network(passes=lambda transit: transit.datagram[0] != DatagramKind.CONFIRM)
    network.send(network.alpha, b"x")
    network.run_for(0.1)
    (confirm, *_) = (transit for transit in network.history if transit.datagram[0] == DatagramKind.CONFIRM)
    assert network.beta.link._sessions._half_open
    network.alpha.is_paused = True
    network.run_for(11)
    assert not network.beta.ids.used
    network.deliver(confirm)
    assert not network.beta.link.is_open


def test_a_link_that_only_a_hello_asked_for_ends_when_no_confirm_comes() -> None:
    """While one that the application asked for, or whose peer has proved its name, is kept for five minutes."""
    network = Network()
    network.deliver(Transit(FORGER, network.beta.address, RECORDED[0]))
    network.run_for(9)
    assert not network.beta.events
    network.run_for(2)
    assert network.beta.events == [LinkExpired(0)]
    assert not network.beta.ids.used


def test_recordings_of_a_confirm_get_few_answers() -> None:
    network = Network()
    network.send(network.alpha, b"x")
    network.run(lambda: network.is_quiet and bool(network.beta.received))
    network.run_for(1)
    confirm = next(transit for transit in network.history if transit.datagram[0] == DatagramKind.CONFIRM)
    before = network.beta.counters["datagrams_out"]
    for number in range(2000):
        network.deliver_in(number / 2000, confirm)
    network.run_for(1.5)
    assert network.beta.counters["datagrams_out"] - before <= 12


# COOKIEs


def opening() -> tuple[Network, bytes]:
    """Alpha has sent a HELLO, which is lost, as are all others."""
    network = Network(faults=PATH, passes=lambda transit: transit.datagram[0] != DatagramKind.HELLO)
    network.send(network.alpha, b"x")
    return network, network.history[0].datagram


def answer_to(hello: bytes, cookie: int) -> bytes:
    """A COOKIE as somebody can make it who has seen the HELLO."""
    header = write_header(DatagramKind.COOKIE, int.from_bytes(hello[17:21], "little"), cookie)
    return header + echo_cookie(header, hello[-16:])


def hellos_in(network: Network) -> int:
    return sum(transit.datagram[0] == DatagramKind.HELLO for transit in network.history)


@pytest.mark.parametrize(
    "forge",
    [
        lambda hello: answer_to(hello, 7)[:HEADER_BYTES],
        lambda hello: answer_to(hello, 7)[:-1],
        lambda hello: answer_to(hello, 7)[:-1] + b"?",
        lambda hello: write_header(DatagramKind.COOKIE, int.from_bytes(hello[17:21], "little"), 7) + bytes(16),
    ],
)
def test_a_cookie_that_does_not_show_that_the_hello_was_seen_is_dropped(forge: Callable[[bytes], bytes]) -> None:
    network, hello = opening()
    network.deliver(Transit(network.beta.address, network.alpha.address, forge(hello)))
    assert hellos_in(network) == 1


def test_a_cookie_from_where_no_hello_went_is_dropped() -> None:
    network, hello = opening()
    network.deliver(Transit(FORGER, network.alpha.address, answer_to(hello, 7)))
    assert hellos_in(network) == 1
    assert network.alpha.counters["dropped_malformed"] == 1


def test_cookies_get_one_hello_for_each_that_was_sent_anyway() -> None:
    """Whoever sees the HELLOs, and answers each at once, doubles them."""
    network, _ = opening()
    for _ in range(300):
        network.run_for(0.01)
        latest = next(
            transit.datagram for transit in reversed(network.history) if transit.datagram[0] == DatagramKind.HELLO
        )
        for cookie in range(1, 6):
            network.deliver(Transit(network.beta.address, network.alpha.address, answer_to(latest, cookie)))
    quiet, _ = opening()
    quiet.run_for(3.0)
    assert hellos_in(quiet) <= hellos_in(network) <= 2 * hellos_in(quiet)


@pytest.mark.parametrize("per_hello", [1, 2, 5])
def test_a_peer_that_knows_us_is_not_talked_over_by_somebody_who_sees_the_hellos(per_hello: int) -> None:
    """Beta wants cookies; somebody nearer to alpha answers each of its HELLOs first, with wrong ones."""
    network = Network(faults=PATH)
    for datagram in RECORDED[:4]:
        network.deliver(Transit(FORGER, network.beta.address, datagram))

    def overheard(transit: Transit) -> bool:
        if transit.datagram[0] == DatagramKind.HELLO and transit.source == network.alpha.address:
            for number in range(per_hello):
                cookie = answer_to(transit.datagram, 666 + number)
                network.deliver_in(0.001 + number / 1000, Transit(transit.destination, transit.source, cookie))
        return True

    network.passes = overheard
    network.send(network.alpha, b"through")
    network.run(lambda: bool(network.beta.received), limit_s=1.0)


def test_when_the_peer_has_proved_its_cookie_others_do_not_count() -> None:
    network, hello = opening()
    secrets = StaticSecrets(IDENTITIES["beta"], IDENTITIES["alpha"].public)
    keys = IDENTITIES["beta"].public
    read = read_hello_untrusted(hello[HEADER_BYTES:], responder="beta", responder_keys=keys)
    header = write_header(DatagramKind.COOKIE, read.session_id, 7)
    for cookie in (header + prove_cookie(secrets, read, header), None):
        latest = next(
            transit.datagram for transit in reversed(network.history) if transit.datagram[0] == DatagramKind.HELLO
        )
        network.deliver(Transit(network.beta.address, network.alpha.address, cookie or answer_to(latest, 666)))
        network.run_for(0.5)
    shown = [transit.datagram[8:16] for transit in network.history if transit.datagram[0] == DatagramKind.HELLO]
    assert shown == [bytes(8)] + [(7).to_bytes(8, "little")] * (len(shown) - 1)
    assert network.alpha.counters["dropped_bad_signature"] == 1
