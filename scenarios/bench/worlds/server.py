"""The part of a simulation server that ticks entities and sends copies of them, on a core that is its own.

What it does is the real thing: entities, batch, feed, replication, the encoding of messages; what it sends is sealed
and goes to a socket. Lease, home and the other servers are there and never fail. Its time is the processor time of this
process, and what the process would sleep is skipped. So a machine that has other work to do makes it no slower. A tick
that takes too long delays the next one as it would on a core.
"""

import os
import socket
import time
from collections import Counter
from types import SimpleNamespace
from typing import Any, Final
from weakref import finalize

import cbor2
import trio
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from batonpass.actors.base.clock import Clock
from batonpass.authority.fence import Fence
from batonpass.authority.machines.replica_choice import CopyTable
from batonpass.authority.model.ownership import Ownership
from batonpass.authority.wire.recovery import CopiesKept
from batonpass.simserver.durability.replication import Replication
from batonpass.simserver.entity.crash_guard import CrashGuard
from batonpass.simserver.entity.custody_log import CustodyLog
from batonpass.simserver.entity.environment import EntityEnvironment
from batonpass.simserver.entity.table import Holding, Holdings
from batonpass.simserver.world.neighbourhood import NOBODY_NEAR, NeighbourLookup

__all__ = ["PERIOD_S", "PLAYER", "BenchServer", "CoreClock"]

PERIOD_S: Final = 0.05
PLAYER: Final = "alpha.ada"
_DATAGRAM_BYTES: Final = 1200
_COPY_INTERVAL_S: Final = 1.0
_KEPT: Final = ("entity", "epoch", "sub", "tick")


class CoreClock(trio.abc.Clock):
    """Processor time of this process, and what it has slept in one moment."""

    def __init__(self) -> None:
        self._skipped_s = 0.0

    def start_clock(self) -> None:
        """As of any clock of trio's."""

    def current_time(self) -> float:
        """Seconds."""
        return time.process_time() + self._skipped_s

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """There is nothing to do until then: it is then."""
        self._skipped_s += max(0.0, deadline - self.current_time())
        return 0.0


class _Sleeping:
    """The clock of the server's parts, by that of trio."""

    def monotonic_ns(self) -> int:
        return round(trio.current_time() * 1e9)

    async def sleep_s(self, seconds: float) -> None:
        await trio.sleep(seconds)


class _NoNotes:
    def lives(self, entity: str, kind: str, fence: Fence, since: int = 0) -> None: ...

    def left(self, entity: str, moved_to: str, fence: Fence) -> None: ...

    def forget(self, entity: str) -> None: ...


class _SealedSocket:
    """In place of the link: seals what is posted, datagram by datagram, and sends it to a socket that is never read."""

    def __init__(self) -> None:
        self._cipher: Final = ChaCha20Poly1305(bytes(32))
        self._sink: Final = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._sink.bind(("127.0.0.1", 0))
        self._socket: Final = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.connect(self._sink.getsockname())
        for each in (self._sink, self._socket):
            finalize(self, each.close)
        self.sent_bytes = 0
        self.posted: list[tuple[str, bytes]] = []

    def post(self, to: str, where: tuple[str, int], message: bytes, *, channel: int) -> None:
        """As `LinkService.post`."""
        self.posted.append((to, message))
        for start in range(0, len(message), _DATAGRAM_BYTES):
            sealed = self._cipher.encrypt(os.urandom(12), message[start : start + _DATAGRAM_BYTES], None)
            self.sent_bytes += self._socket.send(sealed)


class BenchServer:
    """One server with this world; used inside of `trio.run`, with a `CoreClock`.

    Its entities see what is near them if it is one of several (`scenarios.bench.worlds.in_a_row`).
    """

    def __init__(self, world: Any, name: str = "alpha.s1", neighbourhood: NeighbourLookup = NOBODY_NEAR) -> None:
        self.name: Final = name
        self.acknowledged = 0
        self.counts: Final[Counter[str]] = Counter()
        self._clock: Final = _Sleeping()
        self.link: Final = _SealedSocket()
        self.environment: Final = EntityEnvironment(
            server=name,
            world=world,
            period_s=PERIOD_S,
            custody=CustodyLog(name),
            monotonic_ns=self._clock.monotonic_ns,
            acknowledge=self._acknowledge,
            correct=lambda player, correction: None,
            wants_word_of_owner=lambda entity: None,
            wants_to_go=lambda entity, server: None,
            count=self._count,
            may_act=lambda now_ns: True,
            is_lost_by=lambda began_ns, done_ns: False,
            keeps_copies=lambda: True,
            ready_to_leave=lambda entity: None,
            crash_guard=CrashGuard(None, Clock().unix_s),
            wants_actor=lambda entity: None,
            neighbourhood=neighbourhood,
        )
        self.holdings: Final = Holdings(self.environment, _NoNotes())
        self.replication: Final = self._replication()

    def _replication(self) -> Replication:
        row = SimpleNamespace(link_host="127.0.0.1", link_port=9)

        async def row_of(server: str) -> Any:
            return row

        peers = ("alpha.s1", "alpha.s2", "alpha.s3")
        lease: Any = SimpleNamespace(
            may_act=lambda now_ns: True,
            may_follow=peers,
            peers=peers,
            aside=frozenset(),
            is_alone=False,
            holder=SimpleNamespace(terms=None),
            once_renewed=lambda then: then(),
        )
        ports: Any = SimpleNamespace(
            clock=self._clock,
            counts=self.counts,
            name="alpha.s1",
            home=SimpleNamespace(row=row_of),
            link=self.link,
        )
        ledger: Any = SimpleNamespace()
        table = CopyTable(1 << 20, 100)
        return Replication(
            ports,
            lease,
            self.holdings,
            table,
            ledger,
            interval_s=_COPY_INTERVAL_S,
            checkpoint_s=0.0,
            backup_replicas=1,
        )

    def replicas_answer(self) -> None:
        """The other servers keep what was sent since this was called last, and say so."""
        posted, self.link.posted = self.link.posted, []
        for replica, message in posted:
            # As it travels: both is read anew.
            items = [{name: item[name] for name in _KEPT} for item in cbor2.loads(message)["items"]]
            self.replication.kept(CopiesKept.model_validate({"items": items}), replica)

    def _acknowledge(self, player: str, ack: object) -> None:
        self.acknowledged += 1

    def _count(self, what: str) -> None:
        self.counts[what] += 1

    def spawn(self, entity: str, kind: str, params: dict[str, Any]) -> Holding:
        """A new entity."""
        return self.holdings.spawn(entity, kind, params, Fence(1), Ownership(PLAYER, 1))

    def tick(self) -> None:
        """One round of the server, as `SimserverNode.tick_all` does it."""
        rounds, feed, batch = self.environment.rounds, self.environment.feed, self.holdings.batch
        rounds.count += 1
        self.replicas_answer()
        feed.round_begins(rounds.count)
        if batch is not None:
            batch.tick()
        feed.round_is_over()
