"""One homeserver: the real transfers, leases, recoveries and balancer over a seat at its instance's log."""

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, cast

from batonpass.authority.errors import MessageError, Reason, Refused
from batonpass.authority.model.records import EntityRecord, GroupRecord, LeaseRow, Phase, TransferRecord
from batonpass.authority.names import instance_of
from batonpass.authority.placement.policy import Balance, relieve
from batonpass.authority.procedures.batch import MAX_STEPS
from batonpass.authority.wire.batch import Letter
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.lease import Renew
from batonpass.authority.wire.sealing import Opened, Sealer
from batonpass.authority.wire.transfer import (
    Adopted,
    Census,
    Collected,
    Despawned,
    LoadReport,
    Message,
    NoAnswer,
    OwnerRequest,
    Spawned,
)
from batonpass.homeserver.failover.foreign_custody import Abroad
from batonpass.homeserver.failover.outcome_queries import Inquiries
from batonpass.homeserver.names.federation import PeerUnreachable
from batonpass.homeserver.placement.balancer import Balancer
from batonpass.homeserver.transfer.batch import Together
from batonpass.homeserver.transfer.creation import Births, SpawnNotTold, SpawnUnconfirmed
from batonpass.homeserver.transfer.grant_retry import Reminders
from batonpass.homeserver.transfer.group_result import GroupNews
from batonpass.homeserver.transfer.hierarchies import Hierarchies, order_all
from batonpass.homeserver.transfer.order_retry import Orders
from batonpass.homeserver.transfer.owners import Owners
from batonpass.homeserver.transfer.service import NOT_TOLD, Transfers
from batonpass.scenarios.simulation.servers.calls import Call, Calls
from batonpass.scenarios.simulation.servers.company import Batch, Outbox, VirtualCombiner
from batonpass.scenarios.simulation.servers.keys import Keys, identity_of
from batonpass.scenarios.simulation.servers.log import Seat, SimulatedStore
from batonpass.scenarios.simulation.servers.mail import Mail
from batonpass.scenarios.simulation.servers.mixes import ServerMix
from batonpass.scenarios.simulation.servers.parts import Parts
from batonpass.scenarios.simulation.servers.tasks import Answer, Process, VirtualClock
from batonpass.scenarios.simulation.servers.ways import Neighbours
from batonpass.tree.raft.submissions import NoQuorum, OutcomeUnknown

__all__ = ["LEASE_TERM_S", "Home"]

LEASE_TERM_S: Final = 2.0
"""A third of the default, as runs are short; what else is measured in seconds about leases is so too."""
_NOTHING_DECIDED: Final = (Refused, PeerUnreachable, NoQuorum, OutcomeUnknown, MessageError)
_NOT_DONE: Final = (*NOT_TOLD, OutcomeUnknown)
_BALANCE: Final = Balance(min_hold_s=1.0, moves_per_s=10.0, drain_moves_per_s=50.0)


class Home(Transfers):
    """One member of an instance, from one crash to the next; parcels are messages that are not sealed."""

    admission_patience_s = 1.7

    def __init__(
        self, seat: Seat, keys: Keys, process: Process, mail: Mail, clock: VirtualClock, dice: random.Random,
        parts: Parts, mix: ServerMix,
    ) -> None:  # fmt: skip
        self.name: Final = process.name
        self.process: Final = process
        self.seat: Final = seat
        self.clock: Final = clock
        self.store: Final = SimulatedStore(seat)
        self._keys: Final = keys
        self._mail: Final = mail
        self._calls: Final = Calls(process, mail)
        self._dice: Final = dice
        self._parts: Final = parts
        self._mix: Final = mix
        self._made = 0
        self.start()
        mail.join(self.name, lambda sender, message: process.do(partial(self._arrived, sender, message)))

    def start(self) -> None:
        """Begin with an empty memory: everything else is in the log. As `homeserver.server.main` does it."""
        neighbours = cast(Any, Neighbours(self._keys, self._calls))
        sealer = Sealer(self.name, identity_of(self.name))
        parts = self._parts
        spans = parts.spans(self.name, self.clock.monotonic_ns)
        super().__init__(
            sealer, self.store, cast(Any, self._keys), neighbours, cast(Any, None), self.clock, spans=spans
        )
        self.certificates.__class__ = parts.certification
        self.leases = parts.leases(self.name, self.store, self.clock, LEASE_TERM_S, self.seat.leads, self._sweep)
        self.recoveries = parts.recoveries(self.store, self.post, self.clock, self._is_in_office, spans)
        self.recovering = lambda entity: self.recoveries.begun([entity])
        self._outbox = Outbox(self.process, self._mail, in_company=self._mix.in_company, most=self._mix.in_parcel)
        company: Any = parts.company(self.store, self.certificates, spans)
        most = min(MAX_STEPS, self._mix.in_parcel)
        company._steps = VirtualCombiner(self.process, company.submit_all, most=most)
        company._to_certify = VirtualCombiner(self.process, company._certify_all, most=most)
        self.__dict__["_company"] = company
        self.balancer = Balancer(
            self.store,
            self.post,
            self.clock,
            leads=self.seat.leads,
            balance=_BALANCE,
            policy=relieve,
            balancing=self._mix.is_balanced,
            new_id=self._next_id,
        )
        self.moved = self.balancer.moved
        self.answer_by(Renew, self.leases.renewed)
        self.owners = Owners(self._instance, self.store, neighbours, self)
        self.answer_by(OwnerRequest, self.owners.answer)
        hierarchies = Hierarchies(self._instance, self.store, neighbours, self.order_each, self.clock)
        self.torn = hierarchies.refused
        self.abroad = Abroad(
            self._instance, self.store, neighbours, self, self.recoveries, self.clock, self._is_in_office
        )
        Inquiries(self, self.store, cast(Any, self._keys), neighbours, self.abroad, self._instance)
        self.process.begin()
        self.process.start_soon(self.leases.look_around, self.process)
        self.process.start_soon(self.recoveries.serve)
        self.process.start_soon(hierarchies.serve)
        certificate = self.certificates.commit
        reminders = Reminders(self._instance, self.store, self.post, certificate, self.clock, self._is_in_office)
        self.process.start_soon(reminders.serve)
        orders = Orders(self.store, self.order_each, self.clock, self._is_in_office)
        self.ordered = orders.ordered
        self.process.start_soon(orders.serve)
        news = GroupNews(self.store, self.waiting, self.tell_the_others, self.clock)
        self.process.start_soon(news.serve)
        self.births = Births(self.store, self.post, self.clock)
        self.farewells = parts.farewells(self.store, self.post, self.clock, self._is_in_office)
        self.process.start_soon(self.farewells.serve)
        self.process.start_soon(self.abroad.look_around, self.process)
        self.process.start_soon(self.balancer.serve)

    def _is_in_office(self) -> bool:
        return self.leases.granter.office > 0

    async def _sweep(self, lease: LeaseRow) -> bool:
        return await self.recoveries.sweep(lease)

    def _next_id(self) -> str:
        self._made += 1
        return f"{self.name.replace('.', '-')}-{self._made:06d}"

    # --- messages --------------------------------------------------------------------------------------------------

    def _arrived(self, sender: str, message: Any) -> None:
        if self._calls.took(message):
            return
        if isinstance(message, Batch):
            self.process.start_soon(self._told_each, sender, message)
        elif isinstance(message, Call):
            self.process.start_soon(self._called, message)
        elif not self._noted(sender, message):
            self.process.start_soon(self._told, sender, message)

    def _noted(self, sender: str, message: Any) -> bool:
        """As `homeserver.node.dispatch.Node`: take what wants no answer; whether it was that."""
        is_ours = instance_of(sender) == self._instance
        match message:
            case Spawned():
                self.births.spawned(message, sender)
            case Despawned():
                self.farewells.heard(message, sender)
            case Collected():
                self._take_or_drop(self.recoveries.collected, message, sender)
            case Adopted():
                self._take_or_drop(self.recoveries.adopted, message, sender)
            case LoadReport() if is_ours:
                self.balancer.reported(sender, message.load, message.still)
            case Census() if is_ours:
                self.balancer.took_census(sender, message)
            case _:
                return False
        return True

    def _take_or_drop(self, take: Callable[[Any, str], None], message: Message, sender: str) -> None:
        try:
            take(message, sender)
        except MessageError:
            return

    async def _called(self, call: Call) -> None:
        try:
            if isinstance(call.message, Batch):
                self._calls.answer(call, await self._answered_each(call.caller, call.message))
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

    async def _told_each(self, sender: str, batch: Batch) -> None:
        """By the link, in one parcel; those that cannot be answered now are as if they had been lost."""
        asking = Batch(tuple(one for one in batch.messages if not self._noted(sender, one)))
        for answer in await self._answered_each(sender, asking):
            if not isinstance(answer, NoAnswer):
                self._outbox.send(sender, answer)

    async def _answered(self, sender: str, message: Message) -> Message | None:
        letter = await self.reply(Opened(message, sender, Trace(getattr(message, "transfer_id", "no-transfer"))))
        return None if letter is None else letter.message

    async def _answered_each(self, sender: str, batch: Batch) -> list[Message]:
        """As `Transfers.replies`, which waits in a nursery of trio's."""
        opened = [
            Opened(message, sender, Trace(getattr(message, "transfer_id", "no-transfer")), in_batch=True)
            for message in batch.messages
        ]
        letters = [Letter(NoAnswer(why="undecided"), Trace("batch"))] * len(opened)
        alone: dict[int, Answer] = {}

        async def answer_one(answer: Answer, one: Opened) -> None:
            answer.give((await self._reply_or_why_not(one)).message)

        def begin(places: Sequence[int]) -> None:
            for place in places:
                alone[place] = Answer()
                self.process.start_soon(answer_one, alone[place], opened[place])

        async def answer_some(done: Answer, some: Together) -> None:
            begin(await self._in_bulk.answer(some, letters))
            done.give(None)

        bulk, others = await self._in_bulk.pick(opened, letters)
        begin(others)
        done = [Answer() for _ in bulk]
        for one, some in zip(done, bulk, strict=True):
            self.process.start_soon(answer_some, one, some)
        for one in done:
            await one.wait()
        messages = [letter.message for letter in letters]
        for place, answer in alone.items():
            messages[place] = await answer.wait()
        return messages

    async def post(self, message: Message, trace: Trace, to: str, *, on_path: bool) -> None:
        """Send it, as it is."""
        self._outbox.send(to, message)

    async def post_all(self, to: str, letters: Sequence[Letter]) -> list[None]:
        """As `post`, of each."""
        for letter in letters:
            self._outbox.send(to, letter.message)
        return [None] * len(letters)

    # --- what people do; nobody minds if it cannot be done ------------------------------------------------------------

    async def move(self, transfer_id: str, entity: str, target: str, how: Mapping[str, Any]) -> None:
        """Somebody wants the entity moved."""
        wanted = {"transfer_id": transfer_id, "entity": entity, "target": target, "now_s": self.clock.unix_s(), **how}
        wanted["binds_master"] = True
        with suppress(*_NOT_DONE):
            transfer = TransferRecord.from_data(await self.store.submit("transfer.propose", **wanted))
            if transfer.phase is Phase.PERMITTED:
                await self.order(transfer)
                if transfer.group:
                    await order_all(self.store, self.order_each, transfer.group)

    async def move_together(self, group: str, entities: tuple[str, ...], target: str, how: Mapping[str, Any]) -> None:
        """Somebody wants entities moved together or not at all."""
        with suppress(*_NOT_DONE):
            data = await self._propose(group, entities, target, how)
            for name in GroupRecord.from_data(data).members:
                transfer = self.store.transfer(name)
                if transfer is not None:
                    await self.order(transfer)

    async def move_apart(self, group: str, entities: tuple[str, ...], target: str, how: Mapping[str, Any]) -> None:
        """Somebody wants entities moved, each by itself."""
        with suppress(*_NOT_DONE):
            await self._propose(group, entities, target, {"apart": True, **how})
            await order_all(self.store, self.order_each, group)

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
                await self.tell_owner(record)

    async def attach(self, entity: str, parent: str) -> None:
        """The master of an entity gives it a parent, or takes it away (empty)."""
        record = self.store.entity(entity)
        if record is not None:
            by, rev = record.master, record.parent_rev
            with suppress(*_NOT_DONE):
                await self.store.submit("entity.attach", entity=entity, parent=parent, by=by, parent_rev=rev)

    async def create(self, args: Mapping[str, Any]) -> EntityRecord | Reason | None:
        """Somebody creates an entity: its record, why there is none, or None if nothing is known yet."""
        try:
            record, reason = await self.births.create({}, **args)
        except Refused as refused:
            return refused.reason
        except (*_NOT_DONE, SpawnNotTold, SpawnUnconfirmed):
            return None
        return Reason.DENIED if reason else record

    async def delete(self, entity: str, by: str, master_rev: int) -> bool:
        """The master of an entity deletes it; whether that is known to be decided."""
        with suppress(*_NOT_DONE):
            grave = await self.store.submit("entity.delete", entity=entity, by=by, master_rev=master_rev)
            await self.despawn(entity, grave["authority"], grave["epoch"])
            return True
        return False

    async def leave(self, entity: str, player: str, owner_rev: int) -> None:
        """A player says that it leaves an entity."""
        with suppress(*_NOT_DONE):
            answer = await self.store.submit("entity.owner_left", entity=entity, by=player, owner_rev=owner_rev)
            await self.owners.carry_out(answer)

    async def delegate(self, entity: str, group: tuple[str, ...]) -> None:
        """A group may pass the entity among themselves."""
        with suppress(*_NOT_DONE):
            record = await self.store.submit("entity.delegate", entity=entity, group=group)
            await self.deliver_delegation(EntityRecord.from_data(record))

    async def drain(self, server: str, drain_id: str) -> bool:
        """Everything on this server is to go elsewhere; whether that is known to be decided."""
        with suppress(*_NOT_DONE):
            await self.store.submit("server.drain", server=server, drain_id=drain_id, now_s=self.clock.unix_s())
            return True
        return False

    async def open(self, server: str) -> bool:
        """The server may be given entities again; whether that is known to be decided."""
        with suppress(*_NOT_DONE):
            await self.store.submit("server.open", server=server)
            return True
        return False
