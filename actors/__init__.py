"""An OTP-like actor runtime on trio: servers, supervisors, names, timers. No asyncio, no threads, no pickle.

Start reading with `docs/explanation/actors.md`, then `core.server` (what you write) and `core.system` (what runs it).
The rooms:

    core         the kernel: `Server`, `Ref`, `Named`, `System`, `Supervisor`, timers, links, exits, telemetry
    supervision  dynamic and partitioned supervisors, applications, a tree as text, signals
    tasks        async functions beside their owner, who asks for the value (Elixir's `Task`)
    registry     registries of your own: unique or duplicate keys with values
    stages       producers and consumers: none is sent more than it asked for (GenStage)
    machines     actors whose answer depends on the state they are in (gen_statem)
    groups       groups of actors over nodes, and broadcasts to them (pg, PubSub)
    remote       actors on other nodes: refs, names and messages over the link
    observe      looking into actors that run: `sys`, bounded displays, routes for operators
    link         the sealed link: sessions, frames, acknowledgements, credit (sans-IO)
    net          the link's shell: one socket, a link for every peer, what they sent
    http         HTTP/1.1 for ASGI applications on h11, and a client; bounds for all that strangers could fill
    base         clocks, errors, batching, pauses: what all rooms use

Not here: truth that outlives a process (`tree`), and everything about entities (`simserver`).
"""

from batonpass.actors.base.loop import WrongThread
from batonpass.actors.core.children import (
    ActorSpec,
    ChildCounts,
    ChildInfo,
    ChildSpec,
    RestartLimitReached,
    ServiceSpec,
    SupervisorError,
)
from batonpass.actors.core.exits import (
    AlreadyStarted,
    BadReturnValue,
    CallingSelf,
    CallTimeout,
    Exit,
    Ignored,
    MailboxFull,
    NoProc,
    Reason,
    StartError,
)
from batonpass.actors.core.log_metadata import LogMetadata, set_log_metadata
from batonpass.actors.core.messages import TIMEOUT, Down, ExitSignal, Monitor, Request
from batonpass.actors.core.named import AlreadyRegistered, Named, Names, Via
from batonpass.actors.core.ref import From, Ref
from batonpass.actors.core.restart import AutoShutdown, Restart, Strategy
from batonpass.actors.core.server import HIBERNATE, IGNORE, Continue, NoReply, Ok, Reply, Server, Stop
from batonpass.actors.core.service import AsyncService
from batonpass.actors.core.status_report import ServerStatus
from batonpass.actors.core.supervisor import ChildStartFailed, Supervisor, SupervisorSpec
from batonpass.actors.core.system import Stats, System
from batonpass.actors.core.telemetry import AlreadyAttached, Telemetry
from batonpass.actors.core.timers import Interval, Tick, Timer, every
from batonpass.actors.registry.registry import (
    Entry,
    Keys,
    NotRegistered,
    Registered,
    Registry,
    RegistrySpec,
    Row,
    Unregistered,
    via,
)
from batonpass.actors.supervision.application import LastWord, run_application
from batonpass.actors.supervision.applications import ApplicationError, Applications, ApplicationSpec
from batonpass.actors.supervision.dynamic_supervisor import DynamicSupervisor, DynamicSupervisorSpec, TooManyChildren
from batonpass.actors.supervision.partition_supervisor import Partition, PartitionSupervisor, PartitionSupervisorSpec
from batonpass.actors.supervision.pool import Pool, PoolFull, PoolSettings, PoolStats
from batonpass.actors.tasks.agent import Agent
from batonpass.actors.tasks.hosting import ActorHost, HostRefusal, HostSettings
from batonpass.actors.tasks.task import Task, TaskResult, TaskTimeout, await_many, yield_many
from batonpass.actors.tasks.task_owner import TaskError, TaskScope, open_tasks
from batonpass.actors.tasks.task_process import Exited, Outcome, Returned, TaskSpec
from batonpass.actors.tasks.task_stream import TaskStream, async_stream
from batonpass.actors.tasks.task_supervisor import TaskSupervisor, TaskSupervisorSpec

__all__ = [
    "HIBERNATE",
    "IGNORE",
    "TIMEOUT",
    "ActorHost",
    "ActorSpec",
    "Agent",
    "AlreadyAttached",
    "AlreadyRegistered",
    "AlreadyStarted",
    "ApplicationError",
    "ApplicationSpec",
    "Applications",
    "AsyncService",
    "AutoShutdown",
    "BadReturnValue",
    "CallTimeout",
    "CallingSelf",
    "ChildCounts",
    "ChildInfo",
    "ChildSpec",
    "ChildStartFailed",
    "Continue",
    "Down",
    "DynamicSupervisor",
    "DynamicSupervisorSpec",
    "Entry",
    "Exit",
    "ExitSignal",
    "Exited",
    "From",
    "HostRefusal",
    "HostSettings",
    "Ignored",
    "Interval",
    "Keys",
    "LastWord",
    "LogMetadata",
    "MailboxFull",
    "Monitor",
    "Named",
    "Names",
    "NoProc",
    "NoReply",
    "NotRegistered",
    "Ok",
    "Outcome",
    "Partition",
    "PartitionSupervisor",
    "PartitionSupervisorSpec",
    "Pool",
    "PoolFull",
    "PoolSettings",
    "PoolStats",
    "Reason",
    "Ref",
    "Registered",
    "Registry",
    "RegistrySpec",
    "Reply",
    "Request",
    "Restart",
    "RestartLimitReached",
    "Returned",
    "Row",
    "Server",
    "ServerStatus",
    "ServiceSpec",
    "StartError",
    "Stats",
    "Stop",
    "Strategy",
    "Supervisor",
    "SupervisorError",
    "SupervisorSpec",
    "System",
    "Task",
    "TaskError",
    "TaskResult",
    "TaskScope",
    "TaskSpec",
    "TaskStream",
    "TaskSupervisor",
    "TaskSupervisorSpec",
    "TaskTimeout",
    "Telemetry",
    "Tick",
    "Timer",
    "TooManyChildren",
    "Unregistered",
    "Via",
    "WrongThread",
    "async_stream",
    "await_many",
    "every",
    "open_tasks",
    "run_application",
    "set_log_metadata",
    "via",
    "yield_many",
]
