"""Shows on simulated servers: in place of sockets, threads and keys there are the network, virtual time and dice.

The host of the shows, the machines of the nodes, the seals and the engines' calls are real. An engine computes a state
that nothing else has, so that a frame number with two contents is seen. Now and then it is late, or fails.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

from batonpass.actors.base.clock import Clock
from batonpass.authority.fence import Fence
from batonpass.scenarios.simulation.servers.disk import SimulatedLedger
from batonpass.scenarios.simulation.servers.mail import SimulatedMail
from batonpass.scenarios.simulation.servers.promises.frames import FrameWatch
from batonpass.scenarios.simulation.servers.tasks import SimulatedProcess
from batonpass.simserver.sync.followers.engine_node import EngineNode
from batonpass.simserver.sync.followers.frames import head_of_untrusted
from batonpass.simserver.sync.followers.mailbox import EngineMailbox
from batonpass.simserver.sync.followers.node import NodeMachine
from batonpass.simserver.sync.followers.ports import (
    EngineAct,
    EngineEvent,
    FrameBegins,
    FrameReady,
    QuitTold,
    StreamsChanged,
)
from batonpass.simserver.sync.followers.structs import RenderStreamError, RsError, state_digest
from batonpass.simserver.sync.shows.engine_thread import EngineProgram
from batonpass.simserver.sync.shows.own_parts import settings_of
from batonpass.simserver.sync.shows.ports import NodeParts, ShowPorts
from batonpass.simserver.sync.shows.world import KIND, Shows

if TYPE_CHECKING:
    from batonpass.actors.net.datagrams import Outbound

__all__ = ["SHOW_PARAMS", "ShowPacket", "SimulatedShows", "engine", "is_show", "show_world"]

SHOW_PARAMS: Final = (
    {"mode": "state", "fence": "none"},
    {"mode": "delta", "fence": "soft"},
    {"mode": "inputs", "fence": "none"},
)
"""How the shows of a run send their frames, in turn."""

_RATE: Final = 20
_PIECE_BYTES: Final = 100
_STATE_BYTES: Final = 250
_FIRST_PORT: Final = 1_024
_LOOKS_EVERY_S: Final = (0.002, 0.012)
_IS_LATE_SHARE: Final = 0.003
_LATE_S: Final = (0.1, 0.8)
_PATIENCE_S: Final = 0.3
"""After so long an engine awaits a frame whose data have not come, and gives it up."""


@dataclass(frozen=True, slots=True)
class ShowPacket:
    """A sealed datagram on its way to a port."""

    port: int
    packet: bytes


def is_show(entity: str) -> bool:
    """By its id."""
    return f".{KIND}-" in entity


def engine() -> None:
    """What a configuration names; `SimulatedEngine` is what runs."""


def show_world(shows: list[str]) -> Shows:
    """The world of shows of one server, which takes part in all of them."""
    return Shows(f"{__name__}:engine", shows=shows, rate=str(_RATE), settings={"piece_bytes": _PIECE_BYTES})


class SimulatedShows:
    """What the shows of all servers of a cluster have in common: the ports, the dice and the judge."""

    def __init__(self, mail: SimulatedMail, dice: Random, watch: FrameWatch) -> None:
        self.watch: Final = watch
        self.dice: Final = dice
        self.mail: Final = mail
        self._sockets: Final[dict[int, tuple[str, SimulatedSocket]]] = {}
        self.engines: Final[dict[tuple[str, str], SimulatedEngine]] = {}
        """The newest engine of each server and show."""
        self.engines_are_late = True
        """Now and then, until everything is healed."""
        self.ledgers: Final[dict[str, SimulatedLedger]] = {}

    def ports_of(
        self, server: str, process: SimulatedProcess, clock: Clock, ledger: SimulatedLedger
    ) -> ShowPorts:  # fmt: skip
        """Of one server, in one life."""
        self.ledgers[server] = ledger
        return ShowPorts(
            random_bytes=self.dice.randbytes,
            own_parts=partial(_SimulatedParts, self, server),
            socket=partial(SimulatedSocket, self, server),
            engine=partial(SimulatedEngine, self, process, clock),
        )

    def bind(self, server: str, socket: "SimulatedSocket") -> int:
        """A port that no socket ever had."""
        port = _FIRST_PORT + len(self._sockets)
        self._sockets[port] = (server, socket)
        return port

    def server_at(self, port: int) -> str:
        """The server that had this port last."""
        return self._sockets[port][0]

    def ended(self, server: str) -> None:
        """A server is killed: what comes to its ports is lost."""
        for name, socket in self._sockets.values():
            if name == server:
                socket.close()

    def kept(self, entity: str, fence: Fence, state: bytes) -> None:
        """A server keeps a copy of another one's."""
        if is_show(entity):
            self.watch.kept(entity, fence, state)

    def arrived(self, sent: ShowPacket) -> None:
        """A packet has come."""
        self._sockets[sent.port][1].arrived(sent.packet)


class SimulatedSocket:
    """As `DatagramPort`."""

    def __init__(
        self,
        shows: SimulatedShows,
        server: str,
        took: Callable[[bytes], None],
        turn_over: Callable[[], None],
        counts: Counter[str],
    ) -> None:
        self._shows: Final = shows
        self._server: Final = server
        self._took: Final = took
        self._turn_over: Final = turn_over
        self._is_open = False
        self.address: tuple[str, int] = ("", 0)

    def bind(self, host: str) -> None:
        """As `DatagramPort.bind`."""
        self.address = (host, self._shows.bind(self._server, self))
        self._is_open = True

    async def serve(self) -> None:
        """What arrives, the mail brings."""

    def close(self) -> None:
        """Its process is gone."""
        self._is_open = False

    def arrived(self, packet: bytes) -> None:
        """A packet has come."""
        if self._is_open:
            self._took(packet)
            self._turn_over()

    def send(self, packets: "Iterable[Outbound]") -> None:
        """As `DatagramPort.send`."""
        for packet, (_, port) in packets:
            self._shows.mail.send(self._server, self._shows.server_at(port), ShowPacket(port, packet))


class _SimulatedSigning:
    """A keyed hash in place of Ed25519; the judge sees every head that is signed."""

    def __init__(self, public: bytes, signs: Callable[[bytes], None]) -> None:
        self._public: Final = public
        self._signs: Final = signs

    def sign(self, message: bytes) -> bytes:
        """As `HeadSigning.sign`."""
        self._signs(message)
        return hashlib.blake2b(message, key=self._public).digest()

    def verifies(self, public: bytes, message: bytes, signature: bytes) -> bool:
        """As `HeadSigning.verifies`."""
        return hashlib.blake2b(message, key=public).digest() == signature


class _SimulatedParts(NodeParts):
    """As `OwnParts`."""

    def __init__(self, shows: SimulatedShows, server: str, entity: str, more: Mapping[str, Any]) -> None:
        self._more: Final = more
        self._dice: Final = shows.dice
        self._public: Final = shows.dice.randbytes(32)
        self._signing: Final = _SimulatedSigning(self._public, partial(self._signs, shows, server, entity))

    def _signs(self, shows: SimulatedShows, server: str, entity: str, message: bytes) -> None:
        if (head := head_of_untrusted(message)) is not None:
            shows.watch.signs(server, entity, head, shows.ledgers[server].checkpoint_of(entity))

    @property
    def public(self) -> bytes:
        """As `OwnParts.public`."""
        return self._public

    def thread(self) -> int:
        """All engines are in one."""
        return 0

    def machine(self, server: str, state: Mapping[str, Any], now_ns: int) -> NodeMachine:
        """As `OwnParts.machine`."""
        return NodeMachine(server, settings_of(state, self._more), self._signing, self._dice, now_ns)


class _EngineFailed(Exception):
    """An engine fails on purpose."""


class _SeenPort:
    """As the mailbox of an engine, but that what has come is looked at before the engine awaits it."""

    def __init__(self, mailbox: EngineMailbox) -> None:
        self._mailbox: Final = mailbox
        self.waiting: Final[list[EngineEvent]] = []

    def look(self) -> list[EngineEvent]:
        """What has come since this was asked."""
        come: list[EngineEvent] = []
        while (event := self._mailbox.next_event(0.0)) is not None:
            come.append(event)
        self.waiting.extend(come)
        return come

    def next_event(self, timeout_s: float) -> EngineEvent | None:
        """As `EngineMailbox.next_event`, but that no time passes."""
        return self.waiting.pop(0) if self.waiting else None

    def submit(self, act: EngineAct) -> None:
        """As `EngineMailbox.submit`."""
        self._mailbox.submit(act)

    def now_ns(self) -> int:
        """As `EngineMailbox.now_ns`."""
        return self._mailbox.now_ns()

    def thread(self) -> int:
        """As `EngineMailbox.thread`."""
        return self._mailbox.thread()


class SimulatedEngine:
    """As `EngineThread`, with an engine that looks now and then whether there is something to do."""

    def __init__(
        self,
        shows: SimulatedShows,
        process: SimulatedProcess,
        clock: Clock,
        entity: str,
        server: str,
        _program: EngineProgram,
        mailbox: EngineMailbox,
        ended: Callable[[bool], None],
    ) -> None:
        self._shows: Final = shows
        self._process: Final = process
        self._clock: Final = clock
        self._entity: Final = entity
        self._server: Final = server
        self._mailbox: Final = mailbox
        self._ended: Final = ended
        self._port: Final = _SeenPort(mailbox)
        self._node: Final = EngineNode(self._port)
        self._state = bytes(_STATE_BYTES)
        self._begun: Final[dict[int, tuple[int, bool]]] = {}
        self._ready: Final[set[int]] = set()
        self._is_told = False
        self.error = ""
        self.is_running = False
        self.has_failed = False
        self.error = ""
        self.fails = False
        """Set from outside: it fails at its next turn."""

    @property
    def counters(self) -> Mapping[str, int]:
        """As `EngineThread.counters`."""
        return self._node.counters

    def start(self) -> None:
        """As `EngineThread.start`."""
        self._mailbox.engine_starts()
        self.is_running = True
        self._shows.engines[self._server, self._entity] = self
        self._shows.watch.engine_begins(self._server, self._entity)
        self._later()

    def stop(self) -> None:
        """As `EngineThread.stop`."""
        self._mailbox.put(QuitTold())

    def _later(self) -> None:
        dice = self._shows.dice
        is_late = self._shows.engines_are_late and dice.random() < _IS_LATE_SHARE
        between_s = _LATE_S if is_late else _LOOKS_EVERY_S
        self._process.after(dice.uniform(*between_s), self._look)

    def _look(self) -> None:
        """Await a frame if there is one for which there is something to do."""
        for event in self._port.look():
            match event:
                case FrameBegins(frame, _, is_controller, _):
                    self._begun[frame] = (self._clock.monotonic_ns(), is_controller)
                case FrameReady(frame, epoch):
                    self._ready.add(frame)
                    self._shows.watch.given(self._server, self._entity, epoch)
                case QuitTold() | StreamsChanged():
                    self._is_told = True
                case _:
                    pass
        try:
            while self._has_to_do():
                self._turn()
        except _EngineFailed:
            self._end(has_failed=True)
        except RenderStreamError as error:
            self._end(has_failed=error.code is not RsError.QUIT)
        if self.is_running:
            self._later()

    def _end(self, *, has_failed: bool) -> None:
        self.is_running, self.has_failed = False, has_failed
        self._ended(has_failed)

    def _has_to_do(self) -> bool:
        if self._is_told or self.fails:
            return True
        if not self._begun:
            return False
        oldest = next(iter(self._begun))
        begun_ns, _ = self._begun[oldest]
        _, is_controller = self._begun[next(reversed(self._begun))]
        is_late = self._clock.monotonic_ns() - begun_ns > _PATIENCE_S * 1e9
        return is_controller or is_late or any(frame >= oldest for frame in self._ready)

    def _turn(self) -> None:
        """One turn of an engine's loop."""
        if self.fails:
            raise _EngineFailed
        node, self._is_told = self._node, False
        try:
            node.await_frame_data(0)
            for known in (self._begun, self._ready):
                for frame in [frame for frame in known if frame <= node.frame]:
                    known.pop(frame) if isinstance(known, dict) else known.discard(frame)
            if node.is_controller():
                self._control()
            else:
                self._follow()
        except RenderStreamError as error:
            if error.code not in {RsError.TIMEOUT, RsError.STREAMS_CHANGED}:
                raise

    def _control(self) -> None:
        if (newest := self._node.continued_state()) is not None:
            self._state = newest
        inputs = self._shows.dice.randbytes(16)
        state = _next(self._state, inputs)
        self._node.send_follower_data(state, inputs)
        self._show(state)

    def _follow(self) -> None:
        payload = self._node.receive_follower_data(0)
        if self._node.received_inputs():
            payload = _next(self._state, payload)
            self._node.report_hash(payload)
        self._show(payload)

    def _show(self, state: bytes) -> None:
        self._state = state
        self._shows.watch.shown(self._server, self._entity, self._node.frame, state_digest(state))


def _next(state: bytes, inputs: bytes) -> bytes:
    """The state that follows; only its first bytes differ."""
    return hashlib.blake2b(state + inputs).digest() + state[64:]
