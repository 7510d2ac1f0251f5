"""The alarm of an instance whose log was restored from an older copy, in that log, so that all its members know.

    log_alarm    {by, office, lost, why}; `lost` is the office under which the log was elsewhere

The homeserver that grants leases is shown that the log was where it has never been
(`authority.trust.signed_positions`), and says so here. From then on no member grants leases, decides anything, or takes
the office: not after a restart either, since the log that is to be put back is another one and has no such row. Only an
operator takes it away: who accepts the loss; or who has the newest log in place, which a server holds against it that
was granted a lease by the older one.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from batonpass.authority.model.rows import Rows
from batonpass.authority.procedures.fence_allocation import part_from
from batonpass.authority.procedures.lease import lease_office
from batonpass.authority.trust.signed_positions import ACCEPTED, ReadableTree

__all__ = ["ALARM", "ALARM_PROCEDURES", "alarm_of"]

ALARM: Final = "log_alarm"
MAX_WHY_CHARS: Final = 512


def alarm_of(copy: ReadableTree) -> str:
    """Why this log is not the one that it was, for people; empty if nobody has shown that."""
    row: Mapping[str, Any] | None = copy.get_or((ALARM,), None)
    return "" if row is None else str(row["why"])


def raise_alarm(rows: Rows, args: Mapping[str, Any]) -> Any:
    """The holder of the office `office` was shown that the log went back. A later one has to be shown that itself."""
    row = rows.get_or((ALARM,), None)
    if row is None and lease_office(rows).number == args["office"]:
        row = {"by": args["by"], "office": args["office"], "lost": args["lost"], "why": args["why"][:MAX_WHY_CHARS]}
        rows.put((ALARM,), row)
    return row


def accept_loss(rows: Rows, args: Mapping[str, Any]) -> Any:
    """An operator accepts this log as it is. Answers with the alarm that there was, or None.

    `mark` is random, and is the mark of the office that begins with that.

    What proves the other history is nothing from then on: a server that has it may show it for as long as it lives. The
    next office has a higher number than any under which that is so: should this log be restored from an older copy once
    more, what was signed since proves it. Nor does it give fences that the other one may have given.
    """
    row = rows.get_or((ALARM,), None)
    if row is not None:
        rows.delete((ALARM,))
        office, before = lease_office(rows), rows.get_or((ACCEPTED,), {})
        last = max(before.get("office", 0), row["lost"], office.number)
        rows.put((ACCEPTED,), {**before, "office": last, "within": office.number})
        part_from(rows, last, args.get("mark", ""))
    return row


ALARM_PROCEDURES: Final[Mapping[str, Callable[[Rows, Mapping[str, Any]], Any]]] = {
    "log.alarm": raise_alarm,
    "log.accept": accept_loss,
}
