"""What is done where an event predicts what another one has predicted: the same thing, for the same time.

The identity of a prediction follows from that of its maker, and not from when that happens. An event may happen at
another time by now, and both its former life and its present one predict the same thing for the same time. Then there
is one place for it. If the former life is later than the present one it is not undone yet: it gives the prediction up.
"""

from collections.abc import Mapping

from batonpass.simserver.sync.timeline.records import INVALIDATE, VALID, EventRecord
from batonpass.simserver.sync.timeline.times import ExtendedTime

__all__ = ["moved", "moves_from"]

_Records = Mapping[ExtendedTime, EventRecord]


def moves_from(records: _Records, record: EventRecord, made_at: ExtendedTime | None) -> ExtendedTime | None:
    """Return whose prediction a record is, if it may be that of the event at `made_at` from now on; else None.

    No input is a prediction, and no prediction an input.
    """
    if made_at is None or record.made_at is None or (record.asked and not _is_left_over(records, record.made_at)):
        return None
    return record.made_at


def moved(records: _Records, record: EventRecord, made_at: ExtendedTime) -> list[EventRecord]:
    """Have a prediction be that of the event at `made_at`.

    Returns: The event whose it was, if that is invalid now, and was not. It has something to do again, should it be
        asked for after all.
    """
    former = None if record.made_at is None else records.get(record.made_at)
    record.made_at = made_at
    if former is None:
        return []
    left = tuple([one for one in former.predicted if one is not record])
    former.made = left[0] if len(left) == 1 else left or None
    if former.state is not VALID:
        return []
    former.state = INVALIDATE[VALID]
    return [former]


def _is_left_over(records: _Records, time: ExtendedTime) -> bool:
    """Whether the event at a time is there only until it is undone.

    Nothing asks any more for it, or for one of the events by which it came about.
    """
    at: ExtendedTime | None = time
    while at is not None and (maker := records.get(at)) is not None:
        if not maker.asked or maker.cancels:
            return True
        at = maker.made_at
    return False
