"""What a homeserver does with the messages of transfers: check who asks, put it to the log, tell whom it concerns.

Everything here may be repeated: a request whose answer was lost comes again, perhaps to another member, and gets the
same answer from the log.
"""

import logging
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import trio

from batonpass.actors.base.batcher import Combiner
from batonpass.actors.base.breakpoints import nowhere
from batonpass.actors.base.clock import Clock
from batonpass.actors.net.endpoint import LinkDown, LinkFull
from batonpass.actors.net.link_service import LinkService
from batonpass.authority.errors import MessageError, Reason, Refused, UnknownSender
from batonpass.authority.fence import Fence
from batonpass.authority.model.records import (
    DirectoryRow,
    EntityRecord,
    GroupPhase,
    GroupRecord,
    Outcome,
    Phase,
    Role,
    TransferRecord,
)
from batonpass.authority.names import instance_of
from batonpass.authority.node.breakpoints import Breakpoint, BreakpointReached
from batonpass.authority.node.spans import SILENT, Spans
from batonpass.authority.trust.certificates import token_hash
from batonpass.authority.wire.batch import MAX_BATCH, Letter, take_batch
from batonpass.authority.wire.hops import REPEATED, Trace
from batonpass.authority.wire.sealing import Opened, Sealer
from batonpass.authority.wire.transfer import (
    AdmitReply,
    AdmitRequest,
    Decline,
    Delegation,
    Despawn,
    Grant,
    HandoffAbort,
    HandoffReply,
    HandoffRequest,
    LogInquiry,
    LogShown,
    Message,
    NoAnswer,
    OwnerWord,
    Parcel,
    Report,
    ReportReply,
    encode_link,
)
from batonpass.crypto import jose
from batonpass.crypto.errors import CryptoError
from batonpass.crypto.keys import PublicIdentity
from batonpass.homeserver.log.store import Store
from batonpass.homeserver.names.directory import Directory
from batonpass.homeserver.names.federation import Federation, PeerUnreachable
from batonpass.homeserver.names.foreign_admission import PATIENCE_S, Admissions
from batonpass.homeserver.names.local_admission import Admitting
from batonpass.homeserver.transfer.batch import (
    DECIDED,
    InBulk,
    Together,
    args_of_handoff,
    args_of_report,
    not_answered,
    not_learned,
    reply_of,
)
from batonpass.homeserver.transfer.certificate_chains import Chains
from batonpass.homeserver.transfer.certificates import Certification
from batonpass.homeserver.transfer.foreign_relay import PassingOn, home_elsewhere
from batonpass.homeserver.transfer.group_commit import Alone, Company, Means, Step
from batonpass.homeserver.transfer.order import order_of
from batonpass.homeserver.transfer.spans import DecisionSpans
from batonpass.homeserver.transfer.waiting_group import Waiting, WaitingRequests
from batonpass.tree.raft.submissions import NoQuorum

__all__ = ["NOT_TOLD", "NobodyWaits", "Transfers", "owner_word"]

_log = logging.getLogger("batonpass.homeserver.transfer.service")
# Why a server could not be told something; what had been decided before stays decided.
NOT_TOLD: Final = (Refused, PeerUnreachable, NoQuorum)
# Receivers with a queue of their own; it holds nothing unless somebody posts at this moment.
MAX_POSTING: Final = 10_000


class NobodyWaits(Exception):
    """The time is over for which the sender of a message waits for its answer, and nothing has been done about it."""


def owner_word(record: EntityRecord) -> OwnerWord:
    """Who owns an entity, for its authority."""
    return OwnerWord(
        entity=record.id,
        owner=record.owner,
        owner_rev=record.owner_rev,
        timeout_s=record.owner_timeout_s,
        stands_still=record.stands_still,
    )


class Transfers:
    """One member's part in the transfers of its instance's entities, and of those that pass through."""

    # A chain of so many passes is replaced by a new grant. Each pass makes a hand-over longer by some 700 bytes, and a
    # grant takes a signature, a message and two verifications.
    renew_after = 4
    admission_patience_s = PATIENCE_S

    def __init__(
        self,
        sealer: Sealer,
        store: Store,
        directory: Directory,
        federation: Federation,
        link: LinkService,
        clock: Clock,
        reached: BreakpointReached = nowhere,
        spans: Spans = SILENT,
    ) -> None:
        self._sealer = sealer
        self._instance = instance_of(sealer.name)
        self._store = store
        self._directory = directory
        self._link = link
        self._clock = clock
        self._posting: dict[str, Combiner[Letter, None]] = {}
        # What was shown last to servers of other instances.
        self._shown: dict[str, str] = {}
        self.ordered: Callable[[TransferRecord], None] = lambda _transfer: None
        """Told of every transfer that an old authority is told to begin."""
        self.moved: Callable[[str, str, str], None] = lambda _entity, _source, _target: None
        """Told of every hand-over that this member has put to the log: entity, source and target."""
        self.torn: Callable[[TransferRecord], None] = lambda _transfer: None
        """Told of every hand-over that nobody had proposed, and that would have torn a hierarchy."""
        self.recovering: Callable[[str], None] = lambda _entity: None
        """Told of every entity that the log has begun to recover because of what this member was told."""
        self.certificates: Final = Certification(sealer, directory, clock)
        self._chains: Final = Chains(self.certificates, store, lambda entity: self.recovering(entity))  # noqa: PLW0108
        self._alone: Final = Alone(store, self.certificates)
        self._company: Final = Company(store, self.certificates, spans)
        self._admitting: Final = Admitting(sealer.name, store, clock)
        self.admissions: Final = Admissions(federation, clock, self.admission_patience_s)
        self.passing_on: Final = PassingOn(federation, clock)
        self.decisions: Final = DecisionSpans(spans)
        self._in_bulk: Final = InBulk(self, store, self._submit_all, sealer.name, clock, reached)
        self.log_shown_to: Callable[[str], str] = lambda _receiver: ""
        """Where the log stands, signed, for servers of other instances; empty for others."""
        self.why_undecided: Callable[[], str] = lambda: ""
        """Why this member decides nothing: its log went back; empty if it does."""
        self._answering: dict[type[Any], Callable[[Opened], Awaitable[Message]]] = {}
        self._reached = reached
        self.waiting: Final = WaitingRequests()

    # --- parcels ---------------------------------------------------------------------------------------------------

    async def open_untrusted(self, parcel: Parcel, until_ns: int | None = None) -> list[Opened]:
        """Check and open a parcel for this server; what is in it: one message, or those of a batch.

        `until_ns` is until when its sender waits for an answer (monotonic), if that is known.

        Raises:
            NobodyWaits: that time is over.
            UnknownSender: it is not registered with its home instance, or not any more.
            MessageError: anything about the parcel is wrong.
            NoQuorum, PeerUnreachable: nobody can say now who the sender is; it may repeat.
        """
        try:
            sender, kid = jose.peek_untrusted(parcel.sealed)
        except CryptoError as error:
            raise MessageError(str(error)) from error
        keys = await self._directory.keys_of(sender, kid)
        if keys is None:
            raise UnknownSender(f"{sender} is not registered: no keys are known for it")
        now_ns = self._clock.monotonic_ns()
        if until_ns is not None and now_ns >= until_ns:
            raise NobodyWaits(f"{sender} does not wait any more")
        return self._sealer.open_all_untrusted(
            parcel, sender=keys, now_ns=now_ns, now_s=self._clock.unix_s(), until_ns=until_ns
        )

    async def seal(self, message: Message, trace: Trace, to: str, *, on_path: bool) -> Parcel:
        """Seal a message to a server of any instance.

        Raises:
            Refused: it has no keys.
            NoQuorum, PeerUnreachable: nobody can say now which are its keys.
        """
        return self._sealer.seal(
            message,
            trace,
            to=to,
            keys=await self._keys_of(to),
            now_ns=self._clock.monotonic_ns(),
            now_s=self._clock.unix_s(),
            on_path=on_path,
        )

    async def _keys_of(self, to: str) -> PublicIdentity:
        """With which to seal for a server of any instance. Raises as `seal`."""
        keys = await self._directory.keys_of(to)
        if keys is None:
            raise Refused(Reason.NOT_FOUND, f"no keys are known for {to}", name=to)
        return keys

    def _seal_all(self, letters: Sequence[Letter], to: str, keys: PublicIdentity, **how: bool) -> Parcel:
        """Seal several messages to one server as one parcel; `how` as of `Sealer.seal_all`."""
        now_ns, now_s = self._clock.monotonic_ns(), self._clock.unix_s()
        return self._sealer.seal_all(letters, to=to, keys=keys, now_ns=now_ns, now_s=now_s, **how)

    async def post(self, message: Message, trace: Trace, to: str, *, on_path: bool) -> None:
        """Seal a message to a simulation server and send it over the link, without waiting for an answer.

        What is posted to one server at the same moment travels as one parcel.

        Raises:
            NOT_TOLD: it has no keys or no address, nobody can say now which they are, or it cannot be reached.
        """
        combiner = self._posting.get(to)
        if combiner is None:
            if len(self._posting) >= MAX_POSTING:
                self._posting.clear()
            combiner = self._posting[to] = Combiner(partial(self.post_all, to), most=MAX_BATCH)
        await combiner.do(Letter(message, trace, on_path))

    async def post_all(self, to: str, letters: Sequence[Letter]) -> list[None]:
        """Post several messages to one server in as few parcels as they fit. Raises as `post`."""
        waiting, keys = deque(letters), await self._keys_of(to)
        while together := take_batch(waiting):
            await self.post_parcel(self._seal_all(together, to, keys, over_link=True), to)
            self._sealer.get_ready(keys)
            if waiting:
                # A parcel is some milliseconds of work: what has come meanwhile has its turn.
                await trio.lowlevel.checkpoint()
        await self.show_log(to, keys)
        return [None] * len(letters)

    async def show_log(self, to: str, keys: PublicIdentity | None = None) -> None:
        """Show a server of another instance, to which a decision was told, where the log stands behind that.

        In a parcel of its own: an earlier release would refuse the others with it. The decision was told in any case.
        """
        position = self.log_shown_to(to)
        if not position or self._shown.get(to) == position:
            return
        letter = Letter(LogShown(position=position), Trace("log-shown"))
        try:
            await self.post_parcel(self._seal_all([letter], to, keys or await self._keys_of(to), over_link=True), to)
        except NOT_TOLD as error:
            _log.info("%s was not shown where the log stands: %s", to, error)
            return
        if len(self._shown) >= MAX_POSTING:
            self._shown.clear()
        self._shown[to] = position

    async def post_parcel(self, parcel: Parcel, to: str) -> None:
        """Send a sealed parcel to a simulation server over the link.

        Raises:
            NOT_TOLD: it has no address, nobody can say now which it is, or it cannot be reached.
        """
        row = await self._directory.row(to)
        if row is None or not row.link_port:
            raise Refused(Reason.NOT_FOUND, f"no link address is known for {to}", name=to)
        try:
            self._link.post(to, (row.link_host, row.link_port), encode_link(parcel))
        except (LinkDown, LinkFull) as error:
            raise PeerUnreachable(f"{to} cannot be reached over the link: {error}") from error

    async def answer(self, opened: Sequence[Opened], *, relayed: bool = False) -> Parcel | None:
        """Deal with what was in one parcel; the parcel is the answer to its sender, or None when there is none to give.

        The messages of a batch are dealt with beside each other, and each is answered in its place. The answer may go
        back through relays, if it is `relayed`.

        Raises:
            MessageError: this server does not take such a message from such a sender; never for a batch.
            Refused, PeerUnreachable, NoQuorum, OutcomeUnknown: nothing was decided; the sender may repeat. As above.
        """
        if len(opened) == 1:
            letter = await self.reply(opened[0])
            if letter is None:
                return None
            return await self.seal(letter.message, letter.trace, opened[0].sender, on_path=letter.on_path)
        replies, to = await self.replies(opened), opened[0].sender
        return self._seal_all(replies, to, await self._keys_of(to), relayed=relayed)

    async def replies(self, opened: Sequence[Opened]) -> list[Letter]:
        """What is to be answered to each message of a batch, in their order; see `homeserver.transfer.batch`."""
        letters: list[Letter] = [Letter(NoAnswer(why="undecided"), Trace("batch"))] * len(opened)
        if self.why_undecided():
            return letters

        async def answer_one(place: int) -> None:
            letters[place] = await self._reply_or_why_not(opened[place])

        async def answer_some(some: Together) -> None:
            for place in await self._in_bulk.answer(some, letters):
                nursery.start_soon(answer_one, place)

        async with trio.open_nursery() as nursery:
            bulk, others = await self._in_bulk.pick(opened, letters)
            for place in others:
                nursery.start_soon(answer_one, place)
            for some in bulk:
                nursery.start_soon(answer_some, some)
        return letters

    async def _reply_or_why_not(self, one: Opened) -> Letter:
        try:
            if not one.left_s(self._clock.monotonic_ns()):
                raise NoQuorum("the server that asked does not wait any more")
            letter = await self.reply(one)
        except Exception as error:
            return not_answered(one, error)
        return letter or Letter(NoAnswer(why="elsewhere"), Trace("batch"))

    async def reply(self, opened: Opened) -> Letter | None:
        """Deal with one opened message; what to answer its sender, or None. Raises as `answer`."""
        if (why := self.why_undecided()) and not isinstance(opened.message, LogInquiry):
            raise NoQuorum(why)
        match opened.message:
            case HandoffRequest() as request:
                return await self._handoff(request, opened)
            case HandoffAbort() as request:
                return await self._abort(request, opened)
            case AdmitRequest() as request:
                return await self._admit(request, opened)
            case Report() as report:
                return await self._report(report, opened)
            case Decline() as message:
                return await self._declined(message, opened)
            case other:
                answer = self._answering.get(type(other))
                if answer is None:
                    raise MessageError(f"a homeserver takes no {other.type}")
                return Letter(await answer(opened), opened.trace)

    def answer_by(self, kind: type[Any], answer: Callable[[Opened], Awaitable[Message]]) -> None:
        """Have messages of this kind, which are none about transfers, answered by somebody else."""
        self._answering[kind] = answer

    # --- the hand-over ---------------------------------------------------------------------------------------------

    async def _handoff(self, request: HandoffRequest, opened: Opened) -> Letter | None:
        """Hop 1 of cases 1 and 2 (or its continuation from the home of the old authority)."""
        await self.check_speaks_for(opened.sender, request.source)
        if home := home_elsewhere(request, self._instance):
            return await self.passing_on.one(home, opened)
        # From this member's copy: one that is behind takes a repetition for a first request. The log answers it the
        # same, and then the copy is not behind any more: the next repetition is known as one.
        known = self._store.transfer(request.transfer_id)
        repeated = known is not None and known.phase in DECIDED
        means = self._means(opened)
        decided, trace = await self._ruled_and_decided(request, opened, means, repeated=repeated)
        transfer = TransferRecord.from_data(decided["transfer"])
        reply = await self._reply(decided, transfer, means)
        if reply.outcome == "committed" and decided["transfer"].get("sub"):
            # It was passed directly: the target knows, if it is alive, and the old authority repeats it.
            return Letter(reply, opened.trace, on_path=False)
        is_case_2 = instance_of(request.source) == instance_of(request.target) == self._instance
        if reply.outcome == "pending":
            # Nothing is decided about the others either.
            if opened.sender == request.source and instance_of(request.source) == self._instance:
                self.waits(transfer, trace, opened.sender)
            await self.tell_the_others(transfer)
        elif not repeated:
            self.note(transfer, is_known=known is not None)
            await self.tell_the_others(transfer)
            if reply.outcome == "refused":
                # Its source has a raised fence by that; of another instance it hears so by way of its own home.
                await self.show_log(request.source)
        if is_case_2:
            return await self._tell_target(request, reply, trace, opened.sender, repeated=repeated)
        return Letter(reply, trace, on_path=True)

    def must_be_admitted(self, request: HandoffRequest) -> bool:
        """Whether the home of its target has to be asked before this is put to the log.

        Not about what the log has decided, or holds for its group, already; nor if it says no in any case, because the
        entity is past that fence: what it answers then does not depend on anybody else's word.
        """
        if instance_of(request.target) == self._instance:
            return False
        known, asked_at = self._store.transfer(request.transfer_id), Fence(request.epoch, request.sub)
        if known is not None and known.phase in DECIDED:
            return False
        if known is not None and known.phase is Phase.PREPARED and known.fence == asked_at:
            about = (request.entity, request.source, request.target)
            return (known.entity, known.source, known.target) != about
        record = self._store.entity(request.entity)
        if record is not None:
            return record.fence <= asked_at
        grave = self._store.grave(request.entity)
        return grave is None or grave["epoch"] < request.epoch

    async def _ruled_and_decided(
        self, request: HandoffRequest, opened: Opened, means: Means, *, repeated: bool
    ) -> tuple[dict[str, Any], Trace]:
        """The log's answer, when the home of a target that is elsewhere has said whether it would have the entity."""
        ruling_ns = self._clock.monotonic_ns()
        trace = opened.trace.mark(self._sealer.name, "ruling", ruling_ns)
        with self.decisions.of(request, ruling_ns) as told:
            admitted = AdmitReply(transfer_id=request.transfer_id, accepted=True)
            if self.must_be_admitted(request):
                admitted, trace = await self.admissions.ask(request, trace, opened.left_s(ruling_ns))
            deciding_ns = self._clock.monotonic_ns()
            trace = trace.mark(self._sealer.name, "deciding", deciding_ns)
            told.ruled(deciding_ns)
            self._reached(Breakpoint.DECIDING, request.transfer_id)
            decided = await self._decide(request, admitted, means)
            self._reached(Breakpoint.DECIDED, request.transfer_id)
            committed_ns = self._clock.monotonic_ns()
            told.decided(committed_ns, decided)
        if repeated:
            # The hops and times that led to the decision are gone with the answer to the first request.
            trace = trace.mark(self._sealer.name, REPEATED, committed_ns)
        return decided, trace.mark(self._sealer.name, "committed", committed_ns)

    def note(self, transfer: TransferRecord, *, is_known: bool = True) -> None:
        """Tell those who want to know of what was just decided; whether it `is_known` since before it was asked for."""
        if transfer.phase is Phase.COMMITTED:
            self.moved(transfer.entity, transfer.source, transfer.target)
        if not is_known and transfer.reason == Reason.ATTACHED:
            self.torn(transfer)

    def waits(self, transfer: TransferRecord, trace: Trace, sender: str) -> None:
        """This request of a server here is one of a group's that is not complete yet; see `tell_the_others`."""
        self.waiting.add(Waiting(transfer.id, transfer.group, trace, sender))

    async def tell_the_others(self, transfer: TransferRecord) -> None:
        """With one of a group the others are decided too: those whose requests wait here are answered at once.

        Where it waits for others, later groups may have been refused for that, which held what its own waits for.
        """
        group = self._store.group(transfer.group) if transfer.group else None
        if group is not None and group.phase is GroupPhase.OPEN:
            await self._tell_who_gave_way(group)
        elif group is not None:
            with self.decisions.of_group(transfer, group) as told:
                await self._tell_members(group)
                self.decisions.group_told(told, transfer)

    async def _tell_who_gave_way(self, group: GroupRecord) -> None:
        for name in group.later:
            later = self._store.group(name)
            if later is not None and later.phase is GroupPhase.REFUSED:
                await self._tell_members(later)

    async def _tell_members(self, group: GroupRecord) -> None:
        """Those of a parcel at a time, which share a signature; one after the other a thousand would take seconds."""
        waiting = deque(one for name in group.members if (one := self.waiting.take(name)) is not None)
        while waiting:
            together = [waiting.popleft() for _ in range(min(len(waiting), MAX_BATCH))]
            decided = [(one, other) for one in together if (other := self._store.transfer(one.transfer_id)) is not None]
            for to, letters in self._words_of(decided).items():
                try:
                    await self.post_all(to, letters)
                except NOT_TOLD as error:
                    _log.info("%s was not told of %d transfers of %s: %s", to, len(letters), group.id, error)

    def _words_of(self, decided: Sequence[tuple[Waiting, TransferRecord]]) -> Mapping[str, list[Letter]]:
        """What became of requests that waited, by who is to hear it: grants for targets here, the rest for sources."""
        words: defaultdict[str, list[Letter]] = defaultdict(list)
        committed = [(one, transfer) for one, transfer in decided if transfer.phase is Phase.COMMITTED]
        certificates = self.certificates.commit_all([transfer for _, transfer in committed])
        for (one, transfer), certificate in zip(committed, certificates, strict=True):
            self.note(transfer)
            if instance_of(transfer.target) == self._instance:
                words[transfer.target].append(Letter(Grant(certificate=certificate), one.trace, on_path=True))
                continue
            given: dict[str, Any] = {"outcome": Outcome.COMMITTED.value, "authority": transfer.target}
            given |= {"epoch": transfer.epoch, "sub": transfer.sub}
            words[one.sender].append(Letter(reply_of(given, transfer, certificate), one.trace, on_path=True))
        for one, transfer in decided:
            record = self._store.entity(transfer.entity) if transfer.phase is Phase.REFUSED else None
            if record is not None:
                self.note(transfer)
                answer = {"outcome": Outcome.REFUSED.value, "authority": record.authority}
                reply = reply_of(answer | {"epoch": record.epoch, "sub": record.sub}, transfer, "")
                words[one.sender].append(Letter(reply, one.trace))
        return words

    async def check_speaks_for(self, sender: str, source: str) -> None:
        """A hand-over is asked for by the old authority itself, or by a homeserver of its instance."""
        if sender == source:
            return
        row = await self._directory.row(sender)
        if row is None or row.role is not Role.HOMESERVER or instance_of(sender) != instance_of(source):
            raise MessageError(f"{sender} does not speak for {source}")

    async def _submit_all(self, steps: Sequence[Step]) -> list[Any]:
        return await self._company.submit_all(steps)

    def _means(self, opened: Opened) -> Means:
        return self._company if opened.in_batch else self._alone

    async def _decide(self, request: HandoffRequest, admitted: AdmitReply, means: Means) -> dict[str, Any]:
        """Put it to the log.

        A chain that breaks is refused by everybody who reads it, so nobody begins with what was passed by it: whoever
        signed that goes on, if the log still names it. With a word of its own, since a pass is not taken back else.
        """
        passes, is_broken = await self._followed(request)
        args = self.args_of(request, passes)
        if is_broken:
            _log.error("%s has passed %s by a chain that breaks; it is refused", request.source, request.entity)
            answer = await means.submit("transfer.refuse", **args, reason=Reason.NO_DELEGATION.value)
            if answer["outcome"] == Outcome.REFUSED:
                return {**answer, "transfer": {**answer["transfer"], "reason": Reason.NO_DELEGATION.value}}
        elif not admitted.accepted:
            reason = admitted.reason or Reason.UNKNOWN_TARGET.value
            answer = await means.submit("transfer.refuse", **args, reason=reason)
        else:
            answer = await means.submit("transfer.commit", **args, incarnation=admitted.incarnation)
        return dict(answer)

    async def _followed(self, request: HandoffRequest | HandoffAbort) -> tuple[list[dict[str, Any]], bool]:
        return await self._chains.followed(request.chain, request.entity, request.source, request.transfer_id)

    def args_of(self, request: HandoffRequest, passes: list[dict[str, Any]]) -> dict[str, Any]:
        """A request to hand over as arguments of the log's procedures; `passes` are those that led to it, verified."""
        return args_of_handoff(request, passes, self._instance, self._clock.unix_s())

    async def _reply(self, decided: Mapping[str, Any], transfer: TransferRecord, means: Means) -> HandoffReply:
        is_committed = decided["outcome"] == Outcome.COMMITTED
        return reply_of(decided, transfer, await means.certify(transfer) if is_committed else "")

    async def _tell_target(
        self, request: HandoffRequest, reply: HandoffReply, trace: Trace, sender: str, *, repeated: bool
    ) -> Letter | None:
        """Case 2: the log's word goes straight to the new authority (hop 2), which tells the old one (hop 3).

        Only a refusal, or the answer to a repetition, goes back to the old authority itself.
        """
        if reply.outcome == "committed":
            await self.post(Grant(certificate=reply.certificate), trace, request.target, on_path=True)
            if not repeated:
                return None
        return Letter(reply, trace, on_path=False)

    async def _abort(self, request: HandoffAbort, opened: Opened) -> Letter:
        """The old authority gives up what it had frozen for, before anybody was asked to commit it."""
        await self.check_speaks_for(opened.sender, request.source)
        if home := home_elsewhere(request, self._instance):
            return await self.passing_on.one(home, opened)
        args = request.model_dump(include={"transfer_id", "entity", "source", "target", "epoch", "sub", "reason"})
        passes, _ = await self._followed(request)
        means = self._means(opened)
        with self.decisions.of(request, self._clock.monotonic_ns()) as told:
            self._reached(Breakpoint.GIVING_UP, request.transfer_id)
            decided = await means.submit("transfer.refuse", **args, passes=passes)
            self._reached(Breakpoint.GIVEN_UP, request.transfer_id)
            told.decided(self._clock.monotonic_ns(), decided)
        self.waiting.take(request.transfer_id)
        transfer = TransferRecord.from_data(decided["transfer"])
        await self.tell_the_others(transfer)
        reply = await self._reply(decided, transfer, means)
        await self.show_log(request.source)
        return Letter(reply, opened.trace, on_path=False)

    async def _admit(self, request: AdmitRequest, opened: Opened) -> Letter:
        """The record's home asks whether a server of this instance would take an entity."""
        await self._check_homeserver_of(opened.sender, instance_of(request.entity))
        return await self._admitting.answer(request, opened.trace)

    async def _check_homeserver_of(self, sender: str, instance: str) -> None:
        row = await self._directory.row(sender)
        if row is None or row.role is not Role.HOMESERVER or instance_of(sender) != instance:
            raise MessageError(f"{sender} is no homeserver of {instance}")

    # --- behind: reports and direct passes -------------------------------------------------------------------------

    async def _report(self, report: Report, opened: Opened) -> Letter:
        await self.check_speaks_for(opened.sender, report.source)
        if home := home_elsewhere(report, self._instance):
            return await self.passing_on.one(home, opened)
        passes = await self._chains.passes(report.chain, report.entity, report.source)
        self._reached(Breakpoint.REPORTING, report.transfer_id)
        new = not_learned(self._store.entity(report.entity), passes)
        transfer = await self._noted_report(report, new, self._means(opened))
        self._reached(Breakpoint.REPORTED, report.transfer_id)
        await self.tell_of_owner_since(transfer, report.chain)
        if len(passes) >= self.renew_after:
            await self._renew_grant(report.entity, report.chain[-1], Fence(passes[-1]["epoch"], passes[-1]["sub"]))
        reply = ReportReply(transfer_id=report.transfer_id)
        return Letter(reply, opened.trace, on_path=False)

    async def _noted_report(self, report: Report, passes: list[dict[str, Any]], means: Means) -> TransferRecord:
        """The report and the passes that came with it in the log, by one command."""
        try:
            data = await means.submit("transfer.report", **args_of_report(report, passes))
        except Refused:
            # Whatever is wrong with the report: the entity was passed on, and the log has to know.
            if passes:
                await means.submit("transfer.passed", entity=report.entity, passes=passes)
            raise
        return TransferRecord.from_data(data)

    async def _declined(self, message: Decline, opened: Opened) -> Letter:
        """The old authority will not begin what it was told to."""
        await self.check_speaks_for(opened.sender, message.source)
        if home := home_elsewhere(message, self._instance):
            return await self.passing_on.one(home, opened)
        args = message.model_dump(include={"transfer_id", "entity", "source", "target", "reason"})
        await self._means(opened).submit("transfer.decline", **args)
        return Letter(ReportReply(transfer_id=message.transfer_id), opened.trace, on_path=False)

    def knows_of_owner(self, record: EntityRecord, owner_rev: int, chain: Sequence[str]) -> bool:
        """Whether its authority knows of its owner by the certificate of the log, or by the chain by which it came.

        Word of a later one was sent to whoever the log named then: of direct passes it learns afterwards.
        """
        return record.owner_rev <= (min(owner_rev, self.certificates.owner_rev_of(chain)) if chain else owner_rev)

    async def tell_of_owner_since(self, transfer: TransferRecord, chain: Sequence[str]) -> None:
        """Tell the new authority, which came to it by this chain, of an owner of whom that may not know."""
        record = self._store.entity(transfer.entity)
        if record is None or not record.authority or self.knows_of_owner(record, transfer.owner_rev, chain):
            return
        try:
            await self.tell_owner(record)
        except NOT_TOLD as error:
            _log.info("the authority of %s was not told its owner: %s", record.id, error)

    async def tell_owner(self, record: EntityRecord) -> None:
        """Tell the authority of an entity who owns it now.

        Raises:
            NOT_TOLD: it cannot be told now; it asks when the new owner gives its first input.
        """
        await self.post(owner_word(record), Trace(f"owner-{record.owner_rev:08d}"), record.authority, on_path=False)

    async def learn_passes(self, entity_id: str, chain: Sequence[str], by: str) -> None:
        """Bring the log up to date with direct passes, as a server tells them, and give the holder a new grant."""
        passes = await self._chains.passes(chain, entity_id, by)
        if passes:
            await self._store.submit("transfer.passed", entity=entity_id, passes=passes)
            await self._renew_grant(entity_id, chain[-1], Fence(passes[-1]["epoch"], passes[-1]["sub"]))

    async def _renew_grant(self, entity_id: str, last: str, fence: Fence) -> None:
        """The log has learned of direct passes up to `last`: a new grant for the holder, so that chains stay short."""
        record = self._store.entity(entity_id)
        if record is None or not record.delegation or record.fence != fence:
            return
        try:
            await self.deliver_delegation(record, replaces=token_hash(last))
        except NOT_TOLD as error:
            # The holder keeps its longer chain, which is as good; the next report brings the next grant.
            _log.info("the new grant of %s was not delivered: %s", entity_id, error)

    # --- beginning -------------------------------------------------------------------------------------------------

    async def despawn(self, entity: str, authority: str, epoch: int) -> None:
        """Tell the last authority of a deleted entity that it is gone.

        Raises:
            NOT_TOLD: it cannot be told now; the caller may delete the entity again.
        """
        if not authority:
            return  # Nobody had it; whoever may have it still is told as long as it takes (`deletion_notices`).
        message = Despawn(entity=entity, epoch=epoch)
        await self.post(message, Trace(f"despawn-{entity}"[:64]), authority, on_path=False)

    async def order(self, transfer: TransferRecord) -> None:
        """Tell the old authority to begin a permitted transfer; later, if another group goes first (see `Orders`).

        Raises:
            NOT_TOLD: it cannot be told now; the caller may propose the same transfer again.
        """
        self.ordered(transfer)
        if self._is_behind(transfer.group):
            return
        authority, letter = self._ordering(transfer)
        await self.post(letter.message, letter.trace, authority, on_path=False)

    async def order_each(self, transfers: Sequence[TransferRecord]) -> None:
        """As `order` of each, in as few parcels as they fit; those that cannot be told are told with a repetition.

        Members of a group stand still until the last of them has heard of it.
        """
        orders: defaultdict[str, list[Letter]] = defaultdict(list)
        behind: dict[str, bool] = {}
        for transfer in transfers:
            self.ordered(transfer)
            if transfer.group not in behind:
                behind[transfer.group] = self._is_behind(transfer.group)
            if behind[transfer.group]:
                continue
            try:
                authority, letter = self._ordering(transfer)
            except Refused as error:
                _log.info("nobody was told to begin %s: %s", transfer.id, error)
            else:
                orders[authority].append(letter)
        for authority, letters in orders.items():
            try:
                await self.post_all(authority, letters)
            except NOT_TOLD as error:
                first = letters[0].trace.transfer_id
                _log.info("%s was not told to begin %d transfers (%s ...): %s", authority, len(letters), first, error)

    def _is_behind(self, name: str) -> bool:
        """Whether the members of a group, if that is one, are ordered later, since another one goes first."""
        group = self._store.group(name) if name else None
        return group is not None and self._store.is_behind(group, self._clock.unix_s())

    def _ordering(self, transfer: TransferRecord) -> tuple[str, Letter]:
        """Who is to begin a transfer, and the order. Raises `Refused`: nobody has authority over its entity now."""
        record = self._store.entity(transfer.entity)
        authority = record.authority if record is not None else transfer.source
        if record is not None and not authority:
            text = f"no server has authority over {record.id} now: it is {record.standing}"
            raise Refused(Reason.NOT_FOUND, text, entity=record.id)
        return authority, Letter(order_of(transfer, record, self._store), Trace(transfer.id))

    async def deliver_delegation(self, record: EntityRecord, replaces: str = "") -> None:
        """Hand the grant of a delegated entity to its holder; see `Certification.grant`.

        Raises:
            NOT_TOLD: it cannot be told now; the caller may delegate the entity again.
        """
        message = Delegation(entity=record.id, grant=self.certificates.grant(record, replaces))
        await self.post(message, Trace(f"delegate-{record.id}"), record.authority, on_path=False)

    async def target_row(self, name: str) -> DirectoryRow | None:
        """The directory row of a possible target in any instance; raises what `Directory.row` raises."""
        return await self._directory.row(name)
