"""One replica of a scene: what peers write is received and applied, what is changed here is flushed to them.

A tick is `apply`, changes, `flush`, in this order: a change that is not flushed would be replaced unseen by a write
that wins. A write is applied by its bytes, whatever they mean, so no write can make the rest of a batch fail.

Which messages go where, with which timestamps and in which order, is as with `@dcl/ecs`, byte for byte. Its faults that
docs/reference/scene.md lists are the exceptions.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import repeat
from operator import lt
from typing import Final, NamedTuple

from batonpass.simserver.sync.scene.codec import (
    MAX_U32,
    Columns,
    MessageKind,
    MessageRow,
    SceneRun,
    read_chunk_untrusted,
    write_run,
)
from batonpass.simserver.sync.scene.elements import (
    MAX_TIMESTAMP,
    MergeOutcome,
    Provenance,
)
from batonpass.simserver.sync.scene.entity_ids import (
    EntityNumbersUsedUp,
    EntityState,
    Regime,
    regime_of,
)
from batonpass.simserver.sync.scene.exchange import Applied, PeerKind, SceneRefusal, SetComponent
from batonpass.simserver.sync.scene.limits import VALUE_COST_BYTES, SceneLimits
from batonpass.simserver.sync.scene.network_ids import (
    NETWORK_ENTITY,
    NetworkId,
    network_value,
)
from batonpass.simserver.sync.scene.profiles import SDK_7_28, InteropProfile
from batonpass.simserver.sync.scene.rights import SceneCorrections, WriteRights
from batonpass.simserver.sync.scene.store import TRANSFORM, SceneStore
from batonpass.simserver.sync.scene.translation import (
    chunked,
    local_run,
    names_of,
    network_messages,
    renamed,
    without,
)

__all__ = ["SceneReplica"]

_OF_ENTITIES: Final = (MessageKind.DELETE_ENTITY, MessageKind.DELETE_ENTITY_NETWORK)

_Tables = tuple[Callable[[int, int], int], dict[int, int], dict[int, bytes | None], dict[int, Provenance]]


def _no_tables() -> _Tables:
    stamps: dict[int, int] = {}
    return stamps.get, stamps, {}, {}


class _Received(NamedTuple):
    peer: str
    runs: list[SceneRun]
    cost_bytes: int


@dataclass(slots=True)
class _ScenePeer:
    kind: PeerKind
    public: bytes
    is_told: bool
    is_heard: bool
    network: int | None
    queued_bytes: int = 0


class SceneReplica(SceneStore):
    """A replica of a scene's entities and components.

    Args:
        name: of this replica, in the provenance of what is changed here.
        components: the numbers of those of which the last write wins, in the order in which they are flushed.
        sets: those whose values are a grow-only set; they are flushed after the others.
        profile: what peers agree on.
        limits: what peers can make grow.
        keep_unknown: whether a component that was never named here is kept as soon as a peer writes it. If not, what is
            written of it is handed on and not kept, as in `@dcl/ecs`.
        rights: who may write what, if this replica is the scene's authority. A write of any other is not taken, and
            the next flush brings its sender back to what holds.

    Attributes:
        corrections: what refused writers are told.
        dropped_early: how many chunks came from peers that did not have the state yet.
        merged: what became of the messages of peers, as of `Applied`, since this replica was made; `denied` are writes
            of those who had no right to them.
    """

    def __init__(
        self,
        name: str,
        components: Iterable[int] = (),
        sets: Iterable[SetComponent] = (),
        profile: InteropProfile = SDK_7_28,
        limits: SceneLimits | None = None,
        *,
        keep_unknown: bool = False,
        rights: WriteRights | None = None,
    ) -> None:
        super().__init__(name, components, sets, profile, limits, keep_unknown=keep_unknown, rights=rights)
        self.dropped_early = 0
        self.merged: Final[Counter[str]] = Counter()
        self._authority: bytes | None = None
        self.corrections = SceneCorrections(self.numbers)
        self._peers: Final[dict[str, _ScenePeer]] = {}
        self._queue: list[_Received] = []
        # What was taken from a peer and is for all others.
        self._onward: list[tuple[str, SceneRun]] = []
        # More than what there is by what was replaced since the last count.
        self._cost_bytes = 0
        self._since_count_bytes = 0
        # Whether nothing may grow: each write is looked at then.
        self._full = False

    # ---------------------------------------------------------------- peers

    def connect(
        self,
        peer: str,
        kind: PeerKind = PeerKind.PLAIN,
        public: bytes = b"",
        *,
        has_state: bool = True,
        network: int | None = None,
    ) -> None:
        """Have a peer take part: it gets what is flushed from now on.

        Args:
            peer: its name.
            kind: how it names entities.
            public: the public key that it has proved to have.
            has_state: whether it starts with the state that is here. One that does not is neither told nor heard; what
                it sends is dropped.
            network: its network id, which its key has (`membership`). It names new entities under this id and no other,
                and does not write names itself. None: it may, as in `@dcl/ecs`.
        """
        self._peers[peer] = _ScenePeer(kind, public, has_state, has_state, network)

    def tell(self, peer: str) -> None:
        """Have a peer get what is flushed from now on, after the state that is here."""
        self._peers[peer].is_told = True

    def hear(self, peer: str) -> None:
        """Take what a peer sends from now on; it has the state."""
        self._peers[peer].is_heard = True

    def hold_back(self, peer: str) -> None:
        """Neither tell nor hear a peer until it has the state again. What it sent and was not applied is dropped."""
        known = self._peers[peer]
        known.is_told = known.is_heard = False
        known.queued_bytes = 0
        self._queue = [received for received in self._queue if received.peer != peer]

    def trust(self, public: bytes) -> None:
        """Take AUTHORITATIVE_PUTs from peers with this public key, which a certificate says is the authority's.

        Raises:
            ValueError: if the key is empty.
        """
        if not public:
            raise ValueError("the authority has an empty public key: take the one that its certificate has")
        self._authority = public

    def disconnect(self, peer: str) -> None:
        """Have a peer take part no more. What it sent and was not applied is dropped."""
        self._peers.pop(peer, None)
        self.corrections.forget(peer)
        self._queue = [received for received in self._queue if received.peer != peer]

    def receive(self, peer: str, chunk: bytes) -> None:
        """Take a chunk of messages from a peer; `apply` applies them.

        Raises:
            SceneRefusal: if a message is bad, or the peer has sent too much since the last `apply`.
            KeyError: if the peer is not connected.
        """
        known = self._peers[peer]
        if not known.is_heard:
            self.dropped_early += 1
            return
        if known.queued_bytes + len(chunk) > self._limits.max_queued_bytes:
            raise SceneRefusal(
                f"{peer} has sent {known.queued_bytes} bytes that are not applied: {len(chunk)} more refused"
            )
        runs, used_bytes, _, refusal = read_chunk_untrusted(chunk, self._limits.max_message_bytes)
        known.queued_bytes += used_bytes
        if runs:
            messages = sum(map(len, runs))
            self._queue.append(_Received(peer, runs, used_bytes + messages * VALUE_COST_BYTES))
        if refusal:
            raise SceneRefusal(f"{peer} sent at byte {used_bytes} of a chunk: {refusal}")

    # ---------------------------------------------------------------- a tick: apply

    def apply(self) -> Applied:
        """Apply what was received, in its order; entities are removed last."""
        queue, self._queue = self._queue, []
        applied = Applied()
        removed: list[tuple[int, Provenance]] = []
        for peer, runs, cost_bytes in queue:
            self._peers[peer].queued_bytes = 0
            self._full = not self._has_room(cost_bytes)
            provenance = (peer, self.tick, peer)
            for run in runs:
                self._apply_run(peer, run, provenance, applied, removed)
        for entity, provenance in removed:
            self._remove(entity, provenance)
        if removed:
            applied.changes.append(SceneRun(MessageKind.DELETE_ENTITY, [[entity for entity, _ in removed]]))
        for what in ("outdated", "ignored", "refused"):
            self.merged[what] += getattr(applied, what)
        self.merged["taken"] += sum(map(len, applied.changes))
        return applied

    def _apply_run(
        self,
        peer: str,
        run: SceneRun,
        provenance: Provenance,
        applied: Applied,
        removed: list[tuple[int, Provenance]],
    ) -> None:
        run, local = self._local(peer, self._without_names(peer, run, applied), applied)
        denied = [] if self._rights is None else self._denied(self._rights, peer, local)
        if denied:
            applied.refused += len(denied)
            run, local = without(run, denied), without(local, denied)
        match local.kind:
            case MessageKind.PUT:
                lost = self._apply_puts(local.columns, provenance, applied)
            case MessageKind.DELETE:
                take = self._take
                lost = [
                    at
                    for at, (entity, component, timestamp) in enumerate(local.rows)
                    if not take(entity, component, timestamp, None, provenance, applied)
                ]
            case MessageKind.APPEND:
                lost = [at for at, row in enumerate(local.rows) if not self._take_value(row, provenance, applied)]
            case MessageKind.DELETE_ENTITY:
                lost = self._not_removable(peer, local.columns[0])
            case _:
                lost = self._apply_forced(peer, local, provenance, applied)
        if lost:
            run, local = without(run, lost), without(local, lost)
        if not len(run):
            return
        self._onward.append((peer, run))
        if local.kind == MessageKind.AUTHORITATIVE_PUT:
            local = SceneRun(MessageKind.PUT, local.columns)
        if local.kind == MessageKind.DELETE_ENTITY:
            removed += [(entity, provenance) for entity in local.columns[0]]
        else:
            applied.changes.append(local)

    def _apply_puts(self, columns: Columns, provenance: Provenance, applied: Applied) -> list[int]:
        """Apply PUTs; which of them are not for other peers. A write that is newer than what a known entity has holds.

        This is the hot loop, so it does for such a write what `LwwElements.merge` does.
        """
        if self._puts_all(columns, provenance):
            return []
        lost: list[int] = []
        take, top = self._take, MAX_TIMESTAMP
        tables: dict[int, _Tables] = {}
        last = -1
        stamp_of, stamps, values, origins = _no_tables()
        for at, entity, component, timestamp, data in zip(range(len(columns[0])), *columns, strict=True):
            if component != last:
                last = component
                if component not in tables:
                    tables[component] = self._tables(component)
                stamp_of, stamps, values, origins = tables[component]
            if stamp_of(entity, MAX_U32) < timestamp <= top:
                stamps[entity] = timestamp
                values[entity] = data
                origins[entity] = provenance
            elif not take(entity, component, timestamp, data, provenance, applied):
                lost.append(at)
        return lost

    def _puts_all(self, columns: Columns, provenance: Provenance) -> bool:
        """Apply PUTs all of which hold, of one component and one for each entity; False, and nothing done, if not."""
        entities, components, timestamps, datas = columns
        if not entities:
            return True
        component = components[0]
        if components.count(component) != len(components) or len(set(entities)) != len(entities):
            return False
        stamp_of, stamps, values, origins = self._tables(component)
        is_newer = all(map(lt, map(stamp_of, entities, repeat(MAX_U32)), timestamps))
        if not is_newer or max(timestamps) > MAX_TIMESTAMP:
            return False
        stamps.update(zip(entities, timestamps, strict=True))
        values.update(zip(entities, datas, strict=True))
        origins.update(dict.fromkeys(entities, provenance))
        return True

    def _tables(self, component: int) -> _Tables:
        """What the hot loop writes to; nothing is found in it if each write has to be taken the slow way."""
        elements = self._elements.get(component)
        if elements is None or elements.dirty or component == NETWORK_ENTITY or self._full:
            return _no_tables()
        return elements.stamps.get, elements.stamps, elements.values, elements.origins

    def _refuse(self, peer: str, why: str, applied: Applied) -> None:
        """Refuse what a peer may write but for its form or a bound: its replica has it, and has to take the state."""
        applied.refused += 1
        if self._rights is not None:
            self.corrections.lost(peer, why)

    def _take(
        self, entity: int, component: int, timestamp: int, data: bytes | None, provenance: Provenance, applied: Applied
    ) -> bool:
        """Merge a write; whether it is for all other peers, too."""
        if not self._know(entity):
            applied.ignored += 1
            return False
        elements = self._elements.get(component) or self._define(component)
        if elements is None:
            return self._hands_on(component, provenance, applied)
        if self._full and (entity not in elements.values or len(data or b"") > len(elements.values[entity] or b"")):
            self._refuse(provenance[0], self._why_full, applied)
            return False
        match elements.merge(entity, timestamp, data, provenance):
            case MergeOutcome.OUTDATED:
                applied.outdated += 1
                return False
            case MergeOutcome.REFUSED:
                self._refuse(provenance[0], f"a timestamp of {timestamp} leaves none above it", applied)
                return False
            case MergeOutcome.UPDATED if component == NETWORK_ENTITY and data is None:
                self._unnamed.append(entity)
            case MergeOutcome.UPDATED if component == NETWORK_ENTITY:
                self._names.note(entity, data)
        return True

    def _take_value(self, row: MessageRow, provenance: Provenance, applied: Applied) -> bool:
        entity, component, _, data = row
        if not self._know(entity):
            applied.ignored += 1
            return False
        if self._full:
            self._refuse(provenance[0], self._why_full, applied)
            return False
        sets = self._sets.get(component) or self._define_set(component)
        if sets is None:
            return self._hands_on(component, provenance, applied)
        sets.merge(entity, data, provenance)
        return True

    def _hands_on(self, component: int, provenance: Provenance, applied: Applied) -> bool:
        """Whether what is written to a component that is not kept is for all other peers.

        An authority that keeps all components has no room for this one, or knows it as one of another kind.
        """
        if self._rights is None or not self._keep_unknown:
            return True
        self._refuse(
            provenance[0],
            f"component {component} is not kept: it is of another kind, or {self._limits.max_components} others are",
            applied,
        )
        return False

    @property
    def _why_full(self) -> str:
        return f"the scene is full: {self._limits.max_state_bytes} bytes of values, each with {VALUE_COST_BYTES} more"

    def _apply_forced(self, peer: str, run: SceneRun, provenance: Provenance, applied: Applied) -> list[int]:
        """Apply writes that hold whatever is stored, from the authority; which of them are not taken."""
        places = range(len(run))
        if self._authority is None or self._peers[peer].public != self._authority:
            applied.refused += len(run)
            return list(places)
        lost = []
        for at, entity, component, timestamp, data in zip(places, *run.columns, strict=True):
            elements = self._elements.get(component) or self._define(component)
            if elements is None or not self._know(entity):
                lost.append(at)
                continue
            elements.force(entity, timestamp, data, provenance)
            if component == NETWORK_ENTITY:
                self._names.note(entity, data)
        return lost

    def _denied(self, rights: WriteRights, peer: str, local: SceneRun) -> list[int]:
        """The places of the messages that the peer may not send, each of which is corrected."""
        denied = rights.denied(peer, local.columns[0], self._elements[TRANSFORM].values)
        self.merged["denied"] += len(denied)
        by_ids = self._peers[peer].kind is not PeerKind.NETWORK
        forces = by_ids and self.profile.knows_authoritative_put
        for at in denied:
            if local.kind in (MessageKind.PUT, MessageKind.DELETE):
                entity, component, timestamp = (column[at] for column in local.columns[:3])
                if local.kind == MessageKind.DELETE and self.numbers.state(entity) is EntityState.REMOVED:
                    continue
                if self.corrections.needs_state(peer, entity, by_ids=by_ids):
                    elements = self._elements.get(component)
                    self.corrections.correct(peer, entity, elements, timestamp, self._here, forces=forces)
            else:
                entity = local.columns[0][at]
                self.corrections.lost(peer, f"entity {entity} is not yours to remove or to add to")
        return denied

    def _not_removable(self, peer: str, entities: list[int]) -> list[int]:
        if self._peers[peer].kind is not PeerKind.SCENE:
            return []
        reserved = self.profile.reserved
        return [at for at, entity in enumerate(entities) if regime_of(entity, reserved) is Regime.STREAMED]

    def _without_names(self, peer: str, run: SceneRun, applied: Applied) -> SceneRun:
        """The run without the names of entities, if the peer has its network id by its key."""
        if self._peers[peer].network is None or run.kind in _OF_ENTITIES or NETWORK_ENTITY not in run.columns[1]:
            return run
        lost = [at for at, component in enumerate(run.columns[1]) if component == NETWORK_ENTITY]
        applied.refused += len(lost)
        return without(run, lost)

    def _local(self, peer: str, run: SceneRun, applied: Applied) -> tuple[SceneRun, SceneRun]:
        """The run, and the same under the ids here: a name that is new gets an entity."""
        names = names_of(run)
        if names is None:
            return run, run
        entities = [self._entity_of(peer, name) for name in names]
        lost = [at for at, entity in enumerate(entities) if entity is None]
        for at in lost:
            name = names[at]
            is_own = self._peers[peer].network in {None, name[0]}
            self._refuse(peer, self._why_full if is_own else f"entity {name} is not yours to create", applied)
        if lost:
            run = without(run, lost)
            entities = [entity for entity in entities if entity is not None]
        return run, renamed(run, entities)

    def _entity_of(self, peer: str, name: tuple[int, int]) -> int | None:
        """The entity of a name, which is created if there is none, and is the peer's then; None if none is left."""
        entity = self._names.entity(name)
        if entity is None and not self._full and self._peers[peer].network in {None, name[0]}:
            try:
                entity = self.create_entity()
            except EntityNumbersUsedUp:
                return None
            self.put(entity, NETWORK_ENTITY, network_value(NetworkId(*name)))
            if self._rights is not None:
                self._rights.give(entity, peer)
        return entity

    def _has_room(self, cost_bytes: int) -> bool:
        limit = self._limits.max_state_bytes
        # A count looks at every value, so it has to be paid for by what came in.
        if self._cost_bytes + cost_bytes > limit and self._since_count_bytes >= limit // 8:
            self._since_count_bytes = 0
            self._cost_bytes = self.cost_bytes()
        self._since_count_bytes += cost_bytes
        if self._cost_bytes + cost_bytes > limit:
            return False
        self._cost_bytes += cost_bytes
        return True

    def hydrate(self, messages: bytes) -> None:
        """Replace all that is here by a state that the scene's authority has answered with, and tell no peer.

        What was changed here and not flushed, and what was received and not applied, is gone. It was written by who did
        not know the state. A renderer of this replica needs a snapshot after it.

        Raises:
            SceneRefusal: if the messages are no state. Nothing is changed then.
        """
        runs, used_bytes, skipped, refusal = read_chunk_untrusted(messages, self._limits.max_message_bytes)
        if refusal or skipped or used_bytes != len(messages):
            raise SceneRefusal(f"a state of {len(messages)} bytes has no message at byte {used_bytes}: {refusal}")
        self._load(runs)
        self.corrections = SceneCorrections(self.numbers)
        self._queue, self._onward, self._full = [], [], False
        self._cost_bytes, self._since_count_bytes = self.cost_bytes(), 0

    # ---------------------------------------------------------------- a tick: flush

    def flush(self) -> dict[str, list[bytes]]:
        """End a tick.

        Returns: By peer that is told, what to send it, in this order: what others wrote, what was changed here, removed
            entities. A peer of kind NETWORK gets chunks of at most 12 KiB and none if there is nothing. Any other gets
            exactly one, which is empty if there is nothing.
        """
        runs: list[tuple[str | None, SceneRun]] = list(self._onward)
        self._onward = []
        own = [run for elements in self._elements.values() for run in elements.flush(self._is_known)]
        own += [run for sets in self._sets.values() for run in sets.flush()]
        runs += [(None, run) for run in own]
        released = list(dict.fromkeys(self.numbers.release()))
        if released:
            runs.append((None, SceneRun(MessageKind.DELETE_ENTITY, [released])))
        sent = self._for_all(runs)
        for elements in self._elements.values():
            elements.sweep()
        for entity in self._unnamed:
            if self.value(entity, NETWORK_ENTITY) is None and entity not in self._left:
                self._names.note(entity, None)
        for entity in self._left:
            self._names.removed(entity)
        self._left, self._unnamed = [], []
        self.tick += 1
        return sent

    def _for_all(self, runs: list[tuple[str | None, SceneRun]]) -> dict[str, list[bytes]]:
        """What each peer is sent. It is written once for all that have written nothing. So a peer that writes very much
        does not cost so much for each of the others.
        """
        origins, shared = {origin for origin, _ in runs}, dict[PeerKind, list[bytes]]()
        sent: dict[str, list[bytes]] = {}
        for name, peer in self._peers.items():
            if not peer.is_told:
                continue
            corrections = self.corrections.take(name)
            if name in origins or corrections:
                others = [run for origin, run in runs if origin != name]
                sent[name] = self._for_peer(peer.kind, others + corrections)
                continue
            if peer.kind not in shared:
                shared[peer.kind] = self._for_peer(peer.kind, [run for _, run in runs])
            sent[name] = list(shared[peer.kind])
        return sent

    def _for_peer(self, kind: PeerKind, own: list[SceneRun]) -> list[bytes]:
        if kind is PeerKind.NETWORK:
            # An AUTHORITATIVE_PUT goes by ids alone.
            own = [run for run in own if run.kind != MessageKind.AUTHORITATIVE_PUT]
            return chunked(message for run in own for message in network_messages(run, self._names))
        if kind is not PeerKind.PLAIN:
            own = [local_run(run, self._names) for run in own]
        return [b"".join([write_run(*run) for run in own])]
