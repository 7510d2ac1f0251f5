"""One homeserver, built as it is shipped (`homeserver.node.composition.build`), over a seat at its instance's log."""

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, cast

from batonpass.actors.base.breakpoints import nowhere
from batonpass.authority.errors import MessageError, Reason, Refused
from batonpass.authority.model.records import EntityRecord, GroupRecord, Phase, TransferRecord
from batonpass.authority.names import instance_of
from batonpass.authority.placement.policy import Balance, relieve
from batonpass.authority.wire.batch import Letter
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.lease import Renew
from batonpass.authority.wire.queries import LogShown
from batonpass.authority.wire.sealing import OpenedMessage, Sealer
from batonpass.authority.wire.transfer import Message, NoAnswer
from batonpass.homeserver.log.log_positions import LogPositions
from batonpass.homeserver.log.store import InstanceStore
from batonpass.homeserver.names.federation import InstanceUnreachable
from batonpass.homeserver.node.composition import DecisionSettings, build
from batonpass.homeserver.node.composition import Parts as HomeParts
from batonpass.homeserver.transfer.creation import SpawnNotTold, SpawnUnconfirmed
from batonpass.homeserver.transfer.group_commit import Step, StepsTogether
from batonpass.homeserver.transfer.hierarchies import order_all
from batonpass.homeserver.transfer.parcels import NOT_TOLD
from batonpass.homeserver.transfer.ports import HomeserverPorts
from batonpass.scenarios.simulation.servers.calls import AuthorityAsked, Calls, OpenCall
from batonpass.scenarios.simulation.servers.company import Alone, SimulatedBatch, SimulatedOutbox, VirtualCombiner
from batonpass.scenarios.simulation.servers.keys import SimulatedKeys, identity_of
from batonpass.scenarios.simulation.servers.log import LogSeat, SimulatedStore
from batonpass.scenarios.simulation.servers.mail import SimulatedMail
from batonpass.scenarios.simulation.servers.mixes import ServerMix
from batonpass.scenarios.simulation.servers.parts import ServersParts
from batonpass.scenarios.simulation.servers.tasks import AwaitedAnswer, SimulatedProcess, VirtualClock
from batonpass.scenarios.simulation.servers.ways import Neighbours
from batonpass.tree.raft.submissions import NoQuorum, OutcomeUnknown

__all__ = ["LEASE_TERM_S", "SimulatedHomeserver"]

LEASE_TERM_S: Final = 2.0
"""A third of the default, as runs are short; what else is measured in seconds about leases is so too."""
_PATIENCE_S: Final = 1.7
_NOTHING_DECIDED: Final = (Refused, InstanceUnreachable, NoQuorum, OutcomeUnknown, MessageError)
_NOT_DONE: Final = (*NOT_TOLD, OutcomeUnknown)
_BALANCE: Final = Balance(min_hold_s=1.0, moves_per_s=10.0, drain_moves_per_s=50.0)


class _BarePost:
    """As `homeserver.transfer.parcels.Parcels`: messages travel as they are."""

    def __init__(self, outbox: SimulatedOutbox, log_shown_to: Callable[[str], str]) -> None:
        self._outbox: Final = outbox
        self._log_shown_to: Final = log_shown_to
        self._shown: dict[str, str] = {}

    async def post(self, message: Message, trace: Trace, to: str, *, on_path: bool) -> None:
        self._outbox.send(to, message)

    async def post_all(self, to: str, letters: Sequence[Letter]) -> list[None]:
        for letter in letters:
            self._outbox.send(to, letter.message)
        await self.show_log(to)
        return [None] * len(letters)

    async def show_log(self, to: str) -> None:
        position = self._log_shown_to(to)
        if position and self._shown.get(to) != position:
            self._outbox.send(to, LogShown(position=position))
            self._shown[to] = position


class SimulatedHomeserver:
    """One member of an instance, from one crash to the next; parcels are messages that are not sealed."""

    def __init__(
        self, seat: LogSeat, keys: SimulatedKeys, process: SimulatedProcess, mail: SimulatedMail, clock: VirtualClock,
        dice: random.Random,
        parts: ServersParts, mix: ServerMix,
    ) -> None:  # fmt: skip
        self.name: Final = process.name
        self.process: Final = process
        self.clock: Final = clock
        self._seat: Final = seat
        self._keys: Final = keys
        self._mail: Final = mail
        self._calls: Final = Calls(process, mail)
        self._dice: Final = dice
        self._kinds: Final = parts
        self._mix: Final = mix
        self._made = 0
        self.start()
        mail.join(self.name, lambda sender, message: process.do(partial(self._arrived, sender, message)))

    def start(self) -> None:
        """Begin with an empty memory: everything else is in the log."""
        store = SimulatedStore(self._seat)
        sealer = Sealer(self.name, identity_of(self.name))
        positions = LogPositions(sealer, store, self._keys.parse, self.clock)
        self._outbox = SimulatedOutbox(
            self.process, self._mail, in_company=self._mix.in_company, most=self._mix.in_parcel
        )
        ports = HomeserverPorts(
            sealer=sealer,
            store=store,
            directory=cast(Any, self._keys),
            federation=cast(Any, Neighbours(self._keys, self._calls)),
            post=_BarePost(self._outbox, positions.shown_to),
            positions=positions,
            clock=self.clock,
            spans=self._kinds.spans(self.name, self.clock.monotonic_ns),
            leads=self._seat.leads,
            leads_log=self._seat.leads,
            # Every log has a leader among its members here.
            is_better_elsewhere=lambda: False,
            reached=nowhere,
            beside_each_other=self._beside_each_other,
            gather=self._gather,
        )
        settings = DecisionSettings(
            lease_term_s=LEASE_TERM_S,
            balance=_BALANCE,
            policy=relieve,
            balancing=self._mix.is_balanced,
            new_id=self._next_id,
            renew_after=self._kinds.renew_after,
            patience_s=_PATIENCE_S,
        )
        self.parts: HomeParts = build(ports, settings, self._kinds.home)
        self.process.begin()
        for loops in self.parts.loops().values():
            for loop in loops:
                self.process.start_soon(loop, self.process)

    @property
    def store(self) -> InstanceStore:
        """This member's way to its log."""
        return self.parts.store

    def _gather(self, perform: Callable[[list[Step]], Awaitable[Sequence[Any]]]) -> StepsTogether:
        if self._mix.in_company:
            return VirtualCombiner(self.process, perform, most=self._mix.in_parcel)
        return Alone(perform)

    async def _beside_each_other(self, jobs: Sequence[Callable[[], Awaitable[None]]]) -> None:
        done = [AwaitedAnswer() for _ in jobs]

        async def do(job: Callable[[], Awaitable[None]], answer: AwaitedAnswer) -> None:
            await job()
            answer.give(None)

        for job, answer in zip(jobs, done, strict=True):
            self.process.start_soon(do, job, answer)
        for answer in done:
            await answer.wait()

    def _next_id(self) -> str:
        self._made += 1
        return f"{self.name.replace('.', '-')}-{self._made:06d}"

    # --- messages --------------------------------------------------------------------------------------------------

    def _arrived(self, sender: str, message: Any) -> None:
        if self._calls.took(message):
            return
        if isinstance(message, SimulatedBatch):
            self.process.start_soon(self._told_each, sender, message)
        elif isinstance(message, OpenCall):
            self.process.start_soon(self._called, message)
        elif not self._took(sender, message):
            self.process.start_soon(self._told, sender, message)

    def _took(self, sender: str, message: Any) -> bool:
        try:
            return self.parts.took(_opened(sender, message), lambda _: None)
        except MessageError:
            return True

    async def _called(self, call: OpenCall) -> None:
        try:
            if isinstance(call.message, SimulatedBatch):
                self._calls.answer(call, await self._answered_each(call.caller, call.message))
            elif isinstance(call.message, AuthorityAsked):
                record = self.store.entity(call.message.entity)
                self._calls.answer(call, None if record is None else record.authority)
            else:
                self._calls.answer(call, await self._answered(call.caller, call.message))
        except (Refused, MessageError) as error:
            self._calls.refuse(call, str(error))
        except _NOTHING_DECIDED:
            self._calls.fail(call)

    async def _told(self, sender: str, message: Message) -> None:
        """By the link: what cannot be done now is as if it had been lost."""
        try:
            answer = await self._answered(sender, message)
        except _NOTHING_DECIDED:
            return
        if answer is not None:
            self._mail.send(self.name, sender, answer)

    async def _told_each(self, sender: str, batch: SimulatedBatch) -> None:
        """By the link, in one parcel; those that cannot be answered now are as if they had been lost."""
        asking = SimulatedBatch(tuple(one for one in batch.messages if not self._took(sender, one)))
        for answer in await self._answered_each(sender, asking):
            if not isinstance(answer, NoAnswer):
                self._outbox.send(sender, answer)

    async def _answered(self, sender: str, message: Message) -> Message | None:
        opened = _opened(sender, message)
        if isinstance(message, Renew):
            # As `homeserver.failover.renewal_lane.RenewalResponder`: nothing else delays it.
            return await self.parts.leases.renewed(opened)
        letter = await self.parts.transfers.reply(opened)
        return None if letter is None else letter.message

    async def _answered_each(self, sender: str, batch: SimulatedBatch) -> list[Message]:
        opened = [_opened(sender, message, in_batch=True) for message in batch.messages]
        return [letter.message for letter in await self.parts.transfers.replies(opened)]

    # --- what players and operators do, if it can be done ----------------------------------------------------------

    async def move(self, transfer_id: str, entity: str, target: str, how: Mapping[str, Any]) -> None:
        """The entity is to be moved."""
        wanted = {"transfer_id": transfer_id, "entity": entity, "target": target, "now_s": self.clock.unix_s(), **how}
        wanted["binds_master"] = True
        with suppress(*_NOT_DONE):
            transfer = TransferRecord.from_data(await self.store.submit("transfer.propose", **wanted))
            if transfer.phase is Phase.PERMITTED:
                await self.parts.orders.order(transfer)
                if transfer.group:
                    await order_all(self.store, self.parts.orders.order_each, transfer.group)

    async def move_together(self, group: str, entities: tuple[str, ...], target: str, how: Mapping[str, Any]) -> None:
        """Entities are to be moved together or not at all."""
        with suppress(*_NOT_DONE):
            data = await self._propose(group, entities, target, how)
            for name in GroupRecord.from_data(data).members:
                transfer = self.store.transfer(name)
                if transfer is not None:
                    await self.parts.orders.order(transfer)

    async def move_apart(self, group: str, entities: tuple[str, ...], target: str, how: Mapping[str, Any]) -> None:
        """Entities are to be moved, each by itself."""
        with suppress(*_NOT_DONE):
            await self._propose(group, entities, target, {"apart": True, **how})
            await order_all(self.store, self.parts.orders.order_each, group)

    async def _propose(self, group: str, entities: tuple[str, ...], target: str, how: Mapping[str, Any]) -> Any:
        wanted = {"group": group, "entities": list(entities), "target": target, **how}
        is_here = instance_of(target) == instance_of(self.name)
        return await self.store.submit("group.propose", **wanted, check_target=is_here, now_s=self.clock.unix_s())

    async def take(self, transfer_id: str, entity: str, player: str) -> None:
        """A player wants to own the entity, where it is."""
        wanted = {"transfer_id": transfer_id, "entity": entity, "target": "", "requester": player, "stay": True}
        with suppress(*_NOT_DONE):
            await self.store.submit("transfer.propose", **wanted, now_s=self.clock.unix_s())
            record = self.store.entity(entity)
            if record is not None and record.authority:
                await self.parts.notices.tell_owner(record)

    async def attach(self, entity: str, parent: str) -> None:
        """The master of an entity gives it a parent, or takes it away (empty)."""
        record = self.store.entity(entity)
        if record is not None:
            by, rev = record.master, record.parent_rev
            with suppress(*_NOT_DONE):
                await self.store.submit("entity.attach", entity=entity, parent=parent, by=by, parent_rev=rev)

    async def create(self, args: Mapping[str, Any]) -> EntityRecord | Reason | None:
        """A player creates an entity: its record, why there is none, or None if nothing is known yet."""
        try:
            record, reason = await self.parts.births.create({}, **args)
        except Refused as refused:
            return refused.reason
        except (*_NOT_DONE, SpawnNotTold, SpawnUnconfirmed):
            return None
        return Reason.DENIED if reason else record

    async def delete(self, entity: str, by: str, master_rev: int) -> bool:
        """The master of an entity deletes it; whether that is known to be decided."""
        with suppress(*_NOT_DONE):
            grave = await self.store.submit("entity.delete", entity=entity, by=by, master_rev=master_rev)
            await self.parts.notices.despawn(entity, grave["authority"], grave["epoch"])
            return True
        return False

    async def leave(self, entity: str, player: str, owner_rev: int) -> None:
        """A player says that it leaves an entity."""
        with suppress(*_NOT_DONE):
            answer = await self.store.submit("entity.owner_left", entity=entity, by=player, owner_rev=owner_rev)
            await self.parts.owners.carry_out(answer)

    async def delegate(self, entity: str, group: tuple[str, ...]) -> None:
        """A group may pass the entity among themselves."""
        with suppress(*_NOT_DONE):
            record = await self.store.submit("entity.delegate", entity=entity, group=group)
            await self.parts.notices.deliver_delegation(EntityRecord.from_data(record))

    async def drain(self, server: str, drain_id: str) -> bool:
        """Everything on this server is to go elsewhere; whether that is known to be decided."""
        with suppress(*_NOT_DONE):
            await self.store.submit("server.drain", server=server, drain_id=drain_id, now_s=self.clock.unix_s())
            return True
        return False

    async def rezone(self, procedure: str, args: Mapping[str, Any]) -> None:
        """The table of regions is to be changed."""
        with suppress(*_NOT_DONE):
            await self.store.submit(procedure, **args)

    async def open(self, server: str) -> bool:
        """The server may be given entities again; whether that is known to be decided."""
        with suppress(*_NOT_DONE):
            await self.store.submit("server.open", server=server)
            return True
        return False


def _opened(sender: str, message: Any, *, in_batch: bool = False) -> OpenedMessage:
    return OpenedMessage(message, sender, Trace(getattr(message, "transfer_id", "no-transfer")), in_batch=in_batch)
