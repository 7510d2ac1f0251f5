"""One server's part in interaction across borders: follows its own entities, tells its peers of them, hears of theirs.

Every peer of the instance is told in which cells this server has entities (`GhostInterest`): when that has changed, at
most every `_INTEREST_NS`, and again after `_REPEAT_NS`. A server that has entities within reach of these cells sends
ghosts of them after its rounds. A peer that repeats its interest no more is sent nothing after `_FORGET_NS`.

No ghost is ever taken for the entity: nothing here changes what lives where.
"""

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import cbor2
import trio

from batonpass.actors.net.endpoint import LinkDown, LinkFull
from batonpass.authority.errors import MessageError
from batonpass.authority.fence import Fence
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.neighbours import MAX_GHOST_STATE_BYTES, ContactClaim, GhostInterest, Ghosts
from batonpass.authority.wire.transfer import encode_link
from batonpass.crypto.bounded_tables import FifoTable
from batonpass.simserver.entity.environment import EntityEnvironment
from batonpass.simserver.entity.feed import Changed, EntityChange
from batonpass.simserver.entity.table import Holding, Holdings
from batonpass.simserver.lease.keeper import LeaseKeeper
from batonpass.simserver.neighbours.contact_policy import MeetingEntity, default_policy
from batonpass.simserver.neighbours.contacts import Claim, Contacts
from batonpass.simserver.neighbours.ghost_streams import GhostStream, ShownEntity
from batonpass.simserver.neighbours.ghost_table import MAX_GHOSTS, BadGhost, Ghost
from batonpass.simserver.neighbours.interest import BoundingCells, InterestMap, OwnCells
from batonpass.simserver.neighbours.surroundings import Surroundings
from batonpass.simserver.net.home_answers import HomeRefused, HomeUnreachable
from batonpass.simserver.net.outbox import STATE_CHANNEL
from batonpass.simserver.net.ports import SimserverPorts
from batonpass.simserver.transfer.source.departures import Departures

__all__ = ["HostedNeighbours"]

_log = logging.getLogger("batonpass.simserver.neighbours.host")

# Changes that wait between two rounds; every entity may have one.
_MAX_QUEUED: Final = 262_144
# Messages of peers that come while a round is under way.
_MAX_HELD: Final = 1024
_INTEREST_NS: Final = 200_000_000
_REPEAT_NS: Final = 1_000_000_000
_FORGET_NS: Final = 3_000_000_000
# What a peer says sooner after its last word is not heard: it says it again.
_LEAST_NS: Final = 50_000_000
_LOOK_AGAIN_S: Final = 0.25


@dataclass(slots=True)
class _PeerInReach:
    """Another server: what it is told, and what it was asked for."""

    stream: GhostStream | None = None
    where: tuple[str, int] | None = None
    asked_number: int = -1
    heard_ns: int = 0
    is_new: bool = True
    """Its interest is new: all entities are looked at for it, not only those that changed."""
    wants: int = 0
    """The stream by which it is to tell of its entities; 0: it is not asked yet."""
    number: int = 0
    told: BoundingCells | None = None
    told_ns: int = 0


@dataclass(slots=True)
class _Encoded:
    state: Any
    data: bytes = field(repr=False)


class HostedNeighbours:
    """The neighbours of one server; `serve` has to run.

    Args:
        ghost_hz: how often ghosts are sent in a second, at most as often as there are rounds.
    """

    def __init__(
        self,
        ports: SimserverPorts,
        lease: LeaseKeeper,
        holdings: Holdings,
        environment: EntityEnvironment,
        surroundings: Surroundings,
        departures: Departures,
        ghost_hz: float,
    ) -> None:
        self._server: Final = ports.name
        self._home: Final = ports.home
        self._link: Final = ports.link
        self._outbox: Final = ports.outbox
        self._clock: Final = ports.clock
        self._counts: Final = ports.counts
        self._lease: Final = lease
        self._holdings: Final = holdings
        self._environment: Final = environment
        self.surroundings: Final = surroundings
        self._every: Final = max(1, round(1.0 / (environment.period_s * ghost_hz)))
        self._bell: Final = ports.clock.bell()
        self._feed: Final = environment.feed
        self._follower = self._feed.follow("neighbours", self._bell.ring, _MAX_QUEUED)
        self._cells: Final = OwnCells(surroundings.reach)
        self._interest: Final = InterestMap(surroundings.reach, surroundings.reach)
        self._peers: Final[dict[str, _PeerInReach]] = {}
        self._held: Final[deque[tuple[str, Ghosts, int]]] = deque(maxlen=_MAX_HELD)
        self._encoded: Final = FifoTable[str, _Encoded](MAX_GHOSTS)
        self._streams = 0
        self._lives = 0
        self._told_round = -1
        self._departures: Final = departures
        self._touched: list[tuple[str, Sequence[str]]] = []
        policy = getattr(environment.world, "contact_policy", default_policy)
        self.contacts: Final = Contacts(
            ports.name, policy, self, departures.wants_to_go, self._send_back, environment.count
        )
        surroundings.read_again()

    # --- rounds ----------------------------------------------------------------------------------------------------

    def round_begins(self) -> None:
        """Every entity is about to tick: what is known until now is what all of them see."""
        self._catch_up()
        # A server that was paused must not show for one round what it should have forgotten meanwhile.
        self._forget_silent(self._clock.monotonic_ns())
        self.surroundings.begins(self._environment.rounds.count, self._now_ms())

    def _catch_up(self) -> None:
        while (batch := self._follower.take()) is not None:
            self.surroundings.follow(batch)
            for event in batch.events:
                if isinstance(event, Changed):
                    self._follow(event)
        self._apply_held()

    def _apply_held(self) -> None:
        while self._held:
            self._apply(*self._held.popleft())

    def _follow(self, event: Changed) -> None:
        if event.change is EntityChange.BEGUN:
            self.contacts.came(event.entity)
        elif event.change is EntityChange.ENDED and self._holdings.get(event.entity) is None:
            self.contacts.left(event.entity)

    def _now_ms(self) -> int:
        return max(0, round(self._clock.unix_s() * 1000))

    # --- serving ---------------------------------------------------------------------------------------------------

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Tell peers what there is to tell after each round, until cancelled."""
        if self._follower.error is not None:
            self._follower = self._feed.follow("neighbours", self._bell.ring, _MAX_QUEUED)
            self.surroundings.read_again()
        task_status.started()
        while True:
            await self._bell.wait(_LOOK_AGAIN_S)
            await self._look_up()
            self._between_rounds()

    def _between_rounds(self) -> None:
        if self._feed.is_round:
            return
        self._catch_up()
        now_ns = self._clock.monotonic_ns()
        self._forget_silent(now_ns)
        self.contacts.round_is_over(self._environment.rounds.count, self._has_a_place)
        touched, self._touched = self._touched, []
        if self._lease.may_act(now_ns):
            for entity, others in touched:
                for claim in self.contacts.touched(entity, others):
                    self._claim(claim)
            self._tell(now_ns)

    def _forget_silent(self, now_ns: int) -> None:
        for silent in self.surroundings.table.expire(now_ns):
            self._counts["ghosts_expired"] += 1
            self._ask_anew(silent)
        for name, peer in list(self._peers.items()):
            if name not in self._lease.peers:
                self.surroundings.table.forget(name)
                self._interest.forget(name)
                del self._peers[name]
            elif peer.stream is not None and now_ns - peer.heard_ns > _FORGET_NS:
                peer.stream = None
                self._interest.forget(name)

    async def _look_up(self) -> None:
        """Find out where peers are of which that is not known."""
        for name in self._lease.peers:
            if name == self._server:
                continue
            peer = self._peers.setdefault(name, _PeerInReach())
            if peer.where is None:
                try:
                    row = await self._home.row(name)
                except (HomeUnreachable, HomeRefused) as error:
                    _log.info("it is not known where %s is: %s", name, error)
                    return
                peer.where = None if row is None or not row.link_port else (row.link_host, row.link_port)

    def _tell(self, now_ns: int) -> None:
        number = self._environment.rounds.count
        self._tell_interest(number, now_ns)
        if number < self._told_round + self._every and number >= self._told_round:
            return
        self._told_round = number
        self._tell_ghosts()

    # --- contacts ----------------------------------------------------------------------------------------------------

    def touched(self, entity: str, others: Sequence[str]) -> None:
        """A step is committed in which an entity has met these; what comes of it is decided after the round."""
        self._touched.append((entity, others))

    def holds(self, entity: str) -> bool:
        """As `Contacts.holds`."""
        return self.contacts.holds(entity)

    def claim_came(self, claim: ContactClaim, sender: str) -> None:
        """A peer says that an entity of its meets one of this server."""
        if self._lease.may_act(self._clock.monotonic_ns()):
            self.contacts.claimed(
                Claim(claim.entity, claim.fence, claim.ghost, claim.ghost_fence, self._server), sender
            )

    def _claim(self, claim: Claim) -> None:
        message = ContactClaim(
            entity=claim.entity,
            epoch=claim.fence.epoch,
            sub=claim.fence.sub,
            ghost=claim.ghost,
            ghost_epoch=claim.ghost_fence.epoch,
            ghost_sub=claim.ghost_fence.sub,
        )
        self._outbox.send(message, Trace("contact"), claim.server, on_path=False)

    def _send_back(self, entity: str, server: str) -> None:
        if server in self._lease.peers:
            self._departures.wants_to_go(entity, server)

    def _has_a_place(self, entity: str) -> bool:
        """Whether its world, or the table of regions, says where an entity belongs: it goes there by itself then."""
        return hasattr(self._environment.world, "destination") or self._environment.regions.table is not None

    # As `ContactSights`.

    def here(self, entity: str) -> tuple[Fence, int] | None:
        """As `ContactSights.here`."""
        holding = self._holdings.get(entity)
        if holding is None or holding.life.frozen or holding.life.quarantine_reason:
            return None
        if self._departures.is_under_way(entity):
            return None
        return holding.fence, self.surroundings.priority(entity)

    def ghost(self, entity: str) -> tuple[MeetingEntity, Fence] | None:
        """As `ContactSights.ghost`."""
        ghost = self.surroundings.ghost(entity)
        if ghost is None:
            return None
        one = ghost.neighbour
        return MeetingEntity(entity, ghost.rank, ghost.priority, one.server), one.fence

    def is_driven(self, entity: str) -> bool:
        """As `ContactSights.is_driven`."""
        return self.surroundings.is_driven(entity)

    def moved_in(self, entity: str) -> int:
        """As `ContactSights.moved_in`."""
        return self.surroundings.moved_in(entity)

    # --- what this server is interested in --------------------------------------------------------------------------

    def _tell_interest(self, number: int, now_ns: int) -> None:
        cells = self._cells.at(self.surroundings.own.cells, number)
        for name, peer in self._peers.items():
            since_ns = now_ns - peer.told_ns
            if peer.told is cells and peer.wants:
                is_due = since_ns >= _REPEAT_NS
            else:
                is_due = since_ns >= _INTEREST_NS or not peer.told_ns
            if is_due:
                self._ask(name, peer, cells, now_ns)

    def _ask(self, name: str, peer: _PeerInReach, cells: BoundingCells, now_ns: int) -> None:
        if not peer.wants:
            # Above those of an earlier life of this server, as far as its clock is.
            self._streams = max(self._streams + 1, self._now_ms())
            peer.wants = self._streams
            self.surroundings.table.expect(name, peer.wants, now_ns)
        peer.number += 1
        peer.told, peer.told_ns = cells, now_ns
        asked = GhostInterest(
            stream=peer.wants,
            number=peer.number,
            edge=cells.edge,
            cells=[list(cell) for cell in sorted(cells.cells)],
        )
        self._outbox.send(asked, Trace("ghost-interest"), name, on_path=False, hurry=False)

    def _ask_anew(self, name: str) -> None:
        """Nothing of a peer is shown any more: it is to begin a new stream, after a while."""
        peer = self._peers.get(name)
        if peer is not None:
            peer.wants = 0

    # --- what peers are interested in -------------------------------------------------------------------------------

    def interest_came(self, asked: GhostInterest, sender: str) -> None:
        """A peer says where it has entities.

        Raises:
            MessageError: its cells are smaller than those of this server's world.
        """
        if asked.edge < self.surroundings.reach:
            raise MessageError(f"{sender} looks as far as {asked.edge}, this server {self.surroundings.reach}")
        now_ns = self._clock.monotonic_ns()
        if sender not in self._lease.peers or sender == self._server:
            self._counts["interest_of_strangers"] += 1
            return
        peer = self._peers.setdefault(sender, _PeerInReach())
        said = asked.stream, asked.number
        known = (0 if peer.stream is None else peer.stream.stream), peer.asked_number
        if said <= known:
            self._counts["interest_out_of_order"] += 1
            return
        if now_ns - peer.heard_ns < _LEAST_NS and peer.stream is not None:
            self._counts["interest_too_often"] += 1
            return
        if peer.stream is None or peer.stream.stream != asked.stream:
            # Of other numbers than any before it, also in an earlier life of this server, as far as its clock is.
            self._lives = max(self._lives + 1, self._now_ms())
            peer.stream, peer.is_new = GhostStream(asked.stream, self._lives), True
        peer.asked_number, peer.heard_ns = asked.number, now_ns
        before = self._interest.of.get(sender)
        self._interest.said(sender, BoundingCells(asked.edge, frozenset(map(tuple, asked.cells))))
        peer.is_new = peer.is_new or before != self._interest.of[sender]

    def _tell_ghosts(self) -> None:
        changed, self.surroundings.changed = self.surroundings.changed, set()
        changed.update(self.surroundings.no_longer_driven(), self.contacts.reranked)
        self.contacts.reranked.clear()
        at_ms = self._now_ms()
        shown: dict[str, list[ShownEntity]] = {}
        gone: dict[str, list[str]] = {}
        listening = {name: peer for name, peer in self._peers.items() if self._is_listening(peer)}
        if listening:
            for entity in sorted(changed):
                self._sort_in(entity, listening, shown, gone)
        for name, peer in listening.items():
            if peer.is_new:
                peer.is_new = False
                self._look_at_all(name, peer, shown, gone)
            self._send(name, peer, shown.get(name, ()), gone.get(name, ()), at_ms)

    @staticmethod
    def _is_listening(peer: _PeerInReach) -> bool:
        return peer.stream is not None and not peer.stream.is_over and peer.where is not None

    def _sort_in(
        self,
        entity: str,
        listening: dict[str, _PeerInReach],
        shown: dict[str, list[ShownEntity]],
        gone: dict[str, list[str]],
    ) -> None:
        wanted = self._wanted_by(entity)
        one = self._shown(entity) if any(name in listening for name in wanted) else None
        for name, peer in listening.items():
            if one is not None and name in wanted:
                shown.setdefault(name, []).append(one)
            elif peer.stream is not None and entity in peer.stream:
                gone.setdefault(name, []).append(entity)

    def _wanted_by(self, entity: str) -> tuple[str, ...]:
        own = self.surroundings.own
        neighbour = own.get(entity)
        if neighbour is None:
            return ()
        return self._interest.peers_of(neighbour.position, own.cell_of(neighbour.position))

    def _look_at_all(
        self, name: str, peer: _PeerInReach, shown: dict[str, list[ShownEntity]], gone: dict[str, list[str]]
    ) -> None:
        found: list[ShownEntity] = []
        lost: list[str] = []
        for entity in sorted({one.entity for one in self.surroundings.own} | set(_told(peer))):
            one = self._shown(entity) if name in self._wanted_by(entity) else None
            if one is not None:
                found.append(one)
            else:
                lost.append(entity)
        shown[name], gone[name] = found, lost

    def _shown(self, entity: str) -> ShownEntity | None:
        """An entity as it is shown to others; None if it is not here, or cannot be shown."""
        holding, neighbour = self._holdings.get(entity), self.surroundings.own.get(entity)
        if holding is None or neighbour is None:
            return None
        data = self._encode(holding, neighbour.state)
        if data is None:
            return None
        life = holding.life
        return ShownEntity(
            entity,
            life.kind,
            life.schema,
            life.fence,
            max(neighbour.tick, 0),
            data,
            self.contacts.rank(entity),
            self.surroundings.priority(entity),
        )

    def _encode(self, holding: Holding, state: Any) -> bytes | None:
        known = self._encoded.get(holding.id)
        if known is not None and known.state is state:
            return known.data
        try:
            data = cbor2.dumps(state)
        except Exception:
            # It is quarantined for that, where its state is looked at.
            self._counts["ghost_not_portable"] += 1
            return None
        if len(data) > MAX_GHOST_STATE_BYTES:
            self._counts["ghost_too_large"] += 1
            return None
        self._encoded[holding.id] = _Encoded(state, data)
        return data

    def _send(
        self, name: str, peer: _PeerInReach, shown: Iterable[ShownEntity], gone: Iterable[str], at_ms: int
    ) -> None:
        stream, where = peer.stream, peer.where
        if stream is None or where is None:
            return
        for message in stream.messages(shown, gone, at_ms):
            data = encode_link(message)
            try:
                self._link.post(name, where, data, channel=STATE_CHANNEL)
            except (LinkDown, LinkFull) as error:
                stream.is_over, peer.where = True, None
                self._counts["ghosts_unsent"] += 1
                _log.info("no ghosts for %s for now: %s", name, error)
                return
            self._counts["ghosts_sent"] += len(message.numbers)
            self._counts["ghost_bytes_sent"] += len(data)

    # --- what peers show --------------------------------------------------------------------------------------------

    def ghosts_came(self, said: Ghosts, peer: str) -> None:
        """A peer tells of its entities; only servers of this instance are listened to."""
        if peer not in self._lease.peers:
            self._counts["ghosts_of_strangers"] += 1
            return
        now_ns = self._clock.monotonic_ns()
        if self._feed.is_round:
            # All entities see the same in a round.
            self._held.append((peer, said, now_ns))
        else:
            # What came while the last round was under way came before.
            self._apply_held()
            self._apply(peer, said, now_ns)

    def _apply(self, peer: str, said: Ghosts, heard_ns: int) -> None:
        try:
            is_whole = self.surroundings.table.take(peer, said, heard_ns)
        except BadGhost as error:
            self._counts["bad_ghosts"] += 1
            _log.info("%s is shown no more for now: %s", peer, error)
            is_whole = False
        else:
            self._counts["ghosts_heard"] += len(said.numbers)
        if not is_whole:
            self._counts["ghosts_missed"] += 1
            self._ask_anew(peer)

    # --- looking ---------------------------------------------------------------------------------------------------

    def ghosts(self) -> Iterator[Ghost]:
        """The ghosts that are known, also of entities that are on their way here."""
        return iter(self.surroundings.table)


def _told(peer: _PeerInReach) -> Iterator[str]:
    return iter(()) if peer.stream is None else iter(peer.stream)
