"""The streams that this server simulates, as clients ask for them: inputs in, replies out.

What changes a stream is an input of its entity, and is answered when its tick may be told (`publication`). A question
that changes nothing is answered at once, from what may be told. A server that does not simulate the stream says which
one does.
"""

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import trio

from batonpass.actors.base.clock import Bell, Clock
from batonpass.authority.names import NAME_PATTERN, instance_of
from batonpass.crypto.bounded_tables import LruTable
from batonpass.simserver.durability.creation_barrier import EntityCopies
from batonpass.simserver.entity.environment import EntityEnvironment
from batonpass.simserver.entity.feed import Committed, EntityChange
from batonpass.simserver.entity.own_inputs import OWN_SOURCE
from batonpass.simserver.entity.state import Life
from batonpass.simserver.entity.table import Holding, Holdings
from batonpass.simserver.net.home_answers import HomeRefused, HomeUnreachable
from batonpass.simserver.net.ports import EntityWhereabouts
from batonpass.simserver.sync.door.ports import EarlyPlace, HeldDesync, HeldSnapshot, OpenClient
from batonpass.simserver.sync.events.limits import StreamLimits
from batonpass.simserver.sync.events.messages import StreamEvent, StreamReply, StreamRequest
from batonpass.simserver.sync.events.refusals import RefusalCode, StreamRefusal
from batonpass.simserver.sync.events.snapshots import SnapshotOffer
from batonpass.simserver.sync.events.stream import StreamMachine
from batonpass.simserver.sync.hosting.inputs import (
    DumpGiven,
    Heard,
    SnapshotGiven,
    disguised,
    encoded_input,
)
from batonpass.simserver.sync.hosting.publication import NOTHING, StreamPublication
from batonpass.simserver.sync.hosting.world import KIND, EventStreams, InputOutcome

__all__ = ["HostedStreams", "entity_of"]

# Less than a third of the silence after which a client counts as gone.
HEAR_EVERY_S: Final = 2.0
# A hand-over freezes a stream for milliseconds; a takeover takes seconds, and clients ask again.
PATIENCE_S: Final = 3.0
MAX_WAITING: Final = 4_096
_LOOK_AGAIN_S: Final = 0.05


def _unavailable(message: str) -> StreamRefusal:
    return StreamRefusal(RefusalCode.UNAVAILABLE, message)


def entity_of(instance: str, stream: str) -> str:
    """The entity that is a stream: of this instance, or of the one that the name begins with, as `beta.game`.

    Raises StreamRefusal: there can be no stream of this name.
    """
    home, dot, name = stream.rpartition(".")
    entity = f"{home if dot else instance}.{KIND}-{name}"
    if not name or not re.fullmatch(NAME_PATTERN, entity):
        raise StreamRefusal(
            RefusalCode.BAD_PATH, f"{stream!r:.80} names no stream: use up to 57 letters, digits, - or _"
        )
    return entity


@dataclass(slots=True)
class _Waiting:
    """A request whose input waits for its tick."""

    tick: int | None = None
    outcome: InputOutcome = field(default_factory=InputOutcome)


@dataclass(slots=True)
class _Hosted:
    """One stream of this server, for as long as it is simulated here without a break."""

    life: Life
    publication: StreamPublication
    newest: int
    # The events that wait for a tick, each with the number of the input that it is of, and its own among all of them.
    early: deque[tuple[int, int, StreamEvent]] = field(default_factory=deque)
    # Who was heard of since that was last said to the stream.
    heard: set[str] = field(default_factory=set)
    # Up to which number the events of clients are taken, by the last answers to what they posted.
    acked: LruTable[str, int] = field(default_factory=lambda: LruTable(MAX_WAITING))


class HostedStreams:
    """The streams of one server; `serve` has to run."""

    def __init__(
        self,
        instance: str,
        world: EventStreams,
        environment: EntityEnvironment,
        holdings: Holdings,
        copies: EntityCopies,
        whereabouts: EntityWhereabouts,
        clock: Clock,
        count: Callable[[str], None],
    ) -> None:
        self._instance: Final = instance
        self._world: Final = world
        self._environment: Final = environment
        self._holdings: Final = holdings
        self._copies: Final = copies
        self._whereabouts: Final = whereabouts
        self._clock: Final = clock
        self._count: Final = count
        self._hosted: Final[dict[str, _Hosted]] = {}
        self._waiting: Final[dict[tuple[str, int], _Waiting]] = {}
        # By entity and client: whose inputs wait. What else they ask waits outside of the inbox, which is for all.
        self._askers: Final[set[tuple[str, str]]] = set()
        # The entities that may have begun here before ticks were missed, so that it is not known what of them is kept.
        self._unseen: set[str] = set()
        self._acknowledged: Final[set[str]] = set()
        self._bell: Final = clock.bell()
        self._waiters: list[Bell] = []
        # How many events there were to be told early, of all streams; and by entity who waits for them.
        self._early_events = 0
        self._early_bells: Final[dict[str, Bell]] = {}
        self._feed: Final = holdings.feed.follow("streams", self._bell.ring)
        environment.own_inputs.listen(lambda ack: self._is_acknowledged(ack.entity))

    # --- what happens to streams -----------------------------------------------------------------------------------

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow the streams, have copies made of what changes, and tell of what is kept, until cancelled."""
        task_status.started()
        next_ns = 0
        while True:
            await self._bell.wait(HEAR_EVERY_S / 2)
            due: dict[str, Holding] = {}
            while (batch := self._feed.take()) is not None:
                if batch.missed:
                    self._count("stream_ticks_missed")
                    self._has_missed()
                for event in batch.events:
                    if isinstance(event, Committed):
                        due.update(self._has_ticked(event))
                    elif event.change is EntityChange.ENDED:
                        self._hosted.pop(event.entity, None)
            for entity in self._acknowledged | due.keys():
                self._learn_kept(entity)
            self._acknowledged.clear()
            waiters, self._waiters = self._waiters, []
            for bell in waiters:
                bell.ring()
            if due:
                await self._copies.copy_now(list(due.values()))
            if self._clock.monotonic_ns() >= next_ns:
                next_ns = self._clock.monotonic_ns() + round(HEAR_EVERY_S * 1e9)
                self._say_who_was_heard()

    def _has_missed(self) -> None:
        """Ticks were not seen, which may have changed any stream: nothing is told of one before a copy is kept."""
        self._hosted.clear()
        self._unseen = set(self._holdings.ids())

    def _is_acknowledged(self, entity: str) -> None:
        self._acknowledged.add(entity)
        self._bell.ring()

    def _has_ticked(self, event: Committed) -> dict[str, Holding]:
        """A tick of an entity; the entity, if it is a stream of which a copy is needed now."""
        holding = self._holdings.get(event.entity)
        if holding is None or holding.life.kind != KIND:
            return {}
        before, after = event.before, event.after
        hosted, is_unseen = self._hosted.get(event.entity), event.entity in self._unseen
        # Until it ends here: a hand-over that is refused raises the fence, and nothing is kept by that.
        if hosted is None:
            began = None if is_unseen else before["tick"]
            publication = StreamPublication(began, was_handed_over=0 < before["tick"] >= after["tick"] - 1)
            hosted = self._hosted[event.entity] = _Hosted(holding.life, publication, before["tick"])
            self._unseen.discard(event.entity)
        tick, log = after["tick"], after["log"]
        # What comes while a stream pauses is in its log for the tick after this one.
        last = log[-1][0] if log else 0
        changed = is_unseen or (after is not before and last >= tick)
        numbers = [item.seq for item in event.inputs if item.source == OWN_SOURCE]
        hosted.newest = tick
        while numbers and hosted.early and hosted.early[0][0] <= max(numbers):
            hosted.early.popleft()
        hosted.publication.committed(tick, max(numbers, default=None), changed=changed)
        for number in numbers:
            outcome = self._world.outcomes.pop((event.entity, number), InputOutcome())
            if (one := self._waiting.pop((event.entity, number), None)) is not None:
                one.outcome, one.tick = outcome, max(tick, last)
        if hosted.publication.owes_number:
            holding.life.take_own_input(encoded_input(Heard()))
        return {event.entity: holding} if changed or numbers else {}

    def _learn_kept(self, entity: str) -> None:
        holding, hosted = self._holdings.get(entity), self._hosted.get(entity)
        if holding is None:
            self._hosted.pop(entity, None)
            return
        if hosted is not None and hosted.life is holding.life:
            hosted.publication.kept(self._kept_number(holding.life))

    def _kept_number(self, life: Life) -> int:
        if not self._environment.keeps_copies():
            return life.applied(OWN_SOURCE) or 0
        return life.acceptance.durable.get(OWN_SOURCE, 0)

    def _say_who_was_heard(self) -> None:
        for entity, hosted in list(self._hosted.items()):
            holding = self._holdings.get(entity)
            if holding is None:
                del self._hosted[entity]
            elif hosted.heard and holding.life.take_own_input(encoded_input(Heard(tuple(sorted(hosted.heard))))):
                hosted.heard.clear()

    # --- what clients ask ------------------------------------------------------------------------------------------

    @property
    def limits(self) -> StreamLimits:
        """The bounds of all streams."""
        return self._world.limits

    async def request(self, stream: str, request: StreamRequest) -> StreamReply:
        """Take a request and answer it once that cannot be taken back any more.

        Raises StreamRefusal: it was not taken; with `unavailable` it may have been.
        """
        entity = entity_of(self._instance, stream)
        request = replace(request, private_id=disguised(request.private_id))
        if not self._changes_nothing(entity, request):
            await self._given(entity, request)
        hosted, live = self._hosted_now(entity)
        return self._with_acked(hosted, request.private_id, live.answer(request, hosted.publication.tick))

    async def leave(self, stream: str, private_id: str) -> StreamReply:
        """Disconnect a client, which is told nothing more; raises as `request` does."""
        live = await self._stream(stream)
        # It knows all there is.
        asked = StreamRequest(private_id, live.tick, incarnation=live.incarnation, leave=True)
        return await self.request(stream, asked)

    async def changed(self, stream: str, after: int) -> int:
        """Wait until a tick above `after` may be told; that tick. Raises as `request` does."""
        entity = entity_of(self._instance, stream)
        await trio.lowlevel.checkpoint()
        while True:
            hosted = self._hosted.get(entity)
            if hosted is None or entity not in self._holdings.ids():
                await self._here(entity)
            elif hosted.publication.tick > after:
                return hosted.publication.tick
            await self._look_again()

    async def early(self, stream: str, after: EarlyPlace) -> tuple[EarlyPlace, Sequence[StreamEvent]]:
        """As `StreamHost.early`. These wait for their tick, and are lost if the server is before a copy has it."""
        entity = entity_of(self._instance, stream)
        while True:
            await self._here(entity)
            hosted = self._hosted.get(entity)
            if hosted is not None and hosted.early and hosted.early[-1][1] > after[1]:
                return (0, hosted.early[-1][1]), [event for _, own, event in hosted.early if own > after[1]]
            bell = self._early_bells[entity] = self._clock.bell()
            try:
                await bell.wait(HEAR_EVERY_S)
            finally:
                if self._early_bells.get(entity) is bell:
                    del self._early_bells[entity]

    def _tell_early(self, entity: str, number: int, request: StreamRequest) -> None:
        hosted, holding = self._hosted.get(entity), self._holdings.get(entity)
        if hosted is None or holding is None or hosted.life is not holding.life or not request.events:
            return
        for event in self._world.stream_of(entity, holding.life.seen).promised(request):
            self._early_events += 1
            hosted.early.append((number, self._early_events, event))
        if (bell := self._early_bells.get(entity)) is not None:
            bell.ring()

    async def replies_for(self, stream: str, clients: Sequence[OpenClient]) -> Sequence[StreamReply | StreamRefusal]:
        """What clients are told that have open connections, each or why it is not. Raises as `request` does."""
        entity = entity_of(self._instance, stream)
        await self._here(entity)
        hosted, live = self._hosted_now(entity)
        known = [(disguised(client.private_id), client.known) for client in clients]
        replies = live.replies_for(known, hosted.publication.tick)
        for at, ((client, _), reply) in enumerate(zip(known, replies, strict=True)):
            if isinstance(reply, StreamReply):
                hosted.heard.add(client)
                replies[at] = self._with_acked(hosted, client, reply)
        return replies

    async def offer_snapshot(self, stream: str, private_id: str, offer: SnapshotOffer) -> None:
        """As `StreamMachine.offer_snapshot`; raises as `request` does."""
        await self._given(entity_of(self._instance, stream), SnapshotGiven(disguised(private_id), offer))

    async def store_dump(self, stream: str, private_id: str, tick: int, dump: str) -> None:
        """As `StreamMachine.store_dump`; raises as `request` does."""
        await self._given(entity_of(self._instance, stream), DumpGiven(disguised(private_id), tick, dump))

    async def snapshot(self, stream: str) -> HeldSnapshot:
        """The trusted snapshot; raises as `request` does."""
        live = await self._stream(stream)
        if live.snapshot is None:
            raise StreamRefusal(RefusalCode.NO_SNAPSHOT, "no snapshot of this stream is trusted yet: begin with tick 0")
        return HeldSnapshot(live.incarnation, live.snapshot)

    async def desync(self, stream: str) -> HeldDesync:
        """The last desync, and the dumps of it; raises as `request` does."""
        live = await self._stream(stream)
        if live.desync is None:
            raise StreamRefusal(RefusalCode.NO_DESYNC, "no two clients of this stream have differed: nothing to see")
        return HeldDesync(live.incarnation, live.desync, live.dumps)

    def followed(self) -> Iterator[tuple[str, int, StreamMachine]]:
        """Each stream that is simulated here, for people: its entity, the highest tick that may be told, and itself."""
        for entity, hosted in self._hosted.items():
            holding = self._holdings.get(entity)
            if holding is not None and hosted.life is holding.life:
                stream = self._world.stream_of(entity, holding.life.seen)
                yield entity, max(0, hosted.publication.tick), stream

    async def _stream(self, stream: str) -> StreamMachine:
        entity = entity_of(self._instance, stream)
        holding = await self._here(entity)
        return self._world.stream_of(entity, holding.life.seen)

    def _hosted_now(self, entity: str) -> tuple[_Hosted, StreamMachine]:
        """The stream by its last committed tick. Raises StreamRefusal: it is not here, or nothing of it may be told."""
        holding, hosted = self._holdings.get(entity), self._hosted.get(entity)
        if holding is None or hosted is None or hosted.life is not holding.life or hosted.publication.tick == NOTHING:
            raise _unavailable(f"nothing may be told of {entity} at this moment: ask again")
        return hosted, self._world.stream_of(entity, holding.life.seen)

    def _changes_nothing(self, entity: str, request: StreamRequest) -> bool:
        """Whether this is a question of a client that is connected, and of nothing but what may be told."""
        if request.events or request.state is not None or request.leave or request.hashes:
            return False
        try:
            hosted, live = self._hosted_now(entity)
        except StreamRefusal:
            return False
        is_plain = request.incarnation in {None, live.incarnation} and request.known <= hosted.publication.tick
        if not is_plain or not live.is_connected(request.private_id):
            return False
        hosted.heard.add(request.private_id)
        return True

    @staticmethod
    def _with_acked(hosted: _Hosted, client: str, reply: StreamReply) -> StreamReply:
        """The reply with what was taken of the client's events in ticks that may be told."""
        if hosted.publication.tick >= hosted.newest:
            return reply
        return reply._replace(acked=hosted.acked.get(client, 0))

    async def _given(self, entity: str, given: StreamRequest | SnapshotGiven | DumpGiven) -> None:
        """Have the stream apply this, and wait until that may be told; of each client one thing at a time."""
        asker = entity, given.private_id if isinstance(given, StreamRequest) else given.client
        data, until_ns = encoded_input(given), self._clock.monotonic_ns() + round(PATIENCE_S * 1e9)
        while True:
            holding = await self._here(entity)
            if len(self._waiting) >= MAX_WAITING:
                raise _unavailable(f"{len(self._waiting)} requests wait already: ask again later")
            if asker not in self._askers and (number := holding.life.take_own_input(data)):
                break
            # It is frozen, and leaves or is resumed; or its inbox is full until its next tick; or the client has asked.
            await self._look_again()
            self._require_patience(entity, until_ns)
        if isinstance(given, StreamRequest):
            self._tell_early(entity, number, given)
        one = self._waiting[entity, number] = _Waiting()
        self._askers.add(asker)
        try:
            while not self._is_told(entity, one):
                if self._holdings.get(entity) is not holding:
                    await self._here(entity)
                    raise _unavailable("the stream has left meanwhile: ask again")
                await self._look_again()
                self._require_patience(entity, until_ns)
        finally:
            self._waiting.pop((entity, number), None)
            self._askers.discard(asker)
        if one.outcome.refusal is not None:
            raise one.outcome.refusal
        if isinstance(given, StreamRequest):
            self._hosted[entity].acked[given.private_id] = one.outcome.acked

    def _require_patience(self, entity: str, until_ns: int) -> None:
        if self._clock.monotonic_ns() >= until_ns:
            self._count("stream_requests_late")
            raise _unavailable(f"{entity} did not answer within {PATIENCE_S:g} s: {self._remedy(entity)}")

    def _remedy(self, entity: str) -> str:
        by_copy, _ = self._copies.awaited_of(entity)
        if by_copy or instance_of(entity) == self._instance:
            return "ask again"
        return (
            f"{self._environment.server} is the only server of {self._instance}, so nothing of another instance is "
            "durable on it; an operator has to move the stream, or to start another server there"
        )

    def _is_told(self, entity: str, one: _Waiting) -> bool:
        hosted = self._hosted.get(entity)
        return one.tick is not None and hosted is not None and hosted.publication.tick >= one.tick

    async def _here(self, entity: str) -> Holding:
        """The entity, if it is here. Raises what says where else it is, or that there is none."""
        holding = self._holdings.get(entity)
        if holding is not None and not holding.life.over:
            return holding
        try:
            server = await self._whereabouts.authority_of(entity)
        except (HomeUnreachable, HomeRefused) as error:
            raise _unavailable(f"{entity} is not here, and home does not say where: ask again") from error
        if server is None:
            raise StreamRefusal(RefusalCode.UNKNOWN_STREAM, f"there is no entity {entity}: create it first")
        if server == self._environment.server and (gone := self._holdings.gone(entity)) is not None:
            # Passed on directly, of which the log hears later. Else it is no answer where a stream went from here. Two
            # servers that passed it to each other, one after the other, would send clients in a circle for ever.
            server = gone.moved_to
        if not server or server == self._environment.server:
            raise _unavailable(f"no server simulates {entity} at this moment: ask again")
        door = await self._whereabouts.door_of(server)
        if not door:
            raise _unavailable(f"{server} simulates {entity}, and has no door that this server knows: ask again")
        instance, _, local = entity.partition(".")
        name = local.removeprefix(f"{KIND}-")
        url = f"{door}/{name if instance_of(server) == instance else f'{instance}.{name}'}"
        raise StreamRefusal(RefusalCode.ELSEWHERE, f"{server} simulates {entity}: ask {url}", url, server)

    async def _look_again(self) -> None:
        """Wait until there is something new of streams, or a moment."""
        bell = self._clock.bell()
        self._waiters.append(bell)
        await bell.wait(_LOOK_AGAIN_S)
