"""What old authorities ask of the log, answered in one go: one step of the log, one signature, one parcel to each.

Hand-overs, what is given up of them, what is declined, and reports. A message that came alone is a batch of one: there
is no other way. Those that came in one parcel are looked at one after the other, since each needs little by itself. A
task for each, which waits for the others at every turn, costs as much again. What cannot be looked at without asking
other servers, which may be silent, is a batch of its own (`Batches.one`). So the others do not wait for it.

Where another instance has to be asked, that is one question about all of them. Its home says whether it would have what
is to go there, or answers what is about its own entities. What goes elsewhere does not wait for that.

Those of a group that is not complete are told so, and wait here; with the last one all of them are told (`groups`).
"""

import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, assert_never

from batonpass.authority.errors import MessageError, Reason, Refused
from batonpass.authority.fence import Fence
from batonpass.authority.model.records import EntityRecord, Outcome, Phase, TransferRecord
from batonpass.authority.names import instance_of
from batonpass.authority.node.breakpoints import Breakpoint
from batonpass.authority.trust.certificate_reader import Asked
from batonpass.authority.trust.certificates import UnprovenChain, token_hash
from batonpass.authority.wire.batch import Letter
from batonpass.authority.wire.hops import REPEATED, Trace
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.authority.wire.senders import HOMESERVER_SENDERS
from batonpass.authority.wire.transfer import (
    Decline,
    Delegation,
    Grant,
    HandoffAbort,
    HandoffRequest,
    Report,
    ReportReply,
)
from batonpass.homeserver.names.admission import ForeignAdmissions
from batonpass.homeserver.names.federation import InstanceUnreachable
from batonpass.homeserver.transfer.asked import (
    ABOUT_TRANSFERS,
    AboutTransfers,
    Item,
    Together,
    args_of_handoff,
    args_of_report,
    not_learned,
    refuse,
)
from batonpass.homeserver.transfer.certificates import CertificateChains, Certification
from batonpass.homeserver.transfer.decided import reply_of
from batonpass.homeserver.transfer.foreign_relay import ForeignRelay, home_elsewhere
from batonpass.homeserver.transfer.group_commit import GroupCommit
from batonpass.homeserver.transfer.group_result import GroupAnswers
from batonpass.homeserver.transfer.notices import TransferNotices
from batonpass.homeserver.transfer.ports import HomeserverPorts
from batonpass.homeserver.transfer.spans import DecisionSpans
from batonpass.homeserver.transfer.waiting_group import WaitingRequest
from batonpass.tree.raft.submissions import NoQuorum

__all__ = ["Batches"]

_log = logging.getLogger("batonpass.homeserver.transfer.service")

_DECIDED: Final = (Phase.COMMITTED, Phase.REFUSED, Phase.DONE)
_BEFORE_AND_AFTER: Final[dict[type[Any], tuple[Breakpoint, Breakpoint]]] = {
    HandoffRequest: (Breakpoint.DECIDING, Breakpoint.DECIDED),
    HandoffAbort: (Breakpoint.GIVING_UP, Breakpoint.GIVEN_UP),
    Report: (Breakpoint.REPORTING, Breakpoint.REPORTED),
}
"""Where tests interrupt a member: before the log is asked, and when it has answered."""


@dataclass(slots=True)
class _Outgoing:
    """What leaves for one receiver, and the requests whose answers depend on that."""

    letters: list[Letter] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)


class Batches:
    """One member's answers to what old authorities ask of the log.

    Args:
        renew_after: a chain with this number of passes is replaced by a new grant. Each pass makes a hand-over longer
            by some 700 bytes, and a grant takes a signature, a message and two verifications.
        patience_s: see `ForeignAdmissions`.
    """

    def __init__(
        self,
        ports: HomeserverPorts,
        certificates: Certification,
        chains: CertificateChains,
        notices: TransferNotices,
        groups: GroupAnswers,
        decisions: DecisionSpans,
        renew_after: int,
        patience_s: float,
    ) -> None:
        self._name: Final = ports.name
        self._instance: Final = ports.instance
        self._store: Final = ports.store
        self._directory: Final = ports.directory
        self._post: Final = ports.post
        self._clock: Final = ports.clock
        self._reached: Final = ports.reached
        self._certificates: Final = certificates
        self._chains: Final = chains
        self._notices: Final = notices
        self._groups: Final = groups
        self._decisions: Final = decisions
        self._renew_after: Final = renew_after
        self._commit: Final = GroupCommit(ports.store, ports.spans)
        self._admissions: Final = ForeignAdmissions(ports.federation, ports.clock, patience_s)
        self._passing_on: Final = ForeignRelay(ports.federation, ports.clock)

    async def one(self, opened: OpenedMessage) -> Letter | None:
        """What to answer to one message, as a batch of its own; None if its answer takes another way.

        Raises:
            MessageError, Refused, PeerUnreachable, NoQuorum, OutcomeUnknown: nothing was decided, or is known to be.
        """
        item = await self._at_hand(opened, {}) or await self._looked_up(opened)
        await self.answer(self._together([item])[0])
        if isinstance(item.answer, Exception):
            raise item.answer
        return item.answer

    async def pick(
        self, opened: Sequence[OpenedMessage]
    ) -> tuple[list[Together], list[OpenedMessage], list[tuple[OpenedMessage, Exception]]]:
        """What of this is for `answer`; what is for `one`, since others have to be asked; and what is wrong."""
        items: list[Item] = []
        rest: list[OpenedMessage] = []
        wrong: list[tuple[OpenedMessage, Exception]] = []
        asked: Asked = {}
        for one in opened:
            try:
                item = await self._at_hand(one, asked)
            except Exception as error:  # whatever it is, it is nothing to the others
                wrong.append((one, error))
            else:
                if item is None:
                    rest.append(one)
                else:
                    items.append(item)
        return self._together(items), rest, wrong

    def _together(self, items: Sequence[Item]) -> list[Together]:
        bulk: dict[tuple[str, str], Together] = {}
        for item in items:
            ways = self._local_admission(item), home_elsewhere(item.message, self._instance)
            bulk.setdefault(ways, Together(*ways)).items.append(item)
        return list(bulk.values())

    def _local_admission(self, item: Item) -> str:
        """The home that has to say first whether it would have an entity of this one, if any."""
        request = item.message
        if not isinstance(request, HandoffRequest) or item.procedure != "transfer.commit":
            return ""
        return instance_of(request.target) if self._must_be_admitted(request) else ""

    async def answer(self, some: Together) -> None:
        """Have each of these answered; raises nothing."""
        items = some.items
        try:
            if not items[0].opened.left_s(self._clock.monotonic_ns()):
                raise NoQuorum("the server that asked does not wait any more")
            if some.answers:
                await self._pass_on(some.answers, items)
            else:
                await self._answer_all(items, some.admits)
        except Exception as error:
            for item in items:
                item.answer = error
                item.told.ended(self._clock.monotonic_ns(), "failed", error)
        finally:
            for item in items:
                # A request that was cancelled has decided nothing.
                item.told.ended(self._clock.monotonic_ns(), "failed")

    # --- what is asked ---------------------------------------------------------------------------------------------

    async def _at_hand(self, opened: OpenedMessage, asked: Asked) -> Item | None:
        """What a message asks of the log; None if others have to be asked before that is known.

        What another home is to answer asks nothing of this one's log. `asked` is what was asked about the signers of
        others of the same parcel.

        Raises:
            MessageError: no server may say this.
            NoQuorum, PeerUnreachable: the signer of a certificate in it cannot be looked up now.
        """
        message = await self._checked(opened)
        if home_elsewhere(message, self._instance):
            return Item(opened, message, "", {})
        if isinstance(message, Decline) or not message.chain:
            return self._item(opened, message, [])
        record = self._store.entity(message.entity)
        if record is None or not self._is_here(message.source, *record.delegation):
            # The servers that are asked about others' signatures may be silent for a while.
            return None
        try:
            if isinstance(message, Report):
                passes = await self._certificates.passes_untrusted(message.chain, message.entity, asked)
                return self._item(opened, message, passes)
            followed = await self._certificates.followed_untrusted(message.chain, message.entity, asked)
            return self._item(opened, message, *followed)
        except UnprovenChain:
            return None

    async def _looked_up(self, opened: OpenedMessage) -> Item:
        """As `_at_hand`, also if other servers have to be asked. Raises as that, and as `CertificateChains.passes`."""
        message = await self._checked(opened)
        if isinstance(message, Decline):
            return self._item(opened, message, [])
        if isinstance(message, Report):
            return self._item(opened, message, await self._chains.passes(message.chain, message.entity, message.source))
        followed = await self._chains.followed(message.chain, message.entity, message.source, message.transfer_id)
        return self._item(opened, message, *followed)

    async def _checked(self, opened: OpenedMessage) -> AboutTransfers:
        message = opened.message
        if not isinstance(message, ABOUT_TRANSFERS):
            raise MessageError(f"{message.type} asks nothing about a hand-over")
        await HOMESERVER_SENDERS.check(message, opened.sender, self._instance, self._directory)
        return message

    def _is_here(self, *names: str) -> bool:
        return all(instance_of(name) == self._instance for name in names)

    def _item(
        self, opened: OpenedMessage, message: AboutTransfers, passes: list[dict[str, Any]], is_broken: bool = False
    ) -> Item:
        """What a message asks of the log; `passes` are those that led to it, verified, up to where they break.

        A chain that breaks is refused by every server that reads it, so none begins with what was passed by it. The
        signer continues, if the log still names it. With a word of its own, since a pass is not taken back else.
        """
        match message:
            case HandoffRequest():
                return self._of_handoff(opened, message, passes, is_broken)
            case HandoffAbort():
                # The old authority gives up what it had frozen for, before a commit was asked for.
                fields = {"transfer_id", "entity", "source", "target", "epoch", "sub", "reason"}
                args = message.model_dump(include=fields) | {"passes": passes}
                return Item(opened, message, "transfer.refuse", args, passes)
            case Report():
                new = not_learned(self._store.entity(message.entity), passes)
                return Item(opened, message, "transfer.report", args_of_report(message, new), passes)
            case Decline():
                # The old authority will not begin what it was told to.
                args = message.model_dump(include={"transfer_id", "entity", "source", "target", "reason"})
                return Item(opened, message, "transfer.decline", args)
            case other:
                assert_never(other)

    def _of_handoff(
        self, opened: OpenedMessage, request: HandoffRequest, passes: list[dict[str, Any]], is_broken: bool
    ) -> Item:
        # From this member's copy: one that is behind takes a repetition for a first request. The log answers it the
        # same, and then the copy is not behind any more: the next repetition is known as one.
        known = self._store.transfer(request.transfer_id)
        args = args_of_handoff(request, passes, self._instance, self._clock.unix_s()) | {"incarnation": 0}
        item = Item(opened, request, "transfer.commit", args, passes, is_broken)
        item.is_known, item.repeated = known is not None, known is not None and known.phase in _DECIDED
        if is_broken:
            _log.error("%s has passed %s by a chain that breaks; it is refused", request.source, request.entity)
            refuse(item, Reason.NO_DELEGATION.value)
        return item

    def _must_be_admitted(self, request: HandoffRequest) -> bool:
        """Whether the home of its target has to be asked before this is put to the log.

        Not about what the log has decided, or holds for its group, already. Nor if it says no in any case, because the
        entity is past that fence: what it answers then does not depend on another server's word.
        """
        if instance_of(request.target) == self._instance:
            return False
        known, asked_at = self._store.transfer(request.transfer_id), Fence(request.epoch, request.sub)
        if known is not None and known.phase in _DECIDED:
            return False
        if known is not None and known.phase is Phase.PREPARED and known.fence == asked_at:
            about = (request.entity, request.source, request.target)
            return (known.entity, known.source, known.target) != about
        record = self._store.entity(request.entity)
        if record is not None:
            return record.fence <= asked_at
        grave = self._store.grave(request.entity)
        return grave is None or grave["epoch"] < request.epoch

    # --- what it comes to ------------------------------------------------------------------------------------------

    async def _pass_on(self, home: str, items: Sequence[Item]) -> None:
        answers = await self._passing_on.each(home, [item.opened for item in items])
        for item, answer in zip(items, answers, strict=True):
            item.answer = answer

    async def _admitted(self, home: str, items: Sequence[Item]) -> list[Item]:
        """Those of which `home` has said whether it would have them; or that were given up since it says nothing.

        The others are answered.
        """
        asked = [(request, item.trace) for item in items if isinstance(request := item.message, HandoffRequest)]
        left_s = items[0].opened.left_s(self._clock.monotonic_ns())
        answers = await self._admissions.ask_each(home, asked, left_s)
        ruled_ns = self._clock.monotonic_ns()
        known: list[Item] = []
        for item, answer in zip(items, answers, strict=True):
            if isinstance(answer, InstanceUnreachable):
                item.answer = answer
                item.told.ended(ruled_ns, "failed", answer)
                continue
            admitted, item.trace = answer
            item.told.ruled(ruled_ns)
            item.args["incarnation"] = admitted.incarnation
            if not admitted.accepted:
                refuse(item, admitted.reason or Reason.UNKNOWN_TARGET.value)
            known.append(item)
        return known

    async def _answer_all(self, items: Sequence[Item], home: str) -> None:
        """Answer these, once `home`, if any, has said if it would have them.

        Raises as `GroupCommit.submit_all`, for all of them.
        """
        began_ns = self._clock.monotonic_ns()
        for item in items:
            if isinstance(item.message, HandoffRequest | HandoffAbort):
                item.told = self._decisions.of(item.message, began_ns)
            if isinstance(item.message, HandoffRequest):
                item.trace = item.trace.mark(self._name, "ruling", began_ns)
        if home:
            items = await self._admitted(home, items)
            began_ns = self._clock.monotonic_ns()
        if items:
            await self._commit_all(items)
            await self._tell_all([item for item in items if item.answer is None], began_ns, len(items))

    async def _commit_all(self, items: Sequence[Item]) -> None:
        """Put these to the log; those that have no answer by it are answered."""
        self._tell_reached(items, 0)
        outcomes = await self._commit.submit_all([(item.procedure, item.args) for item in items])
        self._tell_reached(items, 1)
        passed: list[Item] = []
        for item, outcome in zip(items, outcomes, strict=True):
            item.outcome = outcome
            if isinstance(outcome, Exception):
                item.answer = outcome
                item.told.ended(self._clock.monotonic_ns(), "failed", outcome)
                if isinstance(outcome, Refused) and isinstance(item.message, Report) and item.args["passes"]:
                    passed.append(item)
            elif item.is_broken and item.decided == Outcome.REFUSED:
                item.outcome = {
                    **outcome,
                    "transfer": {**outcome["transfer"], "reason": Reason.NO_DELEGATION.value},
                }
        if passed:
            # Whatever is wrong with the report: the entity was passed on, and the log has to know.
            steps = [
                ("transfer.passed", {"entity": item.message.entity, "passes": item.args["passes"]}) for item in passed
            ]
            for item, outcome in zip(passed, await self._commit.submit_all(steps), strict=True):
                if isinstance(outcome, Exception):
                    item.answer = outcome

    def _tell_reached(self, items: Sequence[Item], step: int) -> None:
        for item in items:
            if (around := _BEFORE_AND_AFTER.get(type(item.message))) is not None:
                self._reached(around[step], item.message.transfer_id)

    async def _tell_all(self, items: Sequence[Item], began_ns: int, steps: int) -> None:
        """Answer these, about which the log has decided by one of `steps` steps, and tell the servers concerned."""
        outgoing: defaultdict[str, _Outgoing] = defaultdict(_Outgoing)
        handed = [item for item in items if isinstance(item.message, HandoffRequest | HandoffAbort)]
        await self._tell_reports(items, outgoing)
        self._certify(handed)
        for item in handed:
            if isinstance(item.message, HandoffRequest):
                item.answer = self._handed(item, outgoing, began_ns, steps)
            else:
                item.answer = self._given_up(item, steps)
        for item in items:
            if isinstance(item.message, Decline):
                item.answer = Letter(ReportReply(transfer_id=item.message.transfer_id), item.opened.trace)
        for to, out in outgoing.items():
            await self._send(to, out)
        await self._tell_groups(handed)
        # A source that is refused, or gives up, has raised fences by that; one of another instance hears so from its
        # home.
        for source in {item.message.source for item in handed if self._has_raised(item)}:
            await self._post.show_log(source)

    def _has_raised(self, item: Item) -> bool:
        return isinstance(item.message, HandoffAbort) or (item.decided == Outcome.REFUSED and not item.repeated)

    def _certify(self, handed: Sequence[Item]) -> None:
        committed = [item for item in handed if item.decided == Outcome.COMMITTED]
        transfers = [TransferRecord.from_data(item.outcome["transfer"]) for item in committed]
        for item, token in zip(committed, self._certificates.commit_all(transfers), strict=True):
            item.certificate = token

    def _handed(self, item: Item, outgoing: defaultdict[str, _Outgoing], began_ns: int, steps: int) -> Letter | None:
        """The answer to a request to hand over; its certificate is added to what goes to its target, if that is here.

        Case 2: the log's word goes straight to the new authority (hop 2), which tells the old one (hop 3). Only a
        refusal, or the answer to a repetition, goes back to the old authority itself.
        """
        decided, opened, source, target = item.outcome, item.opened, item.args["source"], item.args["target"]
        transfer = TransferRecord.from_data(decided["transfer"])
        is_committed, is_pending = (item.decided == one for one in (Outcome.COMMITTED, Outcome.PENDING))
        trace = item.trace.mark(self._name, "deciding", began_ns)
        committed_ns = self._clock.monotonic_ns()
        if item.repeated:
            # The hops and times that led to the decision are gone with the answer to the first request.
            trace = trace.mark(self._name, REPEATED, committed_ns)
        trace = trace.mark(self._name, "committed", committed_ns)
        item.told.decided(committed_ns, decided, steps)
        reply = reply_of(decided, transfer, item.certificate)
        if is_committed and transfer.sub:
            # It was passed directly: the target knows, if it is alive, and the old authority repeats it.
            return Letter(reply, opened.trace)
        if is_pending and opened.sender == source and self._is_here(source):
            # Nothing is decided about the others of its group either, or not before this step of the log.
            self._groups.waits(WaitingRequest(transfer.id, transfer.group, trace, opened.sender))
        elif not is_pending and not item.repeated:
            self._groups.listeners.note(transfer, is_known=item.is_known)
        if not self._is_here(source, target):
            # Case 1: its old authority brings the word to the target, which may be far from here.
            return Letter(reply, trace, on_path=True)
        if is_committed:
            outgoing[target].letters.append(Letter(Grant(certificate=item.certificate), trace, on_path=True))
            outgoing[target].items.append(item)
            if not item.repeated:
                return None
        return Letter(reply, trace)

    def _given_up(self, item: Item, steps: int) -> Letter:
        item.told.decided(self._clock.monotonic_ns(), item.outcome, steps)
        self._groups.gave_up(item.message.transfer_id)
        transfer = TransferRecord.from_data(item.outcome["transfer"])
        return Letter(reply_of(item.outcome, transfer, item.certificate), item.opened.trace)

    async def _tell_groups(self, handed: Sequence[Item]) -> None:
        """Requests that wait for the groups of what came here, with that or since before, hear if they are decided.

        Another command of the log may have completed a group before this one's answers were looked at.
        """
        groups: dict[str, TransferRecord] = {}
        for item in handed:
            if not item.repeated and (group := item.outcome["transfer"].get("group")):
                groups[group] = TransferRecord.from_data(item.outcome["transfer"])
        for transfer in groups.values():
            await self._groups.tell(transfer)

    async def _tell_reports(self, items: Sequence[Item], outgoing: defaultdict[str, _Outgoing]) -> None:
        """Answer the reports; new grants for the holders of chains that are long now are added to what goes to them."""
        renewals: list[tuple[EntityRecord, str]] = []
        for item in items:
            report = item.message
            if not isinstance(report, Report):
                continue
            transfer, record = item.outcome, self._store.entity(item.outcome["entity"])
            if record is not None and not self._notices.knows_of_owner(
                record, transfer.get("owner_rev", 0), report.chain
            ):
                await self._notices.tell_of_owner_since(TransferRecord.from_data(transfer), report.chain)
            if record is not None and len(item.passes) >= self._renew_after:
                fence = Fence(item.passes[-1]["epoch"], item.passes[-1]["sub"])
                if record.delegation and record.fence == fence:
                    renewals.append((record, token_hash(report.chain[-1])))
            item.answer = Letter(ReportReply(transfer_id=report.transfer_id), item.opened.trace)
        for (record, _), grant in zip(renewals, self._certificates.grant_all(renewals), strict=True):
            letter = Letter(Delegation(entity=record.id, grant=grant), Trace(f"delegate-{record.id}"))
            outgoing[record.authority].letters.append(letter)

    async def _send(self, to: str, out: _Outgoing) -> None:
        try:
            if len(out.letters) == 1:
                # With what others send there at this moment.
                (letter,) = out.letters
                await self._post.post(letter.message, letter.trace, to, on_path=letter.on_path)
            else:
                await self._post.post_all(to, out.letters)
        except Exception as error:  # an error of ours too: it is nothing to those that wait for other servers
            for item in out.items:
                item.answer = error
            if not out.items:
                # The holders keep their longer chains, which are as good; the next reports bring the next grants.
                _log.info("new grants were not delivered to %s: %s", to, error)
