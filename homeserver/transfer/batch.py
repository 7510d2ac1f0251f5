"""What came in one parcel, answered in one go: one step of the log, one signature, one parcel to each receiver.

Hand-overs, and reports, are nearly all of what comes when many entities move. Each needs little by itself; a task for
each, which waits for the others at every turn, costs as much again. So these are looked at one after the other, and
each comes to what it would come to alone. All else goes its own way (`Transfers.reply`).

Where another instance has to be asked, that is one question about all of them: its home says whether it would have
what is to go there, or answers what is about its own entities. What goes elsewhere does not wait for that.

Those of a group that is not complete are told so, and wait here; with the last one all of them are told (`groups`).
"""

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from batonpass.actors.base.clock import Clock
from batonpass.authority.errors import MessageError, Reason, Refused
from batonpass.authority.fence import Fence
from batonpass.authority.model.records import EntityRecord, Outcome, Phase, TransferRecord, report_text
from batonpass.authority.names import instance_of
from batonpass.authority.node.breakpoints import Breakpoint, BreakpointReached
from batonpass.authority.trust.certificate_reader import Asked
from batonpass.authority.trust.certificates import UnprovenChain, token_hash
from batonpass.authority.wire.batch import Letter
from batonpass.authority.wire.hops import REPEATED, Trace
from batonpass.authority.wire.sealing import Opened
from batonpass.authority.wire.transfer import (
    Decline,
    Delegation,
    Grant,
    HandoffAbort,
    HandoffReply,
    HandoffRequest,
    NoAnswer,
    Report,
    ReportReply,
)
from batonpass.homeserver.log.store import Store
from batonpass.homeserver.names.federation import PeerUnreachable
from batonpass.homeserver.transfer.foreign_relay import home_elsewhere
from batonpass.homeserver.transfer.group_commit import Step
from batonpass.homeserver.transfer.spans import UNTOLD, Deciding
from batonpass.tree.raft.submissions import NoQuorum, OutcomeUnknown

if TYPE_CHECKING:
    from batonpass.homeserver.transfer.service import Transfers

__all__ = [
    "DECIDED",
    "InBulk",
    "Item",
    "Together",
    "args_of_handoff",
    "args_of_report",
    "not_answered",
    "not_learned",
    "reply_of",
]

_log = logging.getLogger("batonpass.homeserver.transfer.service")
DECIDED: Final = (Phase.COMMITTED, Phase.REFUSED, Phase.DONE)
_ELSEWHERE: Final = Letter(NoAnswer(why="elsewhere"), Trace("batch"))


def not_answered(one: Opened, error: Exception) -> Letter:
    """What stands in the place of an answer in a batch, since there is this error instead."""
    match error:
        case MessageError() | Refused():
            _log.info("refused a message of %s: %s", one.sender, error)
            no = NoAnswer(why="refused", reason=str(error)[:256])
        case PeerUnreachable() | NoQuorum() | OutcomeUnknown():
            _log.info("could not decide a message of %s: %s", one.sender, error)
            no = NoAnswer(why="undecided")
        case _:
            # One message must not spoil the answers to the others.
            _log.error("a message of %s ran into an error of ours", one.sender, exc_info=error)
            no = NoAnswer(why="undecided")
    return Letter(no, Trace("batch"))


def reply_of(decided: Mapping[str, Any], transfer: TransferRecord, certificate: str) -> HandoffReply:
    """What the log has decided, for the old authority."""
    return HandoffReply(
        transfer_id=transfer.id,
        outcome=decided["outcome"],
        reason=transfer.reason,
        authority=decided["authority"],
        epoch=decided["epoch"],
        sub=decided["sub"],
        certificate=certificate,
        given_epoch=transfer.epoch if certificate and transfer.fence.begins_block else 0,
    )


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
    return {
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


@dataclass(slots=True)
class Item:
    """One message, what it asks of the log, and what it is answered with."""

    place: int
    opened: Opened
    procedure: str
    args: dict[str, Any]
    passes: Sequence[dict[str, Any]] = ()
    repeated: bool = False
    is_known: bool = False
    trace: Trace = field(init=False)
    outcome: Any = None
    certificate: str = ""
    told: Deciding = UNTOLD

    def __post_init__(self) -> None:
        self.trace = self.opened.trace

    @property
    def is_refused(self) -> bool:
        """Whether the log says no, if it was asked about a hand-over."""
        return bool(self.outcome["outcome"] == Outcome.REFUSED)


@dataclass(slots=True)
class Together:
    """Items that are answered in one go. The home `admits` what goes there, or `answers` what is about its entities.

    Both are empty where this instance has all that is to be asked.
    """

    admits: str = ""
    answers: str = ""
    items: list[Item] = field(default_factory=list)


@dataclass(slots=True)
class _Post:
    """What leaves for one receiver, and whose answer depends on that."""

    letters: list[Letter] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)


class InBulk:
    """One member's answers to what came together."""

    def __init__(
        self,
        transfers: "Transfers",
        store: Store,
        submit_all: Callable[[Sequence[Step]], Awaitable[Sequence[Any]]],
        name: str,
        clock: Clock,
        reached: BreakpointReached,
    ) -> None:
        """`submit_all` is as `Company.submit_all`, `name` that of this homeserver."""
        self._home: Final = transfers
        self._store: Final = store
        self._submit_all: Final = submit_all
        self._name: Final = name
        self._instance: Final = instance_of(name)
        self._clock: Final = clock
        self._reached: Final = reached

    async def pick(self, opened: Sequence[Opened], letters: list[Letter]) -> tuple[list[Together], list[int]]:
        """What of this is for `answer`, and the places of what is for `Transfers.reply`, one by one.

        What cannot be answered has that in its place in `letters`.
        """
        bulk: dict[tuple[str, str], Together] = {}
        rest: list[int] = []
        asked: Asked = {}
        for place, one in enumerate(opened):
            try:
                item = await self._item(place, one, asked)
            except Exception as error:  # whatever it is, it is nothing to the others
                letters[place] = not_answered(one, error)
                continue
            if item is None:
                rest.append(place)
                continue
            ways = self._admitting(item), home_elsewhere(one.message, self._instance)
            bulk.setdefault(ways, Together(*ways)).items.append(item)
        # What is alone in that is not in company.
        rest += [some.items[0].place for some in bulk.values() if len(some.items) == 1]
        return [some for some in bulk.values() if len(some.items) > 1], rest

    def _admitting(self, item: Item) -> str:
        """The home that has to say first whether it would have an entity of this one, if any."""
        request = item.opened.message
        if not isinstance(request, HandoffRequest) or not item.procedure or not self._home.must_be_admitted(request):
            return ""
        return instance_of(request.target)

    async def answer(self, some: Together, letters: list[Letter]) -> list[int]:
        """Put what is to be answered in its place in `letters`; the places of what is for `Transfers.reply` yet."""
        items = some.items
        try:
            if not items[0].opened.left_s(self._clock.monotonic_ns()):
                raise NoQuorum("the server that asked does not wait any more")
            if some.answers:
                await self._pass_on(some.answers, items, letters)
                return []
            return await self._answer_all(items, letters, some.admits)
        except Exception as error:
            for item in items:
                letters[item.place] = not_answered(item.opened, error)
                item.told.ended(self._clock.monotonic_ns(), "failed", error)
            return []
        finally:
            for item in items:
                # Whoever was cancelled has decided nothing.
                item.told.ended(self._clock.monotonic_ns(), "failed")

    # --- what is asked ---------------------------------------------------------------------------------------------

    async def _item(self, place: int, one: Opened, asked: Asked) -> Item | None:
        """What a message asks of the log; None if it is none of those that are answered here.

        What another home is to answer asks nothing of this one's log.

        `asked` is what was asked about who signed others of the same parcel.

        Raises:
            MessageError: it is nothing that anybody may say.
            NoQuorum, PeerUnreachable: nobody can say now who signed a certificate in it.
        """
        message = one.message
        if isinstance(message, HandoffRequest | HandoffAbort | Report | Decline):
            await self._home.check_speaks_for(one.sender, message.source)
            if home_elsewhere(message, self._instance):
                return Item(place, one, "", {})
        match message:
            case HandoffRequest() as request if not request.chain:
                return self._of_handoff(place, one, request)
            case Report() as report if not report.chain or self._is_here(report.source):
                return await self._of_report(place, one, report, asked)
        return None

    def _is_here(self, *names: str) -> bool:
        return all(instance_of(name) == self._instance for name in names)

    def _of_handoff(self, place: int, one: Opened, request: HandoffRequest) -> Item | None:
        known = self._store.transfer(request.transfer_id)
        args = self._home.args_of(request, [])
        item = Item(place, one, "transfer.commit", args | {"incarnation": 0})
        item.is_known, item.repeated = known is not None, known is not None and known.phase in DECIDED
        return item

    async def _of_report(self, place: int, one: Opened, report: Report, asked: Asked) -> Item | None:
        if not report.chain:
            return Item(place, one, "transfer.report", args_of_report(report, []))
        record = self._store.entity(report.entity)
        if record is None or not self._is_here(*record.delegation):
            # Who is to be asked about others' signatures may be silent for a while.
            return None
        try:
            passes = await self._home.certificates.passes_untrusted(report.chain, report.entity, asked)
        except UnprovenChain:
            return None
        return Item(place, one, "transfer.report", args_of_report(report, not_learned(record, passes)), passes)

    # --- what it comes to ------------------------------------------------------------------------------------------

    async def _pass_on(self, home: str, items: Sequence[Item], letters: list[Letter]) -> None:
        answers = await self._home.passing_on.each(home, [item.opened for item in items])
        for item, answer in zip(items, answers, strict=True):
            letters[item.place] = not_answered(item.opened, answer) if isinstance(answer, Exception) else answer

    async def _admitted(self, home: str, items: Sequence[Item], letters: list[Letter]) -> list[Item]:
        """Those of which `home` has said whether it would have them; or that they were given up since it says nothing.

        The others have that in their places.
        """
        asked = [(request, item.trace) for item in items if isinstance(request := item.opened.message, HandoffRequest)]
        left_s = items[0].opened.left_s(self._clock.monotonic_ns())
        answers = await self._home.admissions.ask_each(home, asked, left_s)
        ruled_ns = self._clock.monotonic_ns()
        known: list[Item] = []
        for item, answer in zip(items, answers, strict=True):
            if isinstance(answer, PeerUnreachable):
                letters[item.place] = not_answered(item.opened, answer)
                item.told.ended(ruled_ns, "failed", answer)
                continue
            admitted, item.trace = answer
            item.told.ruled(ruled_ns)
            item.args["incarnation"] = admitted.incarnation
            if not admitted.accepted:
                item.procedure, item.args["reason"] = "transfer.refuse", admitted.reason or Reason.UNKNOWN_TARGET.value
            known.append(item)
        return known

    async def _answer_all(self, items: Sequence[Item], letters: list[Letter], home: str) -> list[int]:
        """The places of those that are to be dealt with alone, once `home`, if any, has said if it would have them.

        Raises as `Company.submit`, for all of them.
        """
        began_ns = self._clock.monotonic_ns()
        for item in items:
            if isinstance(item.opened.message, HandoffRequest):
                item.told = self._home.decisions.of(item.opened.message, began_ns)
                item.trace = item.trace.mark(self._name, "ruling", began_ns)
        if home:
            items = await self._admitted(home, items, letters)
            began_ns = self._clock.monotonic_ns()
        if not items:
            return []
        self._tell_reached(Breakpoint.DECIDING, Breakpoint.REPORTING, items)
        outcomes = await self._submit_all([(item.procedure, item.args) for item in items])
        self._tell_reached(Breakpoint.DECIDED, Breakpoint.REPORTED, items)
        alone: list[int] = []
        handed: list[Item] = []
        posts: defaultdict[str, _Post] = defaultdict(_Post)
        renewals: list[tuple[EntityRecord, str]] = []
        for item, outcome in zip(items, outcomes, strict=True):
            item.outcome = outcome
            if isinstance(outcome, Refused) and item.args["passes"]:
                # The log has to know of the passes all the same.
                alone.append(item.place)
            elif isinstance(outcome, Exception):
                letters[item.place] = not_answered(item.opened, outcome)
                item.told.ended(self._clock.monotonic_ns(), "failed", outcome)
            elif item.procedure == "transfer.report":
                letters[item.place] = await self._reported(item, renewals)
            else:
                handed.append(item)
        self._renew(renewals, posts)
        self._certify(handed)
        for item in handed:
            letters[item.place] = self._handed(item, posts, began_ns, len(items))
        for to, post in posts.items():
            await self._post(to, post, letters)
        await self._tell_groups(handed)
        for source in {item.args["source"] for item in handed if item.is_refused and not item.repeated}:
            # It has raised fences by that; of another instance it hears so by way of its own home.
            await self._home.show_log(source)
        return alone

    def _tell_reached(self, step: Breakpoint, step_of_report: Breakpoint, items: Sequence[Item]) -> None:
        for item in items:
            is_report = item.procedure == "transfer.report"
            self._reached(step_of_report if is_report else step, item.args["transfer_id"])

    def _certify(self, handed: Sequence[Item]) -> None:
        committed = [item for item in handed if item.outcome["outcome"] == Outcome.COMMITTED]
        transfers = [TransferRecord.from_data(item.outcome["transfer"]) for item in committed]
        for item, token in zip(committed, self._home.certificates.commit_all(transfers), strict=True):
            item.certificate = token

    def _handed(self, item: Item, posts: defaultdict[str, _Post], began_ns: int, steps: int) -> Letter:
        """As `Transfers._handoff` when it is decided, by one of so many steps."""
        decided, opened = item.outcome, item.opened
        transfer = TransferRecord.from_data(decided["transfer"])
        is_committed, is_pending = (decided["outcome"] == one for one in (Outcome.COMMITTED, Outcome.PENDING))
        trace = item.trace.mark(self._name, "deciding", began_ns)
        committed_ns = self._clock.monotonic_ns()
        if item.repeated:
            trace = trace.mark(self._name, REPEATED, committed_ns)
        trace = trace.mark(self._name, "committed", committed_ns)
        item.told.decided(committed_ns, decided, steps)
        source, target = item.args["source"], item.args["target"]
        if is_committed and transfer.sub:
            # It was passed directly: the target knows, if it is alive, and the old authority repeats it.
            return Letter(reply_of(decided, transfer, item.certificate), opened.trace)
        if is_pending and opened.sender == source and self._is_here(source):
            # Nothing is decided about the others of its group either, or not before this step of the log.
            self._home.waits(transfer, trace, opened.sender)
        elif not is_pending and not item.repeated:
            self._home.note(transfer, is_known=item.is_known)
        reply = reply_of(decided, transfer, item.certificate)
        if not self._is_here(source, target):
            # Case 1: its old authority brings the word to the target, which may be far from here.
            return Letter(reply, trace, on_path=True)
        if is_committed:
            posts[target].letters.append(Letter(Grant(certificate=item.certificate), trace, on_path=True))
            posts[target].items.append(item)
            if not item.repeated:
                return _ELSEWHERE
        return Letter(reply, trace)

    async def _tell_groups(self, handed: Sequence[Item]) -> None:
        """Whoever waits for the groups of what came here, with that or since before, hears if they are decided now.

        Another command of the log may have completed a group before this one's answers were looked at.
        """
        groups: dict[str, TransferRecord] = {}
        for item in handed:
            if not item.repeated and (group := item.outcome["transfer"].get("group")):
                groups[group] = TransferRecord.from_data(item.outcome["transfer"])
        for transfer in groups.values():
            await self._home.tell_the_others(transfer)

    async def _reported(self, item: Item, renewals: list[tuple[EntityRecord, str]]) -> Letter:
        """As `Transfers._report` when it is noted; whose chain is long now is added to `renewals`, with its end."""
        transfer, passes, report = item.outcome, item.passes, item.opened.message
        record = self._store.entity(transfer["entity"])
        chain = report.chain if isinstance(report, Report) else []
        if record is not None and not self._home.knows_of_owner(record, transfer.get("owner_rev", 0), chain):
            await self._home.tell_of_owner_since(TransferRecord.from_data(transfer), chain)
        if record is not None and len(passes) >= self._home.renew_after:
            fence = Fence(passes[-1]["epoch"], passes[-1]["sub"])
            if isinstance(report, Report) and record.delegation and record.fence == fence:
                renewals.append((record, token_hash(report.chain[-1])))
        return Letter(ReportReply(transfer_id=item.args["transfer_id"]), item.opened.trace)

    def _renew(self, renewals: Sequence[tuple[EntityRecord, str]], posts: defaultdict[str, _Post]) -> None:
        """New grants for the holders; see `Transfers.deliver_delegation`."""
        for (record, _), grant in zip(renewals, self._home.certificates.grant_all(renewals), strict=True):
            letter = Letter(Delegation(entity=record.id, grant=grant), Trace(f"delegate-{record.id}"))
            posts[record.authority].letters.append(letter)

    async def _post(self, to: str, post: _Post, letters: list[Letter]) -> None:
        try:
            await self._home.post_all(to, post.letters)
        except Exception as error:  # an error of ours too: it is nothing to those who wait for other servers
            for item in post.items:
                letters[item.place] = not_answered(item.opened, error)
            if not post.items:
                # The holders keep their longer chains, which are as good; the next reports bring the next grants.
                _log.info("new grants were not delivered to %s: %s", to, error)
