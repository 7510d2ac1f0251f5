"""Entities, players and transfers in pages, as this member has them.

A page of entities is found by one look at all their names, since the tree keeps no order of names. It looks in pieces,
between which others have their turn. Rows are decoded only where their bytes may fit, and where their name may come
into the page.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import nsmallest
from itertools import islice
from typing import Annotated, Final, Literal

import trio
from fastapi import Query
from pydantic import BaseModel, Field

from batonpass.authority.model.records import EntityRecord, Phase, TransferRecord
from batonpass.authority.procedures.transfer_table import newest_transfers
from batonpass.authority.trust.certificates import Name
from batonpass.homeserver.node.dispatch import HomeserverNode
from batonpass.homeserver.node.standings import SeenAs

__all__ = [
    "MAX_SEARCH_CHARACTERS",
    "EntityFilter",
    "EntityPage",
    "ListedEntity",
    "ListedPlayer",
    "ListedTransfer",
    "PlayerPage",
    "entity_page",
    "listed_transfer",
    "newest_listed",
    "player_page",
]

# About two milliseconds of work: of names alone, and where rows are looked into.
_PIECE: Final = 4096
_PIECE_OF_ROWS: Final = 512
MAX_SEARCH_CHARACTERS: Final = 64


class ListedEntity(BaseModel):
    """An entity in one line."""

    id: str
    kind: str
    owner: str
    master: str
    authority: str
    epoch: int
    sub: int
    standing: SeenAs = Field(description="by the log, and by whether its server reports; no server is asked")
    parent: str


class EntityPage(BaseModel):
    """Entities by id, as the member that was asked has them."""

    entities: list[ListedEntity]
    after: str | None = Field(description="ask with it for the next page; null if there is none")
    total: int = Field(description="entities of the instance, whatever was asked for")


class ListedPlayer(BaseModel):
    """A player in one line."""

    name: str
    version: int = Field(description="of its keys, from 1")
    revision: int


class PlayerPage(BaseModel):
    """Players by name, as the member that was asked has them."""

    players: list[ListedPlayer]
    after: str | None = Field(description="ask with it for the next page; null if there is none")
    total: int = Field(description="players of the instance, whatever was asked for")


class ListedTransfer(BaseModel):
    """A transfer in one line."""

    transfer_id: str
    entity: str
    source: str
    target: str
    phase: Phase
    reason: str
    requester: str
    group: str
    mode: str
    direct: bool
    epoch: int
    sub: int


@dataclass(frozen=True, slots=True)
class EntityFilter:
    """Which entities are wanted; what is empty or None does not matter."""

    search: str = ""
    server: str | None = None
    owner: str | None = None
    kind: str | None = None
    standing: str | None = None

    @property
    def looks_into_rows(self) -> bool:
        """Whether names alone do not tell."""
        return any(one is not None for one in (self.server, self.owner, self.kind, self.standing))

    def words(self) -> tuple[bytes, ...]:
        """What the bytes of a row have in them if it may fit."""
        given = (self.server, self.owner, self.kind, self.standing)
        return tuple(one.encode() for one in given if one)

    def fits(self, record: EntityRecord) -> bool:
        """Whether a record is one that is wanted, but for its name."""
        return (
            (self.server is None or record.authority == self.server)
            and (self.owner is None or record.owner == self.owner)
            and (self.kind is None or record.kind == self.kind)
            and (self.standing is None or record.standing.value == self.standing)
        )


OfServer = Annotated[Name | None, Query(description="the server that has authority")]
OfOwner = Annotated[Name | None, Query(description="the player who owns them")]
OfKind = Annotated[str | None, Query(min_length=1, max_length=64, description="their kind")]
OfStanding = Annotated[
    Literal["recovering", "lost"] | None, Query(description="those that are looked for, or of which no copy is known")
]


async def entity_page(node: HomeserverNode, wanted: EntityFilter, limit: int, after: str) -> EntityPage:
    """The first `limit` entities behind the id `after` that are wanted, by id."""
    store = node.store.tree
    names = store.children(("entities",)) if store.exists(("entities",)) else ()
    best: list[str] = []
    length = _PIECE_OF_ROWS if wanted.looks_into_rows else _PIECE
    for start in range(0, len(names), length):
        piece = names[start : start + length]
        best = await node.in_turn(partial(_better, node, wanted, limit + 1, after, piece, best))
        await trio.lowlevel.checkpoint()
    records = [record for name in best[:limit] if (record := node.store.entity(name)) is not None]
    is_more = len(best) > limit
    return EntityPage(
        entities=[_listed(node, record) for record in records],
        after=best[limit - 1] if is_more else None,
        total=len(names),
    )


async def player_page(node: HomeserverNode, search: str, limit: int, after: str) -> PlayerPage:
    """The first `limit` players behind the name `after` whose names have `search` in them, by name."""
    store = node.store.tree
    names = store.children(("players",)) if store.exists(("players",)) else ()
    best: list[str] = []
    for start in range(0, len(names), _PIECE):
        piece = names[start : start + _PIECE]
        best = await node.in_turn(partial(_better, node, EntityFilter(search), limit + 1, after, piece, best))
        await trio.lowlevel.checkpoint()
    rows = [row for name in best[:limit] if (row := node.store.row(name)) is not None]
    return PlayerPage(
        players=[ListedPlayer(**row.model_dump(include=set(ListedPlayer.model_fields))) for row in rows],
        after=best[limit - 1] if len(best) > limit else None,
        total=len(names),
    )


def _better(
    node: HomeserverNode, wanted: EntityFilter, count: int, after: str, names: Sequence[str], best: list[str]
) -> list[str]:
    """The first `count` by name of the `best` so far and of those of the `names` that are wanted."""
    search, last = wanted.search, best[-1] if len(best) >= count else None
    found = [name for name in names if name > after and search in name and (last is None or name < last)]
    if wanted.looks_into_rows:
        fits = _row_fits(node, wanted)
        # From the first on, so that no more are decoded than may come into the page.
        found = list(islice(filter(fits, sorted(found)), count))
    return nsmallest(count, [*best, *found])


def _row_fits(node: HomeserverNode, wanted: EntityFilter) -> Callable[[str], bool]:
    store, words = node.store.tree, wanted.words()

    def fits(name: str) -> bool:
        view = store.view(("entities", name))
        encoded = b"" if view is None or view.encoded is None else view.encoded
        if view is None or not all(word in encoded for word in words):
            return False
        return wanted.fits(EntityRecord.from_data(view.data))

    return fits


def _listed(node: HomeserverNode, record: EntityRecord) -> ListedEntity:
    shown = record.model_dump(include=set(ListedEntity.model_fields) - {"standing"})
    return ListedEntity(**shown, standing=node.standings.known(record))


def listed_transfer(record: TransferRecord) -> ListedTransfer:
    """One line of a transfer."""
    shown = record.model_dump(include=set(ListedTransfer.model_fields) - {"direct", "transfer_id"})
    return ListedTransfer(**shown, transfer_id=record.id, direct=record.goes_directly)


def newest_listed(node: HomeserverNode, limit: int) -> list[ListedTransfer]:
    """The last transfers that were begun, newest first, as far as they are remembered."""
    store = node.store.tree
    found = (node.store.transfer(name) for name in newest_transfers(store.get_or, limit))
    return [listed_transfer(record) for record in found if record is not None]
