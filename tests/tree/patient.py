"""Replicas that wait for a minute where nobody says how long: a machine with much else to do takes longer for all."""

from typing import Any

from batonpass.tree import Replica
from batonpass.tree.etcd import EtcdReplica
from batonpass.tree.machine.commands import CommandId

PATIENCE_S = 60.0


class PatientReplica(Replica):
    """A member of a Raft instance."""

    async def submit(
        self, procedure: str, args: Any = None, *, timeout_s: float = PATIENCE_S, command_id: CommandId | None = None
    ) -> Any:
        return await super().submit(procedure, args, timeout_s=timeout_s, command_id=command_id)

    async def read_barrier(self, timeout_s: float = PATIENCE_S) -> None:
        await super().read_barrier(timeout_s)

    async def transfer_leadership(self, name: str | None = None, *, timeout_s: float = PATIENCE_S) -> str:
        return await super().transfer_leadership(name, timeout_s=timeout_s)


class PatientEtcdReplica(EtcdReplica):
    """A process that keeps its tree in etcd."""

    async def submit(
        self, procedure: str, args: Any = None, *, timeout_s: float = PATIENCE_S, command_id: CommandId | None = None
    ) -> Any:
        return await super().submit(procedure, args, timeout_s=timeout_s, command_id=command_id)

    async def read_barrier(self, timeout_s: float = PATIENCE_S) -> None:
        await super().read_barrier(timeout_s)
