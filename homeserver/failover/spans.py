"""What the homeserver in office tells of entities that are looked for because their authority is dead.

One span for each, and each fence that was raised for it. It starts when this member has had the log raise the fence, or
sees in the log that another member has. It looks there whenever it looks for what to take over. So nothing is taken
over that was not seen. It stops where this member tells the log that it is over, or sees that it is.
`authority.node.spans` says what the spans mean.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from batonpass.authority.fence import Fence
from batonpass.authority.model.records import RecoveryRow
from batonpass.authority.model.standing import Standing
from batonpass.authority.node.spans import TAKEOVER, OpenSpan, Spans, takeover_id
from batonpass.homeserver.log.store import InstanceStore

__all__ = ["TakeoverSpans"]


class TakeoverSpans:
    """The open spans, by entity and the epoch that was raised, each with its row when it was last seen."""

    def __init__(self, spans: Spans, store: InstanceStore) -> None:
        self._spans: Final = spans
        self._store: Final = store
        self._open: Final[dict[tuple[str, int], tuple[OpenSpan, RecoveryRow]]] = {}

    def looked(self, rows: Sequence[RecoveryRow]) -> None:
        """All that is to be taken over at this moment; what is not among it is over, whichever member has ended it."""
        if not self._open and not self._spans.wants(TAKEOVER):
            return
        still, keys = {row.entity for row in rows}, {_key(row) for row in rows}
        for key in self._open.keys() - keys:
            if key[0] in still:
                self._stop(key, "again")
            elif self._store.entity(key[0]) is None:
                self._stop(key, "ended")
            else:
                # The server that has it has acted under its fence, which the log took for its word; or its answer is
                # lost.
                self.adopted(self._open[key][1])
        self.seen(rows)

    def seen(self, rows: Iterable[RecoveryRow]) -> None:
        """These stand in the log so at this moment. Of what is declared lost nothing is told until a server has it."""
        if not self._open and not self._spans.wants(TAKEOVER):
            return
        for row in rows:
            key = _key(row)
            if self._is_lost(row):
                self._stop(key, "lost")
            elif key in self._open:
                self._open[key] = self._open[key][0], row
            elif self._spans.wants(TAKEOVER):
                span = self._spans.start(
                    TAKEOVER,
                    self._spans.now_ns(),
                    transfer_id=takeover_id(*key),
                    entity=row.entity,
                    source=row.last,
                    target=row.target,
                    fence=Fence(key[1]),
                )
                self._open[key] = span, row

    def changed(self, entities: Iterable[str]) -> None:
        """The log has done something about these just now: begun with them, declared them lost, or given them away."""
        if self._open or self._spans.wants(TAKEOVER):
            self.seen([row for entity in entities if (row := self._store.recovery(entity)) is not None])

    def again(self, entity: str, epoch: int) -> None:
        """The server that was given it, under this epoch, does not resume it: others are asked from here on."""
        self._stop((entity, epoch - 1), "again")
        self.changed([entity])

    def adopted(self, row: RecoveryRow) -> None:
        """Its target resumes it."""
        if (known := self._open.pop(_key(row), None)) is not None:
            measurements = {"tick": row.tick} if row.target else {}
            known[0].stop(self._spans.now_ns(), "adopted", measurements, target=row.target)

    def left_office(self) -> None:
        """Another member looks for them now, if any does."""
        for key in list(self._open):
            self._stop(key, "left_office")

    def _is_lost(self, row: RecoveryRow) -> bool:
        if row.target:
            return False
        record = self._store.entity(row.entity)
        return record is not None and record.standing is Standing.LOST

    def _stop(self, key: tuple[str, int], outcome: str) -> None:
        if (known := self._open.pop(key, None)) is not None:
            known[0].stop(self._spans.now_ns(), outcome)


def _key(row: RecoveryRow) -> tuple[str, int]:
    # The server that was given it has it under the epoch after the raised one.
    return row.entity, row.epoch - 1 if row.target else row.epoch
