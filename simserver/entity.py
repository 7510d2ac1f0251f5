"""An entity as an actor: its state, its inbox, its tick, and the fence under which it may be simulated.

The actor alone touches the state. It ticks while it is running; frozen, it keeps what arrives in a journal and does
nothing else, until it is resumed (under a higher fence) or retires.
"""

import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Self

import cbor2

from actors.ref import From
from actors.server import NoReply, Reply, Server, Stop
from authority.epoch import Fence
from authority.messages import MAX_INPUTS, InputAck, InputItem
from simserver.custody import CustodyLog, Stint
from simserver.inputs import Admission, Inbox, PendingInput
from simserver.world import World

__all__ = [
    "Entity",
    "EntityEnvironment",
    "Freeze",
    "Frozen",
    "Inspect",
    "NewInput",
    "Resume",
    "Retire",
    "Snapshot",
    "TakeJournal",
    "TickNow",
]

_log = logging.getLogger("simserver.entity")

# What arrives while an entity is frozen, counted from the freeze until it resumes or retires, whether it was taken
# meanwhile or not: all of it must fit one message (2 MiB, with about 130 bytes around each input). A freeze lasts
# milliseconds; sources repeat what found no room.
MAX_JOURNAL: Final = MAX_INPUTS
MAX_JOURNAL_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A whole entity at rest: everything that moves with it."""

    kind: str
    tick: int
    world: Any
    inbox: dict[str, Any]

    def encode(self) -> bytes:
        """Canonical CBOR (RFC 8949, 4.2): equal snapshots are equal bytes, so a hash identifies them."""
        fields = {"kind": self.kind, "tick": self.tick, "world": self.world, "inbox": self.inbox}
        return cbor2.dumps(fields, canonical=True)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read what `encode` wrote; its hash was checked against the log's certificate before."""
        fields = cbor2.loads(data)
        return cls(fields["kind"], fields["tick"], fields["world"], fields["inbox"])


def state_hash(encoded: bytes) -> str:
    """Hex SHA-256 of an encoded snapshot."""
    return hashlib.sha256(encoded).hexdigest()


@dataclass(frozen=True)
class EntityEnvironment:
    """What an entity may use of its server."""

    server: str
    world: World
    period_s: float
    custody: CustodyLog
    monotonic_ns: Callable[[], int]
    acknowledge: Callable[[str, InputAck], None]
    wants_to_go: Callable[[str, str], None]
    count: Callable[[str], None]


# --- requests -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TickNow:
    """Cast: one tick of the server's 20 Hz has come."""


@dataclass(frozen=True, slots=True)
class NewInput:
    """Cast: an input arrived (from its player, or forwarded)."""

    source: str
    seq: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Freeze:
    """Call: stop ticking; answer with `Frozen`, or None when it is frozen already."""


@dataclass(frozen=True, slots=True)
class Frozen:
    """Answer to `Freeze`."""

    fence: Fence
    kind: str
    tick: int
    state: bytes
    state_hash: str
    frozen_ns: int


@dataclass(frozen=True, slots=True)
class Resume:
    """Cast: tick again under `fence`, from the frozen state and the journal."""

    fence: Fence


@dataclass(frozen=True, slots=True)
class TakeJournal:
    """Call: the inputs that arrived since the freeze (or since the last `TakeJournal`)."""


@dataclass(frozen=True, slots=True)
class Retire:
    """Call: end; somebody else has authority. Answers with the names of the sources that should be told."""


@dataclass(frozen=True, slots=True)
class Inspect:
    """Call: how the entity is, as plain data; `with_state` adds the world's state as CBOR in hex."""

    with_state: bool = False


@dataclass
class _Life:
    """The mutable inside of one entity."""

    id: str
    fence: Fence
    kind: str
    tick: int
    world: Any
    inbox: Inbox
    stint: Stint
    frozen: bool = False
    ticks_here: int = 0
    journal: list[InputItem] = field(default_factory=list)
    journaled: int = 0
    journaled_bytes: int = 0
    broken: str = ""


class Entity(Server[_Life]):
    """One entity; started with `(EntityEnvironment, id, Fence, Snapshot)`."""

    def init(self, arg: tuple[EntityEnvironment, str, Fence, Snapshot]) -> _Life:
        """Begin to simulate from the snapshot: from here on this server is in custody."""
        self._env, entity_id, fence, snapshot = arg
        inbox = Inbox.from_data(snapshot.inbox)
        life = _Life(entity_id, fence, snapshot.kind, snapshot.tick, snapshot.world, inbox, _NO_STINT)
        life.stint = self._begin_stint(life)
        return life

    def handle_cast(self, message: Any, state: _Life) -> None:
        """Ticks, inputs, resuming."""
        match message:
            case TickNow():
                self._tick(state)
            case NewInput(source, seq, data):
                self._input(state, source, seq, data)
            case Resume(fence):
                self._resume(state, fence)
            case other:
                raise TypeError(f"an entity takes no {other!r}")

    def handle_call(self, request: Any, from_: From, state: _Life) -> Reply[_Life] | NoReply[_Life] | Stop[_Life]:
        """Freezing, journals, retiring, inspection."""
        match request:
            case Freeze():
                return Reply(self._freeze(state))
            case TakeJournal():
                taken, state.journal = state.journal, []
                return Reply(taken)
            case Retire():
                return Stop(reply=sorted(state.inbox.cursors))
            case Inspect(with_state):
                return Reply(self._inspect(state) | ({"state": cbor2.dumps(state.world).hex()} if with_state else {}))
            case other:
                raise TypeError(f"an entity answers no {other!r}")

    # --- simulating ------------------------------------------------------------------------------------------------

    def _tick(self, life: _Life) -> None:
        if life.frozen or life.broken:
            return
        now_ns = self._env.monotonic_ns()
        try:
            world = self._env.world.step(life.world, tuple(life.inbox.pending), self._env.period_s)
            destination = self._env.world.destination(world, self._env.server, life.ticks_here + 1)
        except Exception as error:
            # A world that fails on this state would fail on every server: keep it with its inputs, stop, tell people.
            life.broken = f"{type(error).__name__}: {error}"
            _log.exception("the world failed on %s at tick %d; it stands still", life.id, life.tick)
            return
        applied = life.inbox.take()
        life.world = world
        life.tick += 1
        life.ticks_here += 1
        life.stint.last_tick_ns = now_ns
        life.stint.first_tick_ns = life.stint.first_tick_ns or now_ns
        self._acknowledge(life, applied)
        if destination is not None and destination != self._env.server:
            self._env.wants_to_go(life.id, destination)

    def _acknowledge(self, life: _Life, applied: list[PendingInput]) -> None:
        for source, upto in life.inbox.sources_of(applied).items():
            ack = InputAck(entity=life.id, applied=upto, tick=life.tick, epoch=life.fence.epoch, sub=life.fence.sub)
            self._env.acknowledge(source, ack)

    def _input(self, life: _Life, source: str, seq: int, data: bytes) -> None:
        if life.frozen:
            self._journal(life, source, seq, data)
            return
        admission = life.inbox.offer(source, seq, data)
        if admission is Admission.ACCEPTED:
            return
        self._env.count(f"input_{admission}")
        if admission is Admission.DUPLICATE:
            # Its acknowledgement may have been lost with the session of a server that is gone.
            applied = life.inbox.cursors[source].applied
            ack = InputAck(entity=life.id, applied=applied, tick=life.tick, epoch=life.fence.epoch, sub=life.fence.sub)
            self._env.acknowledge(source, ack)

    def _journal(self, life: _Life, source: str, seq: int, data: bytes) -> None:
        if life.journaled >= MAX_JOURNAL or life.journaled_bytes + len(data) > MAX_JOURNAL_BYTES:
            self._env.count("input_journal_full")
            return
        life.journaled += 1
        life.journaled_bytes += len(data)
        life.journal.append(InputItem(source=source, seq=seq, data=data))

    # --- custody ---------------------------------------------------------------------------------------------------

    def _begin_stint(self, life: _Life) -> Stint:
        return self._env.custody.start(
            Stint(
                entity=life.id,
                server=self._env.server,
                epoch=life.fence.epoch,
                sub=life.fence.sub,
                started_tick=life.tick,
                started_hash=state_hash(self._snapshot(life).encode()),
                started_ns=self._env.monotonic_ns(),
            )
        )

    def _freeze(self, life: _Life) -> Frozen | None:
        if life.frozen:
            return None
        life.frozen = True
        encoded = self._snapshot(life).encode()
        digest = state_hash(encoded)
        now_ns = self._env.monotonic_ns()
        life.stint.ended_tick, life.stint.ended_hash, life.stint.ended_ns = life.tick, digest, now_ns
        return Frozen(life.fence, life.kind, life.tick, encoded, digest, now_ns)

    def _resume(self, life: _Life, fence: Fence) -> None:
        if not life.frozen or fence <= life.fence:
            return
        life.frozen, life.fence, life.ticks_here = False, fence, 0
        life.stint = self._begin_stint(life)
        journal, life.journal = life.journal, []
        life.journaled = life.journaled_bytes = 0
        for item in journal:
            self._input(life, item.source, item.seq, item.data)

    def _snapshot(self, life: _Life) -> Snapshot:
        return Snapshot(life.kind, life.tick, life.world, life.inbox.to_data())

    def _inspect(self, life: _Life) -> dict[str, Any]:
        return {
            "id": life.id,
            "kind": life.kind,
            "epoch": life.fence.epoch,
            "sub": life.fence.sub,
            "tick": life.tick,
            "frozen": life.frozen,
            "broken": life.broken,
            "pending_inputs": len(life.inbox.pending),
            "sources": {
                name: {"accepted": c.accepted, "applied": c.applied, "digest": c.digest.hex()}
                for name, c in life.inbox.cursors.items()
            },
        }


# Replaced before `init` returns; `_Life` needs a value to be built with.
_NO_STINT: Final = Stint("", "", 0, 0, 0, "", 0)
