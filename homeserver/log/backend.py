"""Where the replicated rows of this homeserver are kept: our own Raft, or an etcd cluster that is there already."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import trio

from batonpass.authority.node.config import ConfigError, read_secret
from batonpass.authority.procedures.table import MACHINE_VERSION
from batonpass.crypto.key_store import RING_FILE
from batonpass.homeserver.config import EtcdSettings, HomeserverConfig
from batonpass.homeserver.log.store import replicated_procedures
from batonpass.tree.disk.lock_file import occupied
from batonpass.tree.etcd import Damaged, EtcdConfig, EtcdReplaced, EtcdReplica, RefusedByEtcd
from batonpass.tree.member.backend import Backend
from batonpass.tree.member.replica import Replica, ReplicaConfig, open_journal
from batonpass.tree.net.transport import Member, RefusedByInstance

__all__ = ["KIND", "REFUSALS", "BackendService", "begin_member", "make_backend"]

# What this server is among those that replicate with each other; never changes, for it is in certificates and keys.
KIND = "homeserver"

# What a backend's `serve` raises when it must not continue: its last word, in the log already.
REFUSALS = (RefusedByInstance, RefusedByEtcd, Damaged, EtcdReplaced)


class BackendService:
    """The backend of this member as a service that can be restarted: each life is a new backend on the same directory.

    It recovers as after a restart of the whole server, from what is durable: a Raft member from its journal, a client
    of etcd from etcd. Commands that were under way end with `NoQuorum` or `OutcomeUnknown`, watches are cut.
    """

    def __init__(self, make: Callable[[], Backend]) -> None:
        """`make` makes a backend that has not been served yet."""
        self._make: Final = make
        self.current = make()
        """The backend of the present life, or of the last one while there is none. Ask for it at every use."""
        self._is_used = False

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """`Backend.serve`, any number of times, one at a time. Raises what that raises."""
        if self._is_used:
            self.current = self._make()
        self._is_used = True
        await self.current.serve(task_status=task_status)


def make_backend(config: HomeserverConfig) -> Backend:
    """The backend that the configuration names; nothing runs yet.

    Raises:
        ConfigError: a secret cannot be read, or the settings do not fit together.
    """
    settings = config.metadata.etcd
    if config.metadata.backend == "etcd" and settings is not None:
        return EtcdReplica(_etcd_config(config, settings), replicated_procedures())
    return Replica(_replica_config(config), replicated_procedures())


def begin_member(config: HomeserverConfig) -> None:
    """Make the journal of a member that is new. To be called before its keys are made: keys without one prove a loss.

    Raises:
        ConfigError: a secret cannot be read, or the settings do not fit together.
        DirectoryInUse, DiskFailed, JournalDamaged, JournalForeign: see `tree.member.replica.Replica.serve`.
    """
    if config.metadata.backend == "raft" and not _key_ring(config).exists():
        replica = _replica_config(config)
        with occupied(replica.directory):
            open_journal(replica).close()


def _key_ring(config: HomeserverConfig) -> Path:
    return config.directory / "keys" / RING_FILE


def _replica_config(config: HomeserverConfig) -> ReplicaConfig:
    secret_file = config.raft_secret_file
    if secret_file is None:
        raise ConfigError("raft_secret_file: the Raft backend needs it")
    return ReplicaConfig(
        kind=KIND,
        instance=config.instance,
        name=config.name,
        members=tuple(Member(m.name, m.host, m.raft_port) for m in config.members),
        directory=config.directory / "raft",
        secret=read_secret(secret_file),
        join=config.join,
        machine_version=MACHINE_VERSION,
        # A member that comes back without its log keeps its keys, and is told to join.
        made_later=() if config.join else (_key_ring(config),),
    )


def _etcd_config(config: HomeserverConfig, settings: EtcdSettings) -> EtcdConfig:
    password = None
    if settings.password_file is not None:
        # etcd's operators choose its passwords; how long they are is not ours to judge.
        password = read_secret(settings.password_file, min_bytes=1).decode()
    try:
        return EtcdConfig(
            kind=KIND,
            instance=config.instance,
            name=config.name,
            endpoints=settings.endpoints,
            root=settings.root,
            ca_file=settings.ca_file,
            certificate_file=settings.certificate_file,
            key_file=settings.key_file,
            user=settings.user,
            password=password,
            max_operations=settings.max_operations,
            max_request_bytes=settings.max_request_bytes,
            request_timeout_s=settings.request_timeout_s,
        )
    except ValueError as error:
        raise ConfigError(f"metadata.etcd: {error}") from error
