"""An OTP-like actor runtime on trio: servers, supervisors, names, timers. No asyncio, no threads, no pickle.

Start reading with `docs/actors.md`, then `actors.core.server` (what you write) and `actors.core.system` (what runs it).
The rest:

=========================  ================================================================================
`server`                   the `Server` behaviour: callbacks, and the results they return (pure)
`messages`                 what the runtime puts into a mailbox: `Down`, `ExitSignal`, `TaskResult`, ... (pure)
`status_report`            what of an actor may be seen in logs and by operators: `format_status` (pure)
`hibernation`              `hibernate_after_s`: who was left alone gives back what it can
`interrupts`               where Ctrl-C may strike, and where it waits
`exits`                    exit reasons, and the errors a caller sees (pure)
`restart`                  a supervisor's decisions: table, plan, restart window (pure)
`links`                    two actors that share their fate: the rules, and how their signals travel (pure)
`ref`                      `Ref`: call, cast, send, stop, kill; `From`: reply
`names`                    unique names of a system; `Named`, a ref by name
`registry`                 registries of your own: unique or duplicate keys with values, `via` names, listeners
`registry_tables`          the tables behind them (pure)
`timers`                   `send_after`, `send_interval`, and `every` for async functions
`supervisor`               one_for_one, one_for_all, rest_for_one over an ordered list of children
`dynamic_supervisor`       children that come and go
`partition_supervisor`     many copies of one child, found by key; `stable_hash` says which (pure)
`task`                     async functions beside their owner, who asks for the value: `Task`, `await_many`, ...
`task_owner`               who may own tasks: actors, and trio tasks with `open_tasks`
`task_stream`              `async_stream`: many inputs, a bounded number of tasks at a time
`task_supervisor`          tasks whose crash is not their owner's, and how many there may be
`task_process`             the life of a task; `TaskSpec`, a task as anybody's child
`children`                 specifications: `ActorSpec`, `ServiceSpec`
`arguments`                what is refused where it is written, and in which words (pure)
`system`                   `System.open`: everything above, for the length of a block
`telemetry`                events of the runtime and of yours, for whoever attaches to them (pure)
`sys`                      looking into an actor that runs: state, suspend, trace, log, statistics
`debug`, `controlled`      how that costs nobody else anything
`watchdog`                 reports a callback that blocks the node while it does
`display`                  a bounded picture of any value, without secrets, for outsiders (pure)
`observation`, `operator`  the HTTP routes for looking into a node's actors, and who may use them
`births`                   when each actor was started, from a few samples (pure)
`scheduler`                the run queue: why an idle actor costs no task
`pauses`                   what garbage collection adds to a callback's time
`collecting`               how often a server looks for garbage
`process`                  the life common to all actors; `server_process` and `service` run one each
`stages`                   producers and consumers: nobody is sent more than it asked for (GenStage)
`remote`                   actors on other nodes: refs, names and messages over the link; its `__init__` is a map
`link`                     the sealed link between nodes: sessions, frames, acknowledgements, credit (sans-IO)
`udp`, `inbox`             the link's shell: one socket, a link for every peer, what they sent
`datagrams`, `lookout`     its socket, with many datagrams in one call; and who waits for it
`link_service`             the link as a service that can be restarted
`application`, `outline`   a server: one supervision tree, and the last word when it cannot go on; a tree as text
`http_server`, `web`       HTTP/1.1 for ASGI applications on h11; one form for every error
`stopping`                 running a server until somebody asks it to stop
`clock`                    the one place where a server reads the time
=========================  ================================================================================

Not here: truth that outlives a process (`tree`), and everything about entities (`simserver`).
"""

from actors.base.loop import WrongThread
from actors.core.children import (
    ActorSpec,
    ChildCounts,
    ChildInfo,
    ChildSpec,
    RestartLimitReached,
    ServiceSpec,
    SupervisorError,
)
from actors.core.exits import (
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
from actors.core.messages import TIMEOUT, Down, ExitSignal, Monitor
from actors.core.named import AlreadyRegistered, Named, Names, Via
from actors.core.ref import From, Ref
from actors.core.restart import AutoShutdown, Restart, Strategy
from actors.core.server import HIBERNATE, IGNORE, Continue, NoReply, Ok, Reply, Server, Stop
from actors.core.service import AsyncService
from actors.core.status_report import ServerStatus
from actors.core.supervisor import ChildStartFailed, Supervisor, SupervisorSpec
from actors.core.system import Stats, System
from actors.core.telemetry import AlreadyAttached, Telemetry
from actors.core.timers import Interval, Tick, Timer, every
from actors.registry.registry import (
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
from actors.supervision.application import LastWord, run_application
from actors.supervision.dynamic_supervisor import DynamicSupervisor, DynamicSupervisorSpec, TooManyChildren
from actors.supervision.partition_supervisor import Partition, PartitionSupervisor, PartitionSupervisorSpec
from actors.tasks.task import Task, TaskResult, TaskTimeout, await_many, yield_many
from actors.tasks.task_owner import TaskError, TaskScope, open_tasks
from actors.tasks.task_process import Exited, Outcome, Returned, TaskSpec
from actors.tasks.task_stream import TaskStream, async_stream
from actors.tasks.task_supervisor import TaskSupervisor, TaskSupervisorSpec

__all__ = [
    "HIBERNATE",
    "IGNORE",
    "TIMEOUT",
    "ActorSpec",
    "AlreadyAttached",
    "AlreadyRegistered",
    "AlreadyStarted",
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
    "Ignored",
    "Interval",
    "Keys",
    "LastWord",
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
    "Reason",
    "Ref",
    "Registered",
    "Registry",
    "RegistrySpec",
    "Reply",
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
    "via",
    "yield_many",
]
