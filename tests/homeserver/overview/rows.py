"""The rows of a member and its watches, without a log, and a homeserver's node as far as `overview` looks at it."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final, TypeVar

from batonpass.actors.base.clock import Clock
from batonpass.authority.model.records import EntityRecord, Phase, TransferRecord
from batonpass.authority.procedures.transfer_table import save_transfer
from batonpass.homeserver.log.store import InstanceStore
from batonpass.homeserver.node.standings import SeenAs
from batonpass.tree.member.watching import Watch
from batonpass.tree.store.store import Store as TreeStore
from batonpass.tree.store.watch import History

T = TypeVar("T")


class MemberRows:
    """What a member has, and may be put there."""

    def __init__(self, *, max_pending_events: int = 1024) -> None:
        self.rows: Final = TreeStore()
        self.history: Final = History()
        self.history.attach(self.rows)
        self.watches: Final[list[Watch]] = []

        def watch(pattern: Any) -> Watch:
            self.watches.append(Watch(self.history.watch(pattern, max_pending_events=max_pending_events)))
            return self.watches[-1]

        backend: Any = SimpleNamespace(store=self.rows, watch=watch)
        self.store: Final = InstanceStore(lambda: backend)
        self.turns = 0
        self.node: Final[Any] = SimpleNamespace(
            store=self.store,
            replica=backend,
            clock=Clock(),
            in_turn=self.in_turn,
            standings=SimpleNamespace(known=lambda _: SeenAs.SIMULATED),
        )

    async def in_turn(self, work: Callable[[], T]) -> T:
        self.turns += 1
        return work()

    def entity(self, entity: str, **more: Any) -> EntityRecord:
        fields = {"kind": "ball", "master": "alpha.ada", "owner": "alpha.ada", "authority": "alpha.s1"} | more
        record = EntityRecord(id=entity, **fields)
        self.rows.put(("entities", entity), record.to_data())
        return record

    def transfer(self, transfer_id: str, phase: Phase = Phase.PERMITTED, **more: Any) -> None:
        fields = {"entity": "alpha.ball", "source": "alpha.s1", "target": "alpha.s2"} | more
        record = TransferRecord(id=transfer_id, phase=phase, **fields)
        with self.rows.transaction() as transaction:
            save_transfer(transaction, record)
