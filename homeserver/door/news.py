"""What happens in the log, told over the door to the clients whom it concerns: rights, transfers, questions.

A client is concerned by the entities that its player owns or is the master of, and by those that it follows. It is
concerned by the transfers that its player has asked for. So which entities are whose is kept here while there is any
client: read once, then kept by what the log tells. Where no client is connected, the log is not followed.

What is told is what the log has, in its order. This member's log may take a leap (a snapshot came, or there was more at
once than is kept). Then everything is read anew and every client told how it stands, as when it came in.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from contextlib import closing
from typing import Any, Final, NamedTuple

import trio

from batonpass.actors.base.clock import Clock
from batonpass.actors.http.door_connection import DoorConnection
from batonpass.authority.model.records import EntityRecord, Phase, TransferRecord
from batonpass.authority.wire.home_door import EntityNews, GoneNews, QuestionNews, TransferNews
from batonpass.homeserver.log.store import InstanceStore
from batonpass.homeserver.rest.models import AskView, EntityView, TransferView
from batonpass.homeserver.transfer.master_questions import Questions
from batonpass.tree.data.errors import WatcherCut
from batonpass.tree.member.backend import Backend
from batonpass.tree.store.pattern import ANY_DEPTH
from batonpass.tree.store.watch import Event

__all__ = ["MAX_TOLD_AT_FIRST", "DoorNewsroom"]

MAX_TOLD_AT_FIRST: Final = 256
"""Of how many of its entities, and of how many questions, a client is told when it comes in: the first by name."""
_SLICE: Final = 256
_PAUSE_S: Final = 0.1
_ENTITIES: Final = ("entities", ANY_DEPTH)
_TRANSFERS: Final = ("transfers", ANY_DEPTH)


class _Rights(NamedTuple):
    """Whose an entity is."""

    owner: str
    master: str


class DoorNewsroom:
    """One member's; `serve` has to run.

    Args:
        backend: tells which backend keeps the rows at the moment.
        questions: what masters are asked.
    """

    def __init__(
        self, store: InstanceStore, backend: Callable[[], Backend], questions: Questions, clock: Clock
    ) -> None:
        self._store: Final = store
        self._backend: Final = backend
        self._questions: Final = questions
        self._bell: Final = clock.bell()
        self._clients: Final[dict[DoorConnection, frozenset[str]]] = {}
        self._of_player: Final[defaultdict[str, set[DoorConnection]]] = defaultdict(set)
        self._of_entity: Final[defaultdict[str, set[DoorConnection]]] = defaultdict(set)
        # What is known of the log; nothing while it is not followed.
        self._rights: Final[dict[str, _Rights]] = {}
        self._entities_of: Final[defaultdict[str, set[str]]] = defaultdict(set)
        self._is_known = False
        # Players that were told to have an entity before the event that says so has come, and at which revision. If it
        # never comes, they are told all the same what has become of the entity.
        self._ahead: Final[dict[str, tuple[int, set[str]]]] = {}

    # --- clients ------------------------------------------------------------------------------------------------------

    def join(self, connection: DoorConnection) -> None:
        """A client is in: it is told how it stands, now or as soon as that is known here."""
        self._clients[connection] = frozenset()
        if connection.player:
            self._of_player[connection.player].add(connection)
        if self._is_known:
            self._tell_all(connection)
        self._bell.ring()

    def leave(self, connection: DoorConnection) -> None:
        """Its connection has ended."""
        self._forget(connection, self._clients.pop(connection), self._of_entity)
        self._forget(connection, [connection.player], self._of_player)
        self._bell.ring()

    def follow(self, connection: DoorConnection, entities: Collection[str]) -> None:
        """A client wants to be told of these entities, too, and of no others any more that are not its own."""
        wanted, before = frozenset(entities), self._clients[connection]
        self._clients[connection] = wanted
        self._forget(connection, before - wanted, self._of_entity)
        for entity in wanted:
            self._of_entity[entity].add(connection)
        if self._is_known:
            self._tell_entities(connection, sorted(wanted - before))

    @staticmethod
    def _forget(connection: DoorConnection, names: Iterable[str], table: defaultdict[str, set[DoorConnection]]) -> None:
        for name in names:
            if name in table:
                table[name].discard(connection)
                if not table[name]:
                    del table[name]

    # --- following the log --------------------------------------------------------------------------------------------

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Tell what happens, until cancelled."""
        task_status.started()
        while True:
            while not self._clients:
                await self._bell.wait()
            try:
                await self._follow_log()
            except* WatcherCut:
                await trio.sleep(_PAUSE_S)
            finally:
                self._is_known = False
                if not self._clients:
                    self._rights.clear()
                    self._entities_of.clear()
                    self._ahead.clear()

    async def _follow_log(self) -> None:
        """Until no client is connected. Raises WatcherCut."""
        backend = self._backend()
        with closing(backend.watch(_ENTITIES)) as entities, closing(backend.watch(_TRANSFERS)) as transfers:
            before = await self._read_rights()
            self._is_known = True
            for connection in list(self._clients):
                self._tell_all(connection)
            self._tell_what_was_lost(before)
            async with trio.open_nursery() as nursery:

                async def take(watch: Any, told: Callable[[Event], None]) -> None:
                    while True:
                        for event in await watch.take():
                            if len(event.path) > 1:
                                told(event)

                nursery.start_soon(take, entities, self._entity_changed)
                nursery.start_soon(take, transfers, self._transfer_changed)
                while self._clients:
                    await self._bell.wait()
                nursery.cancel_scope.cancel()

    async def _read_rights(self) -> dict[str, _Rights]:
        """Whose each entity is, in slices; what happens meanwhile the watches have kept. And whose they were."""
        before = dict(self._rights)
        names = self._store.entity_names()
        for name in before.keys() - set(names):
            self._learn(name, None)
        for start in range(0, len(names), _SLICE):
            for name in names[start : start + _SLICE]:
                record = self._store.entity(name)
                if record is not None:
                    self._learn(name, _Rights(record.owner, record.master))
            await trio.lowlevel.checkpoint()
        return before

    def _learn(self, entity: str, rights: _Rights | None) -> _Rights | None:
        """Whose an entity is from now on, None if it is no more; whose it was."""
        before = self._rights.pop(entity, None)
        for player in set(before or ()):
            self._entities_of[player].discard(entity)
            if not self._entities_of[player]:
                del self._entities_of[player]
        if rights is not None:
            self._rights[entity] = rights
            for player in set(rights) - {""}:
                self._entities_of[player].add(entity)
        return before

    # --- telling ------------------------------------------------------------------------------------------------------

    def _concerned(self, entity: str, *players: str) -> set[DoorConnection]:
        found = set(self._of_entity.get(entity, ()))
        for player in {*players, *(self._rights.get(entity) or ())}:
            found |= self._of_player.get(player, set())
        return found

    def _entity_changed(self, event: Event) -> None:
        entity = event.path[-1]
        data = event.data
        if data is None:
            ahead, before = self._told_ahead(event, None), self._learn(entity, None)
            for connection in self._concerned(entity, *(before or ()), *ahead):
                connection.tell(GoneNews(revision=event.revision, entity=entity))
            return
        rights = _Rights(data.get("owner", ""), data["master"])
        ahead, before = self._told_ahead(event, rights), self._learn(entity, rights)
        concerned = self._concerned(entity, *(before or ()), *ahead)
        if concerned:
            news = _entity_news(event.revision, EntityRecord.from_data(data))
            for connection in concerned:
                connection.tell(news)
        if before is not None and before.master != rights.master and rights.master in self._of_player:
            self._tell_questions(self._of_player[rights.master], rights.master, entity)

    def _told_ahead(self, event: Event, rights: _Rights | None) -> set[str]:
        """Who was told to have the entity, and by the events before this one does not; `rights` are those after it."""
        entity = event.path[-1]
        revision, players = self._ahead.pop(entity, (0, set[str]()))
        if left := players.difference(rights or ()) if event.revision < revision else ():
            self._ahead[entity] = revision, set(left)
        return players

    def _transfer_changed(self, event: Event) -> None:
        data = event.data
        if data is None:
            return
        concerned = self._concerned(data["entity"], data.get("requester", ""))
        if not concerned or _is_as_before(event.previous, data):
            return
        transfer = TransferRecord.from_data(data)
        news = _transfer_news(event.revision, transfer)
        for connection in concerned:
            connection.tell(news)
        if transfer.phase is Phase.ASKED:
            record = self._store.entity(transfer.entity)
            if record is not None:
                question = _question_news(event.revision, record, transfer)
                for connection in self._of_player.get(record.master, ()):
                    connection.tell(question)

    def _tell_all(self, connection: DoorConnection) -> None:
        """How it stands."""
        own = sorted(self._entities_of.get(connection.player, ()))[:MAX_TOLD_AT_FIRST]
        self._tell_entities(connection, [*own, *sorted(self._clients[connection].difference(own))])
        if connection.player:
            self._tell_questions([connection], connection.player)

    def _tell_what_was_lost(self, before: dict[str, _Rights]) -> None:
        """Tell who had an entity when the log took a leap, and has it no more."""
        for entity, rights in before.items():
            self._tell_loss(entity, rights)
        ahead = dict(self._ahead)
        self._ahead.clear()
        for entity, (_, players) in ahead.items():
            self._tell_loss(entity, players)

    def _tell_loss(self, entity: str, players: Iterable[str]) -> None:
        for player in set(players).difference(self._rights.get(entity) or (), ("",)):
            for connection in self._of_player.get(player, ()):
                self._tell_entities(connection, [entity])

    def _tell_entities(self, connection: DoorConnection, entities: Iterable[str]) -> None:
        revision = self._store.tree.revision
        for entity in entities:
            record = self._store.entity(entity)
            if record is None:
                connection.tell(GoneNews(revision=revision, entity=entity))
            else:
                connection.tell(_entity_news(revision, record))
                if connection.player in {record.owner, record.master}.difference(self._rights.get(entity) or (), ("",)):
                    _, players = self._ahead.get(entity, (0, set[str]()))
                    self._ahead[entity] = revision, players | {connection.player}

    def _tell_questions(self, connections: Iterable[DoorConnection], master: str, entity: str = "") -> None:
        revision = self._store.tree.revision
        asked = [
            _question_news(revision, record, transfer)
            for record, transfer in self._questions.of(master, MAX_TOLD_AT_FIRST)
            if entity in ("", record.id)
        ]
        for connection in connections:
            for question in asked:
                connection.tell(question)


def _is_as_before(previous: Any, now: Any) -> bool:
    """Whether only what no client is told of has changed of a transfer, such as the report of one that is done."""
    told = ("phase", "reason", "target", "owner", "epoch", "sub", "successor")
    return previous is not None and all(previous.get(name) == now.get(name) for name in told)


def _entity_news(revision: int, record: EntityRecord) -> EntityNews:
    return EntityNews(revision=revision, entity=EntityView.of(record).model_dump(mode="json"))


def _transfer_news(revision: int, transfer: TransferRecord) -> TransferNews:
    # Its report is long, and most who are told need none: they ask for it.
    view = TransferView.of(transfer.changed(report=""))
    return TransferNews(revision=revision, transfer=view.model_dump(mode="json"))


def _question_news(revision: int, record: EntityRecord, transfer: TransferRecord) -> QuestionNews:
    return QuestionNews(revision=revision, question=AskView.of(record, transfer).model_dump(mode="json"))
