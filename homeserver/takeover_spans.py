"""What the homeserver in office tells of entities that are looked for because their authority is dead.

One span for each, and each fence that was raised for it. What is looked for is in the log, and this looks whenever the
homeserver does; so what another member, or a master, has changed there is seen too. `authority.spans` says what the
spans mean.
"""

from collections.abc import Sequence
from typing import Final

from authority.epoch import Fence
from authority.records import RecoveryRow
from authority.spans import TAKEOVER, OpenSpan, Spans, takeover_id

__all__ = ["TakeoverSpans"]


class TakeoverSpans:
    """The open spans, by entity and the epoch that was raised."""

    def __init__(self, spans: Spans) -> None:
        self._spans: Final = spans
        self._open: Final[dict[tuple[str, int], OpenSpan]] = {}

    def looked(self, rows: Sequence[RecoveryRow]) -> None:
        """All that is to be gone on with at this moment."""
        if not self._open and not self._spans.wants(TAKEOVER):
            return
        now = {_key(row): row for row in rows}
        still = {row.entity for row in rows}
        for key in self._open.keys() - now.keys():
            self._stop(key, "again" if key[0] in still else "ended")
        for key in now.keys() - self._open.keys() if self._spans.wants(TAKEOVER) else ():
            row = now[key]
            self._open[key] = self._spans.start(
                TAKEOVER,
                self._spans.now_ns(),
                transfer_id=takeover_id(*key),
                entity=row.entity,
                source=row.last,
                target=row.target,
                fence=Fence(key[1]),
            )

    def adopted(self, row: RecoveryRow) -> None:
        """Its target goes on with it."""
        if (span := self._open.pop(_key(row), None)) is not None:
            span.stop(self._spans.now_ns(), "adopted", {"tick": row.tick}, target=row.target)

    def left_office(self) -> None:
        """Another member looks for them now, if anybody does."""
        for key in list(self._open):
            self._stop(key, "left_office")

    def _stop(self, key: tuple[str, int], outcome: str) -> None:
        self._open.pop(key).stop(self._spans.now_ns(), outcome)


def _key(row: RecoveryRow) -> tuple[str, int]:
    # Whoever was given it has it under the epoch after the raised one.
    return row.entity, row.epoch - 1 if row.target else row.epoch
