"""What one message of an old authority asks of the log, and what it is answered with."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from batonpass.authority.errors import MessageError, Refused
from batonpass.authority.fence import Fence
from batonpass.authority.model.records import EntityRecord, report_text
from batonpass.authority.names import instance_of
from batonpass.authority.wire.batch import Letter
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.authority.wire.transfer import ContactHandoff, Decline, HandoffAbort, HandoffRequest, NoAnswer, Report
from batonpass.homeserver.names.federation import InstanceUnreachable
from batonpass.homeserver.transfer.spans import UNTOLD, Deciding
from batonpass.tree.raft.submissions import NoQuorum, OutcomeUnknown

__all__ = [
    "ABOUT_TRANSFERS",
    "AboutTransfers",
    "Item",
    "Together",
    "args_of_handoff",
    "args_of_report",
    "letter_of",
    "not_learned",
    "refuse",
]

_log = logging.getLogger("batonpass.homeserver.transfer.service")

ABOUT_TRANSFERS: Final = (HandoffRequest, HandoffAbort, Report, Decline)
"""What is answered here."""
AboutTransfers = HandoffRequest | HandoffAbort | Report | Decline

_ELSEWHERE: Final = Letter(NoAnswer(why="elsewhere"), Trace("batch"))


@dataclass(slots=True)
class Item:
    """One message, what it asks of the log, and what it is answered with."""

    opened: OpenedMessage
    message: AboutTransfers
    procedure: str
    args: dict[str, Any]
    passes: Sequence[dict[str, Any]] = ()
    is_broken: bool = False
    repeated: bool = False
    is_known: bool = False
    trace: Trace = field(init=False)
    outcome: Any = None
    certificate: str = ""
    told: Deciding = UNTOLD
    answer: Letter | Exception | None = None
    """What its sender is answered, or why it is not; None if the answer takes another way."""

    def __post_init__(self) -> None:
        self.trace = self.opened.trace

    @property
    def decided(self) -> str:
        """What the log says about a hand-over."""
        return str(self.outcome["outcome"])


@dataclass(slots=True)
class Together:
    """Items that are answered in one go. The home `admits` what goes there, or `answers` what is about its entities.

    Both are empty where this instance has all that is to be asked.
    """

    admits: str = ""
    answers: str = ""
    items: list[Item] = field(default_factory=list)


def _not_answered(one: OpenedMessage, error: Exception) -> Letter:
    """What stands in the place of an answer in a batch, since there is this error instead."""
    match error:
        case MessageError() | Refused():
            _log.info("refused a message of %s: %s", one.sender, error)
            no = NoAnswer(why="refused", reason=str(error)[:256])
        case InstanceUnreachable() | NoQuorum() | OutcomeUnknown():
            _log.info("could not decide a message of %s: %s", one.sender, error)
            no = NoAnswer(why="undecided")
        case _:
            # One message must not spoil the answers to the others.
            _log.error("a message of %s ran into an error of ours", one.sender, exc_info=error)
            no = NoAnswer(why="undecided")
    return Letter(no, Trace("batch"))


def letter_of(one: OpenedMessage, answer: Letter | Exception | None) -> Letter:
    """What stands in a batch for an answer, for none since it takes another way, or for the error instead."""
    return _not_answered(one, answer) if isinstance(answer, Exception) else answer or _ELSEWHERE


def refuse(item: Item, reason: str) -> None:
    """The log is to refuse it, for this reason, if it has no other result yet."""
    item.procedure, item.args["reason"] = "transfer.refuse", reason


def not_learned(record: EntityRecord | None, passes: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The passes that the log may have to learn yet: a `record` of it may be behind, and knows what it knows.

    A chain is told of with each of its passes, and every member would read the others only to skip them.
    """
    if record is None:
        return list(passes)
    return [item for item in passes if Fence(item["epoch"], item["sub"]) > record.fence]


def args_of_handoff(
    request: HandoffRequest, passes: list[dict[str, Any]], instance: str, now_s: float
) -> dict[str, Any]:
    """A request to hand over as arguments of the procedures of its entity's `instance`."""
    contact = {"contact": request.contact} if isinstance(request, ContactHandoff) else {}
    return contact | {
        "transfer_id": request.transfer_id,
        "entity": request.entity,
        "source": request.source,
        "target": request.target,
        "epoch": request.epoch,
        "sub": request.sub,
        "tick": request.tick,
        "state_hash": request.state_hash,
        "transport": request.transport,
        "passes": passes,
        "check_target": instance_of(request.target) == instance,
        "now_s": now_s,
    }


def args_of_report(report: Report, passes: list[dict[str, Any]]) -> dict[str, Any]:
    """A report as arguments of `transfer.report`; `passes` are those that led to it, verified."""
    body = {"trace": report.trace.to_data(), "off_path": report.off_path, "counters": report.counters}
    return {
        "transfer_id": report.transfer_id,
        "source": report.source,
        "report": report_text(body),
        "entity": report.entity,
        "passes": passes,
    }
