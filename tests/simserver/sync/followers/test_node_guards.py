"""Guards of a node of a show: without each of them, something breaks that the simulation sees."""

from dataclasses import replace
from random import Random

import pytest

from batonpass.simserver.sync.followers.datagrams import (
    Datagram,
    read_datagram_untrusted,
    signed_head_of_untrusted,
)
from batonpass.simserver.sync.followers.node import NodeMachine
from batonpass.simserver.sync.followers.ports import (
    FrameBegins,
    FrameReady,
    QuitTold,
    SubmitState,
)
from tests.simserver.sync.followers.simulated_show import MS, CheapSigning, SimulatedShow, Weather, settings_of
from tests.simserver.sync.followers.test_node import PUBLICS, ROOM, Pair


def test_without_the_limit_a_number_gets_two_contents() -> None:
    """Who begins at the newest frame that it knows of, and not at the limit, uses a number again."""

    def careless(show: SimulatedShow) -> int:
        return 1 + max(max(node.applied, default=0) for node in show.live())

    def run(first_of_copy: object) -> list[str]:
        show = SimulatedShow(list("abc"), settings_of(), 5, first_of_copy=first_of_copy)  # type: ignore[arg-type]
        show.run_for(1.0)
        for name in "bc":
            show.cut.add(frozenset(("a", name)))
        show.run_for(0.5)
        show.kill("a")
        show.run_for(2.0)
        return show.faults

    assert run(careless)
    assert not run(None)


def test_without_the_refusal_of_old_epochs_a_follower_takes_frames_of_two_controllers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A datagram was under way when authority moved; the follower is to believe that it is of its epoch."""

    def late_frame(*, careless: bool) -> list[FrameReady]:
        pair = Pair()
        pair.submit(1, b"first")
        pair.pass_ms(17)
        pair.a.submit(SubmitState(2, 1, b"second", 1), pair.now_ns)
        late = [datagram for _, datagram in pair.a.take_outgoing()]
        pair.b.follow("a", 2, pair.now_ns)
        if careless:
            monkeypatch.setattr(f"{ROOM}.node.read_datagram_untrusted", _datagram_of_epoch_2)
            monkeypatch.setattr(f"{ROOM}.follower.signed_head_of_untrusted", _head_of_epoch_2)
        for datagram in late:
            pair.b.receive("a", datagram, pair.now_ns)
        assert pair.b.counters["epoch_refused"] == (0 if careless else 1)
        return [event for event in pair.b.take_events() if isinstance(event, FrameReady)]

    assert not late_frame(careless=False)
    assert late_frame(careless=True)


def _datagram_of_epoch_2(datagram: bytes) -> Datagram | None:
    read = read_datagram_untrusted(datagram)
    return None if read is None else replace(read, epoch=2)


def _head_of_epoch_2(body: memoryview) -> object:
    read = signed_head_of_untrusted(body)
    assert read is not None
    head = replace(read[0], epoch=2)
    return head, CheapSigning("a").sign(head.pack()), read[2]


def test_without_the_digest_a_broken_piece_reaches_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The seal of the datagrams is left out here, as if a follower forged them."""

    def run() -> SimulatedShow:
        show = SimulatedShow(list("abc"), settings_of(), 5, Weather(corruption=0.05), state_bytes=3_000)
        show.run_for(2.0)
        return show

    show = run()
    assert not show.faults
    assert show.count("digest_refused")
    monkeypatch.setattr(f"{ROOM}.follower.state_digest", _Anything)
    assert run().faults


class _Anything(bytes):
    def __ne__(self, other: object) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = bytes.__hash__


def test_a_head_that_the_controller_has_not_signed_is_refused() -> None:
    """A follower forges a frame with the group's key."""
    pair = Pair()
    forger = NodeMachine("b", pair.settings, CheapSigning("b"), Random(1), 0)
    forger.members(PUBLICS)
    forger.granted(1, 1, 0)
    forger.may_send_below(10)
    now_ns = 0
    while not forger.is_controller:
        now_ns += 10 * MS
        forger.tick(now_ns)
    forger.take_events()
    now_ns += 20 * MS
    forger.tick(now_ns)
    for event in forger.take_events():
        if isinstance(event, FrameBegins):
            forger.submit(SubmitState(event.frame, 1, b"forged", 1), now_ns)
    for _, datagram in forger.take_outgoing():
        pair.b.receive("a", datagram, pair.now_ns)
    pair.told["b"] += pair.b.take_events()
    assert not pair.ready()
    assert pair.b.counters["head_refused"]


def test_parts_of_a_node_have_one_epoch_each() -> None:
    """News of an epoch that is known change nothing."""
    pair = Pair()
    pair.b.follow("a", 1, 5)
    assert pair.b.counters["epoch_known"] == 1
    assert not [event for event in pair.told["b"] if isinstance(event, QuitTold)]
