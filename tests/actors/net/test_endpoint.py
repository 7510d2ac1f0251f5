"""Endpoints on real sockets: two servers on loopback, restarts, strangers, and what must not be answered."""

import math
import random
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import trio

from batonpass.actors.link.frames import HEADER_BYTES, DatagramKind, write_header
from batonpass.actors.link.settings import MAX_MESSAGE_BYTES
from batonpass.actors.net.endpoint import LinkDown, LinkEndpoint, LinkFull, LinkSettings, Received
from batonpass.crypto.keys import Identity, PublicIdentity

ALPHA, BETA, STRANGER = Identity.generate(), Identity.generate(), Identity.generate()
BETA_KID = BETA.public.signing_kid


@dataclass
class Directory:
    """Knows alpha.s1 and beta.s1, and counts how often it was asked."""

    keys: dict[str, PublicIdentity] = field(default_factory=lambda: {"alpha.s1": ALPHA.public, "beta.s1": BETA.public})
    questions: list[str] = field(default_factory=list)

    async def keys_of(self, name: str) -> PublicIdentity | None:
        self.questions.append(name)
        await trio.lowlevel.checkpoint()
        return self.keys.get(name)


@asynccontextmanager
async def serving(
    name: str,
    identity: Identity,
    directory: Directory | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    inbox_capacity: int = 1024,
    unreachable_after_s: float = 5.0,
    settings: LinkSettings | None = None,
    seed: int | None = None,
) -> AsyncIterator[LinkEndpoint]:
    endpoint = LinkEndpoint(
        name,
        identity,
        directory if directory is not None else Directory(),
        host=host,
        port=port,
        inbox_capacity=inbox_capacity,
        unreachable_after_s=unreachable_after_s,
        settings=settings,
        rng=None if seed is None else random.Random(seed),
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(endpoint.serve)
        yield endpoint
        nursery.cancel_scope.cancel()


async def receive(endpoint: LinkEndpoint) -> Received:
    with trio.fail_after(90):
        return await endpoint.inbox.receive()


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(90):
        while not condition():  # noqa: ASYNC110 -- what is waited for are counters, which have no event
            await trio.sleep(0.002)


async def test_a_message_arrives_with_the_proved_name_of_its_sender() -> None:
    async with serving("alpha.s1", ALPHA) as alpha, serving("beta.s1", BETA) as beta:
        await alpha.send("beta.s1", beta.address, b"hello", channel=3)
        assert await receive(beta) == Received("alpha.s1", b"hello", 3, alpha.address)
        await beta.send("alpha.s1", alpha.address, b"hello back")
        assert await receive(alpha) == Received("beta.s1", b"hello back", 0, beta.address)


@pytest.mark.parametrize("datagram_bytes", [1200, 61_440])
async def test_the_largest_message_arrives_whole(datagram_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batonpass.actors.net.link_table._datagram_bytes", lambda _family, _address: datagram_bytes)
    message = random.Random(1).randbytes(MAX_MESSAGE_BYTES)
    async with serving("alpha.s1", ALPHA) as alpha, serving("beta.s1", BETA) as beta:
        with trio.fail_after(90):
            await alpha.send("beta.s1", beta.address, message)
        assert (await receive(beta)).message == message


async def test_posts_of_one_turn_leave_together() -> None:
    async with serving("alpha.s1", ALPHA) as alpha, serving("beta.s1", BETA) as beta:
        await alpha.send("beta.s1", beta.address, b"open")
        await receive(beta)
        before = alpha.stats["datagrams_out"]
        for number in range(500):
            alpha.post("beta.s1", beta.address, number.to_bytes(2, "big"))
        assert [int.from_bytes((await receive(beta)).message, "big") for _ in range(500)] == list(range(500))
        assert alpha.stats["datagrams_out"] - before < 20


async def test_what_was_taken_is_acknowledged_although_whoever_took_it_does_something_else() -> None:
    """Its acknowledgement waits for the answer, but not for ever."""
    async with serving("alpha.s1", ALPHA) as alpha, serving("beta.s1", BETA) as beta, trio.open_nursery() as nursery:

        async def take_and_go() -> None:
            for _ in range(2):
                await receive(beta)
            await trio.sleep_forever()

        nursery.start_soon(take_and_go)
        for message in (b"open", b"and one that finds the reader waiting"):
            await alpha.send("beta.s1", beta.address, message)
            await until(lambda: alpha.backlog("beta.s1").messages == 0)
        nursery.cancel_scope.cancel()


async def test_both_sides_opening_at_once_talk_on_one_session() -> None:
    async with serving("alpha.s1", ALPHA) as alpha, serving("beta.s1", BETA) as beta:
        alpha.post("beta.s1", beta.address, b"from alpha")
        beta.post("alpha.s1", alpha.address, b"from beta")
        assert (await receive(beta)).message == b"from alpha"
        assert (await receive(alpha)).message == b"from beta"
        for number in range(20):
            await alpha.send("beta.s1", beta.address, bytes([number]))
            assert (await receive(beta)).message == bytes([number])
        assert alpha.stats.get("dropped_no_session", 0) == 0


async def test_a_restarted_peer_gets_what_it_had_not_acknowledged() -> None:
    async with serving("alpha.s1", ALPHA) as alpha:
        async with serving("beta.s1", BETA) as beta:
            address = beta.address
            await alpha.send("beta.s1", address, b"first")
            await receive(beta)
            await until(lambda: not alpha.backlog("beta.s1").messages)  # or beta's successor would get it again
        for number in range(5):
            alpha.post("beta.s1", address, bytes([number]))
        async with serving("beta.s1", BETA, port=address[1]) as beta:
            assert [(await receive(beta)).message for _ in range(5)] == [bytes([number]) for number in range(5)]
            await beta.send("alpha.s1", alpha.address, b"I am back")
            assert (await receive(alpha)).message == b"I am back"


async def test_a_killed_peer_is_found_again_although_it_could_not_say_goodbye() -> None:
    async with serving("alpha.s1", ALPHA) as alpha:
        async with serving("beta.s1", BETA) as beta:
            address = beta.address
            await alpha.send("beta.s1", address, b"first")
            await receive(beta)
            await until(lambda: not alpha.backlog("beta.s1").messages)  # or beta's successor would get it again
            beta._links.clear()  # nobody is told, as after a kill
        alpha.post("beta.s1", address, b"second")
        async with serving("beta.s1", BETA, port=address[1]) as beta:
            assert (await receive(beta)).message == b"second"
            assert alpha.stats["peer_restarts"] == 1


async def test_a_peer_that_came_back_elsewhere_is_reached_at_once() -> None:
    async with serving("alpha.s1", ALPHA) as alpha:
        async with serving("beta.s1", BETA) as beta:
            await alpha.send("beta.s1", beta.address, b"first")
            await receive(beta)
            beta._links.clear()
        async with serving("beta.s1", BETA) as beta:
            await alpha.send("beta.s1", beta.address, b"second")
            received = await receive(beta)
            if received.message == b"first":  # it was not acknowledged any more, so it comes again
                received = await receive(beta)
            assert received == Received("alpha.s1", b"second", 0, alpha.address)


async def test_a_sender_that_the_directory_does_not_know_is_dropped_and_counted() -> None:
    directory = Directory()
    everybody = Directory({**directory.keys, "stranger": STRANGER.public})
    async with (
        serving("beta.s1", BETA, directory) as beta,
        serving("stranger", STRANGER, everybody, unreachable_after_s=0.5) as stranger,
    ):
        with pytest.raises(LinkDown, match=r"beta\.s1: no answer"):
            await stranger.send("beta.s1", beta.address, b"let me in")
        assert beta.stats["dropped_unknown_peer"] > 0
        assert beta.stats.get("datagrams_out", 0) == 0
        assert beta.stats["links"] == 0
        assert directory.questions.count("stranger") < beta.stats["dropped_unknown_peer"] + 1


async def test_somebody_elses_name_does_not_help_a_stranger() -> None:
    async with (
        serving("beta.s1", BETA) as beta,
        serving("alpha.s1", STRANGER, unreachable_after_s=0.5) as impostor,
    ):
        with pytest.raises(LinkDown):
            await impostor.send("beta.s1", beta.address, b"I am alpha, honestly")
        assert beta.stats["dropped_unproved"] > 0  # it was not made with alpha's keys
        assert beta.stats["links"] == beta.stats.get("datagrams_out", 0) == 0
        with pytest.raises(trio.WouldBlock):
            beta.inbox.receive_nowait()


async def test_a_peer_that_the_directory_does_not_know_is_down() -> None:
    async with serving("alpha.s1", ALPHA, unreachable_after_s=0.2) as alpha:
        with pytest.raises(LinkDown, match="nobody"):
            await alpha.send("nobody", ("127.0.0.1", 9), b"hello?")


async def test_a_peer_that_registers_late_is_reached() -> None:
    directory = Directory()
    late = directory.keys.pop("beta.s1")
    async with serving("alpha.s1", ALPHA, directory) as alpha, serving("beta.s1", BETA) as beta:
        alpha.post("beta.s1", beta.address, b"early")
        await until(lambda: bool(directory.questions))
        directory.keys["beta.s1"] = late
        assert (await receive(beta)).message == b"early"


async def test_a_directory_that_fails_is_asked_again() -> None:
    class Failing(Directory):
        async def keys_of(self, name: str) -> PublicIdentity | None:
            if not self.questions:
                self.questions.append(name)
                raise ConnectionRefusedError("the homeserver is away")
            return await super().keys_of(name)

    async with serving("alpha.s1", ALPHA, Failing()) as alpha, serving("beta.s1", BETA) as beta:
        await alpha.send("beta.s1", beta.address, b"hello")
        assert (await receive(beta)).message == b"hello"


async def test_new_keys_in_the_directory_replace_the_old_ones() -> None:
    directory = Directory()
    renewed = Identity.generate()
    async with serving("alpha.s1", ALPHA, directory) as alpha:
        async with serving("beta.s1", BETA, directory) as beta:
            address = beta.address
            await alpha.send("beta.s1", address, b"to the old key")
            await receive(beta)
        directory.keys["beta.s1"] = renewed.public
        async with serving("beta.s1", renewed, directory, port=address[1]) as beta:
            beta.post("alpha.s1", alpha.address, b"from the new key")
            assert (await receive(alpha)).message == b"from the new key"


async def test_a_running_server_gets_new_keys_and_no_message_is_lost() -> None:
    directory = Directory()
    renewed = BETA.rotated(Identity.generate(), now_s=0, overlap_s=60)
    async with serving("alpha.s1", ALPHA, directory) as alpha, serving("beta.s1", BETA, directory) as beta:
        numbers = iter(range(1000))

        async def talk() -> None:
            for _ in range(50):
                number = next(numbers).to_bytes(2, "big")
                await alpha.send("beta.s1", beta.address, number)
                await beta.send("alpha.s1", alpha.address, number)
                assert ((await receive(beta)).message, (await receive(alpha)).message) == (number, number)

        await talk()
        before = alpha.stats["handshakes"]
        beta.change_identity(renewed.led_by(BETA.public.signing_kid, expires_at_s=60))
        directory.keys["beta.s1"] = renewed.public
        await talk()
        beta.change_identity(renewed)
        await talk()
        await until(lambda: (s := alpha._links["beta.s1"]._sessions.current) is not None and s.peer_kid != BETA_KID)
        await talk()
        assert before < alpha.stats["handshakes"] < before + 6
        revoked = renewed.without(BETA_KID, now_s=0)
        directory.keys["beta.s1"] = revoked.public
        beta.change_identity(revoked)
        await talk()
        assert alpha.stats.get("peer_restarts", 0) == beta.stats.get("peer_restarts", 0) == 0


async def test_keys_are_looked_up_again_although_nobody_opens_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batonpass.actors.net.peer_keys.KEYS_REFRESH_S", 0.01)
    monkeypatch.setattr("batonpass.actors.net.peer_keys.LOOKUP_INTERVAL_S", 0.0)
    directory = Directory()
    async with serving("alpha.s1", ALPHA, directory) as alpha, serving("beta.s1", BETA) as beta:
        await alpha.send("beta.s1", beta.address, b"hello")
        await receive(beta)
        await until(lambda: alpha._links["beta.s1"].is_open and alpha._links["beta.s1"].is_idle)
        directory.keys["beta.s1"] = STRANGER.public
        await until(lambda: not alpha._links["beta.s1"].is_open)


async def test_a_cancelled_send_is_not_sent() -> None:
    async with serving("alpha.s1", ALPHA) as alpha, serving("beta.s1", BETA, inbox_capacity=32) as beta:
        for _ in range(32):
            await alpha.send("beta.s1", beta.address, b"x")
        with trio.move_on_after(0.05) as scope:
            await alpha.send("beta.s1", beta.address, b"changed my mind")
        assert scope.cancelled_caught
        for _ in range(32):
            assert (await receive(beta)).message == b"x"
        await alpha.send("beta.s1", beta.address, b"next")
        assert (await receive(beta)).message == b"next"


async def test_a_peer_that_never_answers_is_down_and_then_down_at_once() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mute:
        mute.bind(("127.0.0.1", 0))
        async with serving("alpha.s1", ALPHA, unreachable_after_s=0.3) as alpha:
            for _ in range(2):
                with pytest.raises(LinkDown, match=r"beta\.s1"):
                    await alpha.send("beta.s1", mute.getsockname(), b"anybody?")


async def test_after_being_down_a_peer_that_is_back_gets_the_next_message() -> None:
    async with serving("alpha.s1", ALPHA, unreachable_after_s=0.3) as alpha:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mute:
            mute.bind(("127.0.0.1", 0))
            address = mute.getsockname()
            alpha.post("beta.s1", address, b"posted while away")
            with pytest.raises(LinkDown):
                await alpha.send("beta.s1", address, b"anybody?")
        async with serving("beta.s1", BETA, port=address[1]) as beta:
            assert (await receive(beta)).message == b"posted while away"
            await alpha.send("beta.s1", address, b"welcome")
            assert (await receive(beta)).message == b"welcome"


async def test_what_waits_for_one_peer_is_bounded() -> None:
    settings = LinkSettings(queue_messages=10)
    async with serving("alpha.s1", ALPHA, settings=settings) as alpha:
        for _ in range(10):
            alpha.post("beta.s1", ("127.0.0.1", 9), b"x")
        with pytest.raises(LinkFull):
            alpha.post("beta.s1", ("127.0.0.1", 9), b"x")


async def test_noise_is_dropped_counted_and_not_answered() -> None:
    noise = random.Random(7)
    async with serving("beta.s1", BETA) as beta:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            udp.connect(beta.address)
            udp.setblocking(False)
            for kind in (*DatagramKind, 0, 255):
                for size in (0, 10, HEADER_BYTES, 100, 1200):
                    udp.send(
                        (write_header(DatagramKind.DATA, 1, 1)[1:].join([bytes([kind]), noise.randbytes(size)]))[:1200]
                    )
                    udp.send(noise.randbytes(size))
            udp.send(b"")
            await until(lambda: sum(n for reason, n in beta.stats.items() if reason.startswith("dropped_")) >= 70)
            with pytest.raises(BlockingIOError):
                udp.recv(100)
        assert beta.stats.get("datagrams_out", 0) == 0
        assert beta.stats["links"] == 0


async def test_an_idle_endpoint_sends_nothing_and_wakes_for_nothing() -> None:
    async with serving("alpha.s1", ALPHA) as alpha, serving("beta.s1", BETA) as beta:
        await alpha.send("beta.s1", beta.address, b"hello")
        await receive(beta)
        link = alpha._links["beta.s1"]
        await until(lambda: link.is_idle and not beta._dirty and link.next_timer() > trio.current_time() + 5)
        before = (alpha.stats["datagrams_out"], beta.stats["datagrams_out"])
        await trio.sleep(0.2)
        assert (alpha.stats["datagrams_out"], beta.stats["datagrams_out"]) == before


async def test_under_load_only_those_who_receive_at_their_address_are_answered() -> None:
    async with serving("alpha.s1", ALPHA) as alpha, serving("beta.s1", BETA) as beta:
        beta._gate._tokens = 100.0  # below half of the burst
        beta._gate._refilled_s = trio.current_time()
        beta._gate._rate_per_s = 0.0
        await alpha.send("beta.s1", beta.address, b"with a cookie")
        assert (await receive(beta)).message == b"with a cookie"
        assert beta.stats["cookies_sent"] == 1


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        (("localhost", 1), "not a numeric IP address"),
        (("a" * 10**5, 1), "not a numeric IP address"),
        (("\ud800", 1), "not a numeric IP address"),
        (("", 0), "not a numeric IP address"),
        (("::1", 1), "another IP version"),
        (("127.0.0.1", 0), "0 is no port"),
        (("127.0.0.1", 70_000), "70000 is no port"),
    ],
    ids=lambda value: f"{value!s:.60}",  # an id is sent to and fro with each report of the test
)
async def test_a_peer_whose_address_cannot_be_used_is_a_peer_that_cannot_be_reached(
    address: tuple[str, int], sentence: str
) -> None:
    """A directory says where peers are: what it says of one concerns no other."""
    async with serving("alpha.s1", ALPHA) as alpha, serving("beta.s1", BETA) as beta:
        with pytest.raises(LinkDown, match=sentence):
            alpha.post("gamma.s1", address, b"nobody gets this")
        with pytest.raises(LinkDown, match=sentence):
            await alpha.send("gamma.s1", address, b"nor this")
        await alpha.send("beta.s1", beta.address, b"still here")
        assert (await receive(beta)).message == b"still here"
        # Nor is one that could be reached until now found where it cannot be.
        with pytest.raises(LinkDown, match=sentence):
            alpha.post("beta.s1", address, b"moved")
        alpha.post("beta.s1", beta.address, b"not moved")
        assert (await receive(beta)).message == b"not moved"
        assert alpha.stats["unusable_addresses"] == 3


async def test_links_of_ip_version_6_carry_messages() -> None:
    async with serving("alpha.s1", ALPHA, host="::1") as alpha, serving("beta.s1", BETA, host="::1") as beta:
        await alpha.send("beta.s1", beta.address, b"to ::1")
        received = await receive(beta)
        assert (received.message, received.address[0]) == (b"to ::1", "::1")
        with pytest.raises(LinkDown, match="another IP version"):
            alpha.post("beta.s1", ("127.0.0.1", 1), b"")


async def test_mistakes_of_the_caller_are_named() -> None:
    async with serving("alpha.s1", ALPHA) as alpha:
        with pytest.raises(ValueError, match="itself"):
            alpha.post("alpha.s1", alpha.address, b"")
        with pytest.raises(ValueError, match="not a name"):
            alpha.post("b s", ("127.0.0.1", 1), b"")
        with pytest.raises(ValueError, match="the largest is"):
            await alpha.send("beta.s1", ("127.0.0.1", 1), bytes(MAX_MESSAGE_BYTES + 1))
    stopped = LinkEndpoint("alpha.s1", ALPHA, Directory())
    with pytest.raises(RuntimeError, match="start it"):
        stopped.post("beta.s1", ("127.0.0.1", 1), b"")
    with pytest.raises(RuntimeError, match="start it"):
        _ = stopped.address


async def test_when_the_endpoint_stops_its_users_are_told() -> None:
    directory = Directory({"alpha.s1": ALPHA.public, "beta.s1": BETA.public})
    outcomes: list[str] = []

    async def send_and_tell(endpoint: LinkEndpoint) -> None:
        try:
            await endpoint.send("beta.s1", ("127.0.0.1", 9), b"x")
        except LinkDown as error:
            outcomes.append(str(error))

    async def read_and_tell(endpoint: LinkEndpoint) -> None:
        async for _ in endpoint.inbox:
            pass
        outcomes.append("the inbox has ended")

    async with (
        trio.open_nursery() as nursery,
        serving("alpha.s1", ALPHA, directory, unreachable_after_s=math.inf) as alpha,
    ):
        nursery.start_soon(send_and_tell, alpha)
        nursery.start_soon(read_and_tell, alpha)
        await until(lambda: bool(alpha._waiters.links))
    assert sorted(outcomes) == ["beta.s1: this endpoint has stopped", "the inbox has ended"]


async def test_a_port_that_is_taken_is_an_os_error() -> None:
    async with serving("alpha.s1", ALPHA) as alpha:
        other = LinkEndpoint("beta.s1", BETA, Directory(), port=alpha.address[1])
        with pytest.raises(OSError, match="in use"):
            await other.serve()


async def test_an_endpoint_serves_once() -> None:
    async with serving("alpha.s1", ALPHA) as alpha:
        with pytest.raises(RuntimeError, match="serves once"):
            await alpha.serve()


async def test_a_link_without_use_is_forgotten_and_made_anew() -> None:
    settings = LinkSettings(idle_expiry_s=0.1)
    async with serving("alpha.s1", ALPHA, settings=settings) as alpha, serving("beta.s1", BETA) as beta:
        await alpha.send("beta.s1", beta.address, b"one")
        await receive(beta)
        await until(lambda: alpha.stats["links"] == 0)
        await alpha.send("beta.s1", beta.address, b"two")
        assert (await receive(beta)).message == b"two"


async def test_a_peer_that_leaves_the_directory_is_cut_off_at_its_next_handshake() -> None:
    directory = Directory()
    async with serving("alpha.s1", ALPHA) as alpha, serving("beta.s1", BETA, directory) as beta:
        await alpha.send("beta.s1", beta.address, b"one")
        await receive(beta)
        del directory.keys["alpha.s1"]
        beta._peer_keys.looked_up_s.clear()  # as if the last look-up were longer ago
        alpha._links.clear()
        alpha.post("beta.s1", beta.address, b"two")
        await until(lambda: not beta._links["alpha.s1"].peer_keys)
        assert not beta._links["alpha.s1"].is_open


async def test_what_the_kernel_does_not_take_at_once_is_sent_later() -> None:
    class FullOnce:
        """A socket whose send buffer is full."""

        def send(self, datagrams: list[tuple[bytes, tuple[str, int]]]) -> int:
            return 0

    async with serving("alpha.s1", ALPHA) as alpha, serving("beta.s1", BETA) as beta:
        await alpha.send("beta.s1", beta.address, b"open")
        await receive(beta)
        link = alpha._links["beta.s1"]
        await until(lambda: link.is_idle)
        link.send(b"one", trio.current_time())
        link.send(b"two", trio.current_time())
        alpha._transmit(FullOnce(), link.datagrams_to_send(trio.current_time()))  # type: ignore[arg-type]  # a fake
        assert len(alpha._backlog) == 1
        # From the backlog, or on a busy machine by a probe that was earlier: each once, in order, and nothing is left.
        assert [(await receive(beta)).message for _ in range(2)] == [b"one", b"two"]
        await until(lambda: not alpha._backlog)


async def test_whoever_listens_hears_what_becomes_of_links() -> None:
    heard: list[tuple[str, str]] = []
    async with serving("alpha.s1", ALPHA, unreachable_after_s=0.3) as alpha:
        stop_listening = alpha.listen(lambda peer, event: heard.append((peer, type(event).__name__)))
        async with serving("beta.s1", BETA) as beta:
            address = beta.address
            assert alpha.backlog("beta.s1") == (0, 0, True)
            await alpha.send("beta.s1", address, b"first")
            await receive(beta)
            await until(lambda: not alpha.backlog("beta.s1").messages)  # or beta's successor would get it again
            beta._links.clear()  # nobody is told, as after a kill
        alpha.post("beta.s1", address, b"second")
        assert alpha.backlog("beta.s1") == (1, 6, False)
        await until(lambda: ("beta.s1", "PeerUnreachable") in heard)
        async with serving("beta.s1", BETA, port=address[1]) as beta:
            assert (await receive(beta)).message == b"second"
        assert ("beta.s1", "PeerRestarted") in heard
        await until(lambda: ("beta.s1", "PeerClosed") in heard)
        stop_listening()
        stop_listening_again = alpha.listen(lambda peer, event: heard.append((peer, "again")))
        stop_listening_again()


async def test_small_messages_do_not_wait_behind_a_large_one_that_waits_for_room_in_the_queue() -> None:
    settings = LinkSettings(queue_bytes=MAX_MESSAGE_BYTES)
    async with serving("alpha.s1", ALPHA, settings=settings) as alpha, serving("beta.s1", BETA) as beta:
        await alpha.send("beta.s1", beta.address, b"open")
        await receive(beta)
        sent: list[int] = []

        async def send_large(channel: int) -> None:
            await alpha.send("beta.s1", beta.address, bytes(50_000_000), channel=channel)
            sent.append(channel)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_large, 1)
            nursery.start_soon(send_large, 2)
            await until(lambda: len(sent) == 1 and len(alpha._waiters.links) == 1)
            with trio.fail_after(90):
                await alpha.send("beta.s1", beta.address, b"small", channel=3)
            received = [(await receive(beta)) for _ in range(3)]
        assert sorted(len(message.message) for message in received) == [5, 50_000_000, 50_000_000]
        assert received[-1].channel in {1, 2}
