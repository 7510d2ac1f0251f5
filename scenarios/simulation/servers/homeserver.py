"""One home instance: its log, which is one machine that may be away for a while, and what its homeservers do.

That the log itself survives is what `baton simulate raft` is about; here it answers late, not at all (`NoQuorum`), or
decides without saying so (`OutcomeUnknown`), which is all that its users can see of what happens inside.
"""

import random
from collections.abc import Mapping
from typing import Any, Final, cast

from authority.errors import MessageError, Refused
from authority.hops import Trace
from authority.messages import Message, OwnerRequest
from authority.names import instance_of
from authority.records import EntityRecord, Phase, TransferRecord
from authority.sealing import Opened, Sealer
from homeserver.federation import PeerUnreachable
from homeserver.owners import Owners
from homeserver.store import Store, replicated_procedures
from homeserver.transfers import NOT_TOLD, Transfers
from scenarios.simulation.servers.calls import Call, Calls, Unanswered
from scenarios.simulation.servers.keys import Keys, identity_of
from scenarios.simulation.servers.mail import Mail
from scenarios.simulation.servers.tasks import Process, VirtualClock, pause
from tree.commands import Answer, Command, Machine, encode_command
from tree.submissions import NoQuorum, OutcomeUnknown, value_of

__all__ = ["Home"]

_COMMIT_S: Final = (0.0005, 0.004)
_AWAY_S: Final = 0.5
"""How long somebody waits for a log that is away before he is told so."""
_NOTHING_DECIDED: Final = (Refused, PeerUnreachable, NoQuorum, OutcomeUnknown, MessageError)


class _Log:
    """The log, as `homeserver.store.Store` uses a backend."""

    def __init__(self, dice: random.Random, unknown_share: float) -> None:
        self._machine: Final = Machine(replicated_procedures())
        self._dice: Final = dice
        self._number = 0
        self.is_away = False
        self.unknown_share = unknown_share

    @property
    def store(self) -> Any:
        """The tree."""
        return self._machine.store

    async def read_barrier(self) -> None:
        """As of the backend."""
        await self._reach()

    async def _reach(self) -> None:
        await pause(self._dice.uniform(*_COMMIT_S))
        if self.is_away:
            await pause(_AWAY_S)
            raise NoQuorum("the log is away")

    async def submit(self, procedure: str, args: Any) -> Any:
        """As of the backend."""
        await self._reach()
        answer = self.run(procedure, args)
        if self._dice.random() < self.unknown_share:
            await pause(_AWAY_S)
            raise OutcomeUnknown("the leader is gone", ("simulated", self._number))
        return answer

    def run(self, procedure: str, args: Any) -> Any:
        """Apply a command, here and now."""
        self._number += 1
        command = encode_command(Command(procedure, args, "simulated", self._number))
        _, encoded = self._machine.apply(command)
        return value_of(Answer.from_encoded(encoded))


class _Neighbours:
    """The way to other home instances, as `homeserver.federation.Federation` is used."""

    def __init__(self, name: str, calls: Calls) -> None:
        self._name: Final = name
        self._calls: Final = calls

    def hops_to(self, instance: str) -> int | None:
        """All of them know each other."""
        return 1

    async def exchange(self, instance: str, message: Message, trace: Trace, **how: Any) -> tuple[Message, Trace]:
        """Ask the other home."""
        try:
            answer = await self._calls.call(f"{instance}.h1", message)
        except Unanswered as error:
            raise PeerUnreachable(str(error)) from error
        if answer is None:
            raise PeerUnreachable(f"{instance} had nothing to say")
        return answer, trace


class Home(Transfers):
    """The homeservers of one instance, as if they were one; parcels are messages that are not sealed."""

    def __init__(
        self, instance: str, keys: Keys, process: Process, mail: Mail, clock: VirtualClock, dice: random.Random,
        unknown_share: float,
    ) -> None:  # fmt: skip
        self.process: Final = process
        self.log: Final = _Log(dice, unknown_share)
        self._mail: Final = mail
        self._calls: Final = Calls(process, mail)
        self.store: Final = Store(lambda: cast(Any, self.log))
        name = process.name
        neighbours = cast(Any, _Neighbours(name, self._calls))
        super().__init__(
            Sealer(name, identity_of(name)),
            self.store,
            cast(Any, keys),
            neighbours,
            cast(Any, None),
            clock,
        )
        self.answer_by(OwnerRequest, Owners(instance, self.store, neighbours, self).answer)
        for row in keys.of_instance(instance):
            self.log.run("directory.register", {"row": row.to_data()})
        mail.join(name, self._arrived)

    # --- messages --------------------------------------------------------------------------------------------------

    def _arrived(self, sender: str, message: Any) -> None:
        if self._calls.took(message):
            return
        if isinstance(message, Call):
            self.process.start_soon(self._called, message)
        else:
            self.process.start_soon(self._told, sender, message)

    async def _called(self, call: Call) -> None:
        try:
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
            self._mail.send(self.process.name, sender, answer)

    async def _answered(self, sender: str, message: Message) -> Message | None:
        letter = await self.reply(Opened(message, sender, Trace(getattr(message, "transfer_id", "no-transfer"))))
        return None if letter is None else letter.message

    async def post(self, message: Message, trace: Trace, to: str, *, on_path: bool) -> None:
        """Send it, as it is and by itself."""
        self._mail.send(self.process.name, to, message)

    # --- what people do --------------------------------------------------------------------------------------------

    def create(self, entity: str, spawner: str, server: str, rule: str) -> EntityRecord:
        """The record of a new entity, here and now."""
        args = {"entity": entity, "kind": "counter", "spawner": spawner, "server": server, "rule": rule}
        return EntityRecord.from_data(
            self.log.run("entity.create", args | {"check_server": instance_of(server) == instance_of(entity)})
        )

    async def move(self, transfer_id: str, entity: str, target: str, how: Mapping[str, Any]) -> None:
        """Somebody wants the entity moved; nobody minds if it cannot be."""
        wanted = {"transfer_id": transfer_id, "entity": entity, "target": target, "now_s": self._clock.unix_s(), **how}
        try:
            transfer = TransferRecord.from_data(await self.store.submit("transfer.propose", **wanted))
            if transfer.phase is Phase.PERMITTED:
                await self.order(transfer)
        except (*NOT_TOLD, OutcomeUnknown):
            pass

    async def take(self, transfer_id: str, entity: str, player: str) -> None:
        """A player wants to own the entity, where it is."""
        wanted = {"transfer_id": transfer_id, "entity": entity, "target": "", "requester": player, "stay": True}
        try:
            await self.store.submit("transfer.propose", **wanted, now_s=self._clock.unix_s())
            record = self.store.entity(entity)
            if record is not None:
                await self.tell_owner(record)
        except (*NOT_TOLD, OutcomeUnknown):
            pass

    async def delegate(self, entity: str, group: tuple[str, ...]) -> None:
        """A group may pass the entity among themselves."""
        try:
            record = await self.store.submit("entity.delegate", entity=entity, group=group)
            await self.deliver_delegation(EntityRecord.from_data(record))
        except (*NOT_TOLD, OutcomeUnknown):
            pass
