"""The connection to one node, alone, against a peer that breaks its rules."""

from __future__ import annotations

import cbor2
import pytest

from batonpass.actors.remote.frames import (
    CallFrame,
    CancelFrame,
    Cast,
    CloseFrame,
    Demonitor,
    EndedFrame,
    Fail,
    Frame,
    KillFrame,
    LinkBroke,
    LinkIt,
    MonitorIt,
    Open,
    ReplyFrame,
    RequestFault,
    Signal,
    StopIt,
    Unlink,
    Whereis,
    read_message_untrusted,
    write_frame,
    write_message,
)
from batonpass.actors.remote.peer import (
    Arrived,
    Effect,
    PeerState,
    RemotePeer,
    WentDown,
)
from batonpass.actors.remote.settings import DistributionSettings

TARGET = (5, 77)


class Alone:
    """One machine, up, and a peer whose messages we write."""

    def __init__(self, **limits: int) -> None:
        self.peer = RemotePeer("far", 1, iter(range(100, 200)).__next__, DistributionSettings(**limits))
        self.say(0, Open(1, 7, 9))
        self.number = 100
        assert self.peer.state is PeerState.UP
        self.answers()
        list(self.peer.effects())

    def say(self, to: int, *frames: Frame) -> list[Effect]:
        self.peer.receive_untrusted(write_message(to, [write_frame(frame) for frame in frames]), 0.0)
        return list(self.peer.effects())

    def answers(self) -> list[Frame]:
        messages = self.peer.messages_to_send(0.0)
        return [frame for message in messages for frame in read_message_untrusted(message)[1]]


@pytest.mark.parametrize(
    "frames",
    [
        (Open(1, 8, 9), Cast(TARGET, b"")),
        (Cast(TARGET, b""), Open(1, 8, 9)),
        (Cast(TARGET, b""), CloseFrame(7)),
        (CallFrame(TARGET, 1, b""), CallFrame(TARGET, 1, b"")),
        (MonitorIt(TARGET, 1), MonitorIt(TARGET, 1)),
        (LinkIt(TARGET, 1, b""), LinkIt(TARGET, 1, b"")),
        (Open(2, 8, 9),),
        (Open(1, 0, 9),),
        (Open(1, 8, 0),),
    ],
)
def test_a_peer_that_breaks_the_protocol_loses_its_connection(frames: tuple[Frame, ...]) -> None:
    alone = Alone()
    effects = alone.say(alone.number, *frames)
    assert any(isinstance(effect, WentDown) for effect in effects)
    assert alone.peer.state is PeerState.DOWN
    assert alone.peer.violations == 1
    assert CloseFrame(100) in alone.answers()


def test_noise_ends_the_connection_too() -> None:
    alone = Alone()
    alone.peer.receive_untrusted(b"noise", 0.0)
    assert alone.peer.state is PeerState.DOWN
    assert alone.peer.violations == 1


def test_requests_beyond_the_bounds_are_refused_one_by_one() -> None:
    alone = Alone(max_calls_in=1, max_monitors=1)
    effects = alone.say(
        alone.number,
        *(CallFrame(TARGET, 1, b""), Whereis("x", 2), StopIt(TARGET, 3, b"")),
        *(MonitorIt(TARGET, 1), MonitorIt(TARGET, 2), LinkIt(TARGET, 1, b""), LinkIt(TARGET, 2, b"")),
    )
    assert [type(effect.frame) for effect in effects if isinstance(effect, Arrived)] == [CallFrame, MonitorIt, LinkIt]
    limit = cbor2.dumps("system_limit")
    assert alone.answers() == [
        Fail(2, RequestFault.FULL, b"\x01"),
        Fail(3, RequestFault.FULL, b"\x01"),
        EndedFrame(2, limit),
        LinkBroke(2, 0, limit),
    ]


def test_requests_of_our_own_are_bounded() -> None:
    alone = Alone(max_calls_out=1, max_monitors=1)
    peer = alone.peer
    assert peer.call(TARGET, b"", "c", 0.0)
    assert peer.call(TARGET, b"", "c", 0.0) is None
    assert peer.watch(TARGET, "w", 0.0)
    assert peer.watch(TARGET, "w", 0.0) is None
    assert peer.link(TARGET, "t", b"", 0.0)
    assert peer.link(TARGET, "t", b"", 0.0) is None
    peer.signal(TARGET, b"", 0.0)
    peer.kill(TARGET, 0.0)
    assert [type(frame) for frame in alone.answers()] == [CallFrame, MonitorIt, LinkIt, Signal, KillFrame]


def test_what_nobody_knows_of_is_ignored() -> None:
    alone = Alone()
    unknown = (
        ReplyFrame(9, b""),
        Fail(9, RequestFault.EXIT, b""),
        EndedFrame(9, b""),
        CancelFrame(9),
        Demonitor(9),
        Unlink(9, 1),
    )
    assert alone.say(alone.number, *unknown, LinkBroke(9, 0, b"")) == []
    assert alone.say(0, CloseFrame(12345)) == []
    assert alone.say(0, Open(1, 7, 9)) == []  # the same again
    assert alone.say(12345, Cast(TARGET, b"")) == []  # of an earlier connection
    assert alone.answers() == [CloseFrame(12345)]
    assert alone.say(12346, Open(1, 8, 9)) == []  # the answer to something else
    assert alone.peer.state is PeerState.UP
    assert alone.answers() == [CloseFrame(12346)]
    assert alone.say(alone.number, Open(1, 8, 9)) == [WentDown("it began a new connection")]
    assert alone.answers() == [CloseFrame(alone.number)]
    for number in range(20):
        alone.say(1000 + number, Cast(TARGET, b""))
    assert len(alone.answers()) == 20
    assert len(alone.peer._forgotten_s) <= 8
