"""One real homeserver that takes one message at a time, as `handover_host.Host` takes one event.

It is built as it is shipped (`homeserver.node.composition.build`). Its log is a dictionary of rows.
"""

import copy
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, cast

from batonpass.actors.base.breakpoints import nowhere
from batonpass.authority.model.records import EntityRecord, RecoveryRow, TransferRecord
from batonpass.authority.node.spans import SILENT
from batonpass.authority.placement.policy import Balance, relieve
from batonpass.authority.wire.batch import Letter
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.lease import LeaseInquiry, LeaseWord
from batonpass.authority.wire.sealing import OpenedMessage, Sealer, no_log
from batonpass.authority.wire.transfer import AdmitReply, AdmitRequest, Message
from batonpass.homeserver.node.composition import DecisionSettings, build
from batonpass.homeserver.transfer.ports import HomeserverPorts
from batonpass.scenarios.simulation.search.keys import HOME, SearchKeys, identity_of
from batonpass.scenarios.simulation.search.ports import ROOMS, StoppedClock

__all__ = ["ENTITY", "PLAYER", "TransfersAtHome", "run_now"]

ENTITY: Final = "alpha.ball"
PLAYER: Final = "alpha.ada"


def run_now(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that has nothing to wait for."""
    try:
        coroutine.send(None)
    except StopIteration as stopped:
        return stopped.value
    coroutine.close()
    raise AssertionError("waited for something that does not exist in a search")


class _SearchRows:
    """The replicated rows, as procedures see them."""

    def __init__(self, data: dict[tuple[str, ...], Any]) -> None:
        self.data = data

    def get_or(self, path: tuple[str, ...], default: Any) -> Any:
        if not all(path):
            raise AssertionError(f"the tree has no empty names: {path}")
        return copy.deepcopy(self.data.get(path, default))

    def put(self, path: tuple[str, ...], data: Any) -> Any:
        self.data[path] = copy.deepcopy(data)

    def delete(self, path: tuple[str, ...]) -> Any:
        for known in [known for known in self.data if known[: len(path)] == path]:
            del self.data[known]

    def count_children(self, path: tuple[str, ...]) -> int:
        return len({known[len(path)] for known in self.data if known[: len(path)] == path and len(known) > len(path)})


class _Store:
    """The log, as a homeserver submits to it: a procedure runs entirely, or not at all."""

    def __init__(self, procedures: Mapping[str, Callable[..., Any]]) -> None:
        self._procedures = procedures
        self.data: dict[tuple[str, ...], Any] = {}

    def run(self, procedure: str, args: dict[str, Any]) -> Any:
        rows = _SearchRows(dict(self.data))
        answer = self._procedures[procedure](rows, args)
        self.data = rows.data
        return answer

    async def submit(self, procedure: str, **args: Any) -> Any:
        return self.run(procedure, args)

    def transfer(self, transfer_id: str) -> TransferRecord | None:
        data = self.data.get(("transfers", transfer_id))
        return None if data is None else TransferRecord.from_data(data)

    def entity(self, entity_id: str) -> EntityRecord:
        return EntityRecord.from_data(self.data["entities", entity_id])

    def group(self, group: str) -> None:
        """No transfer here is of a group."""

    def kind_of(self, entity_id: str) -> str:
        return self.entity(entity_id).kind

    def recovery(self, entity_id: str) -> RecoveryRow | None:
        data = self.data.get(("recoveries", entity_id))
        return None if data is None else RecoveryRow.from_data(data)

    @property
    def tree(self) -> _SearchRows:
        return _SearchRows(self.data)

    async def fresh(self) -> None:
        pass


class _Federation:
    """The home of the server that is not of the entity's instance: it takes everything."""

    def hops_to(self, instance: str) -> int | None:
        return 1

    def is_silent(self, instance: str) -> bool:
        return False

    async def exchange(self, instance: str, message: Message, trace: Trace, **how: Any) -> tuple[Message, Trace]:
        """That leases last. No entity is taken over here; whole clusters do that."""
        if not isinstance(message, LeaseInquiry):
            raise TypeError(f"no server sends {message.type} to another instance here")
        return LeaseWord(number=message.number, over=[], alive=[]), trace

    async def exchange_all(self, instance: str, letters: Sequence[Letter], **how: Any) -> list[tuple[Message, Trace]]:
        return [(self._admitted(letter.message), letter.trace) for letter in letters]

    def _admitted(self, message: Message) -> AdmitReply:
        if not isinstance(message, AdmitRequest):
            raise TypeError(f"no server sends {message.type} to another instance here")
        incarnation = ROOMS.incarnation_of(message.target)
        return AdmitReply(transfer_id=message.transfer_id, accepted=True, incarnation=incarnation)


class _NoPositions:
    """In place of `homeserver.log.log_positions.LogPositions`."""

    place_for = staticmethod(no_log)


class TransfersAtHome:
    """A homeserver, built as it is shipped, whose parcels are messages that are not sealed."""

    def __init__(self, keys: SearchKeys, procedures: Mapping[str, Callable[..., Any]]) -> None:
        self.store = _Store(procedures)
        self.sent: list[tuple[str, Message]] = []
        sealer, nothing = Sealer(HOME, identity_of(HOME)), cast(Any, None)
        ports = HomeserverPorts(
            sealer=sealer,
            store=cast(Any, self.store),
            directory=cast(Any, keys),
            federation=cast(Any, _Federation()),
            post=self,
            # What the log was restored from is not searched, nor which member grants leases, nor what servers are to
            # do.
            positions=cast(Any, _NoPositions()),
            clock=StoppedClock(),
            spans=SILENT,
            leads=lambda: False,
            leads_log=lambda: False,
            is_better_elsewhere=lambda: False,
            reached=nowhere,
            beside_each_other=nothing,
            # Nor is anything created but before the search.
            gather=lambda _perform: nothing,
        )
        # Chains are renewed at once, so that a few passes are enough to meet renewed grants.
        settings = DecisionSettings(
            lease_term_s=1.0, balance=Balance(), policy=relieve, balancing=False, new_id=nothing, renew_after=1
        )
        self._home: Final = build(ports, settings)
        for row in keys.registrations():
            self.store.run("directory.register", {"row": row.to_data()})

    async def post(self, message: Message, trace: Trace, to: str, *, on_path: bool) -> None:
        """Send it."""
        self.sent.append((to, message))

    async def post_all(self, to: str, letters: Sequence[Letter]) -> list[None]:
        """As `post`, of each."""
        self.sent += [(to, letter.message) for letter in letters]
        return [None] * len(letters)

    async def show_log(self, to: str) -> None:
        """A log that was restored is not looked for."""

    def create(self, server: str) -> None:
        """The record of the entity."""
        args = {"entity": ENTITY, "kind": "ball", "spawner": PLAYER, "server": server, "rule": "allow"}
        self.store.run("entity.create", args)

    def lease(self, server: str, incarnation: int) -> None:
        """A server begins a life, and nothing is left of the last one to be taken over."""
        args = {"server": server, "incarnation": incarnation, "nonce": f"{server}-{incarnation}"}
        self.store.run("lease.claim", {**args, "previous_nonce": f"{server}-{incarnation - 1}"})
        seen = {"late": 0, "phase": "returning"}
        self.store.run("lease.swept", {"server": server, "incarnation": incarnation, **seen})

    def take_id(self, transfer_id: str, server: str, target: str) -> None:
        """Another entity of this server is to be moved under this id, and never is."""
        args = {"entity": f"{ENTITY}-too", "kind": "ball", "spawner": PLAYER, "server": server, "rule": "allow"}
        self.store.run("entity.create", args)
        self.store.run("transfer.propose", {"transfer_id": transfer_id, "entity": f"{ENTITY}-too", "target": target})

    def take(self, sender: str, message: Message) -> None:
        """A message arrives, and is answered. Raises what `Transfers.reply` raises: then nothing was decided."""
        opened = OpenedMessage(message, sender, Trace(getattr(message, "transfer_id", "no-transfer")))
        letter = run_now(self._home.transfers.reply(opened))
        if letter is not None:
            # What a homeserver of another instance asks, it asks for a server, and passes the answer on.
            self.sent.append((getattr(message, "source", sender), letter.message))

    def propose(self, transfer_id: str, target: str, *, direct: bool, staged: bool = False) -> None:
        """The entity is to be moved."""
        args = {"transfer_id": transfer_id, "entity": ENTITY, "target": target, "direct": direct, "transport": "link"}
        args |= {"mode": "staged"} if staged else {}
        transfer = TransferRecord.from_data(self.store.run("transfer.propose", args))
        run_now(self._home.orders.order(transfer))

    def delegate(self, group: tuple[str, ...]) -> None:
        """Let a group pass the entity among themselves."""
        record = EntityRecord.from_data(self.store.run("entity.delegate", {"entity": ENTITY, "group": group}))
        run_now(self._home.notices.deliver_delegation(record))
