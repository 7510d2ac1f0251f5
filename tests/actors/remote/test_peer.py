"""The connection to one node, sans-IO: two joined by hand, through everything that connections go through."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.actors.remote.frames import (
    CallFrame,
    CancelFrame,
    Cast,
    RequestFault,
    StopIt,
    Whereis,
    read_message_untrusted,
)
from batonpass.actors.remote.peer import (
    Arrived,
    Broke,
    Effect,
    Failed,
    Let,
    PeerState,
    RemotePeer,
    RequestAnswered,
    Untied,
    WatchedDown,
    WentDown,
    WentUp,
)
from batonpass.actors.remote.settings import BATCH_BYTES, DistributionSettings
from tests.budget import examples

TARGET = (5, 77)


class Pair:
    """Two peers and the two directions between them, delivered by hand."""

    def __init__(self, settings: DistributionSettings | None = None) -> None:
        numbers = itertools.count(1000)
        self.now = 0.0
        made = settings if settings is not None else DistributionSettings()
        self.ends = {name: RemotePeer(name, ord(self.other(name)), lambda: next(numbers), made) for name in "ab"}
        """`ends["a"]` is what node b holds of a."""
        self.wires: dict[str, list[bytes]] = {"a": [], "b": []}
        self.effects: dict[str, list[Effect]] = {"a": [], "b": []}

    def other(self, name: str) -> str:
        return "b" if name == "a" else "a"

    def here(self, name: str) -> RemotePeer:
        """The machine at node `name`."""
        return self.ends[self.other(name)]

    def collect(self) -> None:
        for name in "ab":
            self.wires[name] += self.here(name).messages_to_send(self.now)
            self.effects[name] += self.here(name).effects()

    def deliver(self, sender: str, count: int = 1000) -> None:
        self.collect()
        for message in self.wires[sender][:count]:
            self.here(self.other(sender)).receive_untrusted(message, self.now)
        del self.wires[sender][:count]
        self.collect()

    def settle(self) -> None:
        self.collect()
        for _ in range(20):
            self.deliver("a")
            self.deliver("b")

    def take(self, name: str) -> list[Effect]:
        self.collect()
        taken, self.effects[name] = self.effects[name], []
        return taken


def connected() -> Pair:
    pair = Pair()
    pair.here("a").cast(TARGET, b"hello", 0.0)
    pair.settle()
    assert pair.take("b") == [WentUp(), Arrived(Cast(TARGET, b"hello"))]
    assert pair.take("a") == [WentUp()]
    return pair


def test_the_first_request_opens_a_connection_and_is_delivered() -> None:
    pair = connected()
    assert pair.here("a").state is pair.here("b").state is PeerState.UP
    assert (pair.here("a").creation, pair.here("b").creation) == (ord("b"), ord("a"))


def test_both_opening_at_once_is_one_connection() -> None:
    pair = Pair()
    pair.here("a").cast(TARGET, b"from a", 0.0)
    pair.here("b").cast(TARGET, b"from b", 0.0)
    pair.settle()
    assert pair.take("a") == [WentUp(), Arrived(Cast(TARGET, b"from b"))]
    assert pair.take("b") == [WentUp(), Arrived(Cast(TARGET, b"from a"))]


def test_a_call_is_answered_or_refused_once() -> None:
    pair = connected()
    a, b = pair.here("a"), pair.here("b")
    one, two = a.call(TARGET, b"1", "caller 1", 0.0), a.stop("name", b"2", "caller 2", 0.0)
    three = a.whereis("name", "caller 3", 0.0)
    assert one
    assert two
    assert three
    pair.settle()
    assert pair.take("b") == [
        Arrived(CallFrame(TARGET, one, b"1")),
        Arrived(StopIt("name", two, b"2")),
        Arrived(Whereis("name", three)),
    ]
    server_one, server_two = object(), object()
    b.serve(one, server_one)
    b.serve(two, server_two)
    b.reply(one, "somebody else", b"not mine", 0.0)
    b.reply(one, server_one, b"answer", 0.0)
    b.reply(one, server_one, b"again", 0.0)
    b.fail(two, server_two, RequestFault.EXIT, b"reason", 0.0)
    b.fail(two, server_two, RequestFault.EXIT, b"again", 0.0)
    b.fail(three, None, RequestFault.NOPROC, b"", 0.0)
    pair.settle()
    assert pair.take("a") == [
        RequestAnswered("caller 1", b"answer"),
        Failed("caller 2", RequestFault.EXIT, b"reason"),
        Failed("caller 3", RequestFault.NOPROC, b""),
    ]
    assert a.tables == b.tables == (0, 0, 0, 0, 0)


def test_a_cancelled_call_is_let_go_and_its_late_answer_vanishes() -> None:
    pair = connected()
    a, b = pair.here("a"), pair.here("b")
    id_ = a.call(TARGET, b"", "caller", 0.0)
    assert id_
    pair.settle()
    b.serve(id_, "server")
    b.reply(id_, "server", b"crosses", 0.0)
    a.cancel(id_, 0.0)
    a.cancel(id_, 0.0)
    pair.settle()
    second = a.call(TARGET, b"", "caller", 0.0)
    assert second
    pair.settle()
    b.serve(second, "server")
    a.cancel(second, 0.0)
    pair.settle()
    b.reply(second, "server", b"late", 0.0)
    b.serve(second, "nobody any more")
    pair.settle()
    assert [effect for effect in pair.take("a") if isinstance(effect, RequestAnswered)] == []
    assert [effect for effect in pair.take("b") if isinstance(effect, Let)] == [Let("server")]


def test_a_monitor_fires_once_or_is_taken_back() -> None:
    pair = connected()
    a, b = pair.here("a"), pair.here("b")
    one, two = a.watch(TARGET, "watcher 1", 0.0), a.watch(TARGET, "watcher 2", 0.0)
    assert one
    assert two
    pair.settle()
    b.serve_watch(one, "w1")
    b.serve_watch(two, "w2")
    b.serve_watch(99, "nobody")
    pair.take("b")
    a.unwatch(two, 0.0)
    a.unwatch(two, 0.0)
    b.ended(one, "w1", b"reason", 0.0)
    b.ended(one, "w1", b"again", 0.0)
    pair.settle()
    assert pair.take("a") == [WatchedDown("watcher 1", b"reason")]
    assert pair.take("b") == [Let("w2")]
    b.ended(two, "w2", b"late", 0.0)
    assert a.tables == b.tables == (0, 0, 0, 0, 0)


def test_a_link_breaks_at_either_end_or_is_taken_back() -> None:
    pair = connected()
    a, b = pair.here("a"), pair.here("b")
    keys = [a.link(TARGET, tie, b"", 0.0) for tie in ("tie 0", "tie 1", "tie 2", "tie 3")]
    pair.settle()
    assert keys[0]
    assert keys[1]
    assert keys[2]
    assert keys[3]
    b.accept_link(keys[0][0], "far tie 0")
    b.accept_link(keys[1][0], "far tie 1")
    b.accept_link(keys[2][0], "far tie 2")
    b.accept_link(99, "nobody")
    pair.take("b")
    b.broke((keys[3][0], False), None, b"noproc", 0.0)
    a.broke(keys[0], "tie 0", b"boom", 0.0)
    a.broke(keys[0], "tie 0", b"again", 0.0)
    b.broke((keys[1][0], False), "far tie 1", b"bang", 0.0)
    b.untie((keys[2][0], False), "far tie 2", 0.0)
    b.untie((keys[2][0], False), "far tie 2", 0.0)
    pair.settle()
    assert pair.take("a") == [Broke("tie 3", b"noproc"), Broke("tie 1", b"bang"), Untied("tie 2")]
    assert pair.take("b") == [Broke("far tie 0", b"boom")]
    assert a.tables == b.tables == (0, 0, 0, 0, 0)


def test_when_the_connection_is_lost_everybody_is_told_and_nothing_old_arrives() -> None:
    pair = connected()
    a, b = pair.here("a"), pair.here("b")
    id_ = a.call(TARGET, b"", "caller", 0.0)
    watch = a.watch(TARGET, "watcher", 0.0)
    link = a.link(TARGET, "tie", b"", 0.0)
    assert id_
    assert watch
    assert link
    pair.settle()
    b.serve(id_, "server")
    b.serve_watch(watch, "watched")
    b.accept_link(link[0], "far tie")
    pair.take("b")
    a.cast(TARGET, b"under way", 0.0)
    pair.collect()
    a.lost("a cut", 0.0)
    a.lost("again", 0.0)
    assert pair.take("a") == [
        WentDown("a cut"),
        Failed("caller", None, b""),
        WatchedDown("watcher", None),
        Broke("tie", None),
    ]
    a.cast(TARGET, b"after", 0.0)
    pair.settle()
    assert pair.take("b") == [
        Arrived(Cast(TARGET, b"under way")),
        WentDown("it ended the connection"),
        Broke("far tie", None),
        Let("server"),
        Let("watched"),
        WentUp(),
        Arrived(Cast(TARGET, b"after")),
    ]
    b.reply(id_, "server", b"an answer to an earlier life", 0.0)
    b.ended(watch, "watched", b"", 0.0)
    pair.settle()
    assert pair.take("a") == [WentUp()]
    assert a.tables == b.tables == (0, 0, 0, 0, 0)


def test_a_peer_that_begins_anew_without_a_goodbye_ends_the_old_connection() -> None:
    pair = connected()
    b_old_call = pair.here("b").call(TARGET, b"", "caller", 0.0)
    assert b_old_call
    pair.ends["b"] = RemotePeer("b", ord("A"), iter(range(5000, 6000)).__next__, DistributionSettings())
    pair.here("a").cast(TARGET, b"from the new life", 0.0)
    pair.settle()
    assert pair.take("b") == [
        WentDown("it began a new connection"),
        Failed("caller", None, b""),
        WentUp(),
        Arrived(Cast(TARGET, b"from the new life")),
    ]
    assert pair.here("b").creation == ord("A")


def test_a_peer_that_has_forgotten_says_so_when_it_is_written_to_once_a_second() -> None:
    pair = connected()
    pair.ends["b"] = RemotePeer("b", ord("A"), iter(range(5000, 6000)).__next__, DistributionSettings())
    for _ in range(3):
        pair.here("b").cast(TARGET, b"into the void", 0.0)
        pair.collect()
    pair.deliver("b")
    assert len(pair.wires["a"]) == 1
    pair.now = 1.5
    pair.here("b").cast(TARGET, b"again", 1.5)
    pair.deliver("b")
    assert len(pair.wires["a"]) == 2
    pair.settle()
    assert pair.take("b")[-1] == WentDown("it ended the connection")


def test_opening_ends_in_time_and_a_late_answer_is_refused() -> None:
    pair = Pair()
    a, b = pair.here("a"), pair.here("b")
    a.call(TARGET, b"", "caller", 0.0)
    assert a.next_timer() == 4.0
    a.on_timer(3.9)
    assert a.state is PeerState.OPENING
    pair.now = 4.0
    a.on_timer(4.0)
    assert not a.is_idle
    assert pair.take("a") == [WentDown("it did not answer in time"), Failed("caller", None, b"")]
    assert pair.here("a").is_idle
    assert a.dropped == 1
    a.cast(TARGET, b"second attempt", 4.0)
    pair.settle()
    assert pair.take("b")[-2:] == [WentUp(), Arrived(Cast(TARGET, b"second attempt"))]
    assert a.state is b.state is PeerState.UP


def test_an_idle_connection_ticks_and_a_busy_one_does_not() -> None:
    pair = connected()
    a = pair.here("a")
    assert a.next_timer() == 5.0
    pair.now = 4.0
    a.cast(TARGET, b"", 4.0)
    pair.collect()
    assert a.next_timer() == 9.0
    a.on_timer(8.0)
    pair.settle()
    pair.take("b")
    pair.now = 9.0
    a.on_timer(9.0)
    assert a.has_messages
    assert pair.wires["a"] == []
    pair.collect()
    assert read_message_untrusted(pair.wires["a"][0])[1] == []
    pair.settle()
    assert pair.take("b") == []
    assert a.next_timer() == 14.0


def test_frames_leave_together_and_large_ones_do_not_wait() -> None:
    pair = connected()
    a = pair.here("a")
    for _ in range(10):
        a.cast(TARGET, b"x", 0.0)
    assert not a.has_full_batch
    assert len(a.messages_to_send(0.0)) == 1
    a.cast(TARGET, bytes(BATCH_BYTES), 0.0)
    assert pair.here("a").has_full_batch
    a.messages_to_send(0.0)
    for _ in range(5000):
        a.emit(CancelFrame(1), 0.0)
    assert pair.here("a").has_full_batch


def test_what_waits_for_the_connection_is_bounded() -> None:
    pair = Pair(DistributionSettings(max_waiting_frames=3, max_waiting_bytes=1000))
    a = pair.here("a")
    assert a.admits(1000)
    assert not a.admits(1001)
    for _ in range(3):
        assert a.admits(0)
        a.send(TARGET, b"", 0.0)
    assert not a.admits(0)
    pair.settle()
    assert a.admits(10_000)


# Any order of anything


class Story(Pair):
    """A pair, and what became of every request that was made."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0
        self.open: dict[str, dict[tuple[str, int], int]] = {"a": {}, "b": {}}
        self.finished: list[tuple[str, int]] = []
        self.arrived: dict[str, list[int]] = {"a": [], "b": []}
        self.to_answer: dict[str, list[CallFrame]] = {"a": [], "b": []}

    def ask(self, name: str, what: str) -> None:
        here, number = self.here(name), self.number
        match what:
            case "call":
                self.open[name]["call", number] = here.call(TARGET, b"", ("call", number), self.now) or 0
            case "watch":
                self.open[name]["watch", number] = here.watch(TARGET, ("watch", number), self.now) or 0
            case _:
                here.cast(TARGET, b"%d" % number, self.now)

    def take_back(self, name: str) -> None:
        if self.open[name]:
            caller, id_ = self.open[name].popitem()
            here = self.here(name)
            (here.cancel if caller[0] == "call" else here.unwatch)(id_, self.now)
            self.finished.append(caller)

    def answer(self, name: str) -> None:
        if self.to_answer[name]:
            call = self.to_answer[name].pop(0)
            self.here(name).reply(call.id, call, b"", self.now)

    def happen(self, name: str, what: str) -> None:
        self.number += 1
        self.now += 0.01
        match what:
            case "cancel":
                self.take_back(name)
            case "deliver":
                self.deliver(name)
            case "deliver one":
                self.deliver(name, 1)
            case "lost":
                self.here(name).lost("a cut", self.now)
            case "answer":
                self.answer(name)
            case "timer":
                self.now += 5.0
                self.here(name).on_timer(self.now)
            case _:
                self.ask(name, what)
        self.take_in()

    def take_in(self) -> None:
        for name in "ab":
            for effect in self.take(name):
                match effect:
                    case RequestAnswered(caller, _) | Failed(caller, _, _) | WatchedDown(caller, _):
                        self.finished.append(caller)
                        self.open[name].pop(caller, None)
                    case Arrived(Cast(_, payload)):
                        self.arrived[name].append(int(payload))
                    case Arrived(CallFrame() as call):
                        self.to_answer[name].append(call)
                        self.here(name).serve(call.id, call)
                    case _:
                        pass


WHAT = ["call", "cast", "watch", "cancel", "deliver", "deliver one", "lost", "answer", "timer"]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(WHAT)), max_size=60))
@settings(max_examples=examples(200))
def test_every_request_ends_once_and_casts_keep_their_order(steps: list[tuple[str, str]]) -> None:
    story = Story()
    for name, what in steps:
        story.happen(name, what)
    for name in "abab":
        story.here(name).lost("the end", story.now)
        story.settle()
        story.take_in()
    for name in "ab":
        assert story.arrived[name] == sorted(set(story.arrived[name]))
        assert story.here(name).tables == (0, 0, 0, 0, 0)
        assert story.here(name).violations == 0
    assert len(story.finished) == len(set(story.finished))
    assert story.open == {"a": {}, "b": {}}
