"""The tree: a small replicated store of paths and values, the truth that a logical instance agrees on.

Where to start: `Replica` is one member of an instance. Give it a `ReplicaConfig` and the procedures of your program,
run `serve` in a nursery, `submit` procedures by name, and read `store`.

    data     paths, payloads, CBOR, JSON, and what work on them costs (pure)
    store    rows, queries, patterns, transactions, watches, triggers, projections (pure)
    machine  commands from the log, applied exactly once (pure)
    disk     files that survive a power cut: journal, mark, snapshots
    net      connections between members: TLS, frames, certificates, roster, membership
    raft     the fence around PySyncObj, its only importer
    member   a member: replica, reads, submissions, watching, changes of members
    etcd     the same operations on an etcd cluster

`docs/decisions/0001-raft-fence.md` says what is changed of PySyncObj and why.
"""

from batonpass.tree.data.errors import (
    Abort,
    BadData,
    BadPath,
    BadPattern,
    Compacted,
    KeepWhileConditionsNotMet,
    MalformedCommand,
    MismatchingNode,
    NodeNotFound,
    PossiblyManyNodes,
    ReadOnlyTransaction,
    TooMuch,
    TreeError,
    WatcherCut,
)
from batonpass.tree.data.node import NodeView
from batonpass.tree.data.path import ROOT, Path, format_path, parse_path
from batonpass.tree.data.payload import NO_PAYLOAD, StoredProcedure
from batonpass.tree.disk.disk import DiskFailed
from batonpass.tree.member.membership_executor import ChangeNotFinished
from batonpass.tree.member.replica import DirectoryInUse, Replica
from batonpass.tree.member.status import Latency, MemberStatus, ReplicaConfig, ReplicaStatus
from batonpass.tree.member.triggering import TriggerProcedure
from batonpass.tree.member.watching import Watch
from batonpass.tree.net.membership import ChangeRefused
from batonpass.tree.net.transport import Member, Refusal, RefusedByInstance
from batonpass.tree.raft.raft import Timing
from batonpass.tree.raft.submissions import Aborted, NoQuorum, OutcomeUnknown
from batonpass.tree.store.changes import Change, Commit, Effects, Kind, Touched, TouchReason, Written
from batonpass.tree.store.conditions import (
    AllOf,
    AnyOf,
    Compare,
    Condition,
    IfChildListLength,
    IfChildListVersion,
    IfDataLike,
    IfDataMatches,
    IfHasData,
    IfHasPayload,
    IfNameMatches,
    IfNodeExists,
    IfPathMatches,
    IfPayloadVersion,
    Name,
    NotOf,
)
from batonpass.tree.store.pattern import ANY_DEPTH, ANY_NAME, Pattern, PatternStep, parse_pattern
from batonpass.tree.store.procedures import Procedure, ReadOnly, read_only
from batonpass.tree.store.projections import Projection, ProjectionStatus
from batonpass.tree.store.store import Store
from batonpass.tree.store.transaction import ReadTransaction, Transaction
from batonpass.tree.store.triggers import Fired, Trigger
from batonpass.tree.store.watch import Event, History, Watcher, WatcherState

__all__ = [
    "ANY_DEPTH",
    "ANY_NAME",
    "NO_PAYLOAD",
    "ROOT",
    "Abort",
    "Aborted",
    "AllOf",
    "AnyOf",
    "BadData",
    "BadPath",
    "BadPattern",
    "Change",
    "ChangeNotFinished",
    "ChangeRefused",
    "Commit",
    "Compacted",
    "Compare",
    "Condition",
    "DirectoryInUse",
    "DiskFailed",
    "Effects",
    "Event",
    "Fired",
    "History",
    "IfChildListLength",
    "IfChildListVersion",
    "IfDataLike",
    "IfDataMatches",
    "IfHasData",
    "IfHasPayload",
    "IfNameMatches",
    "IfNodeExists",
    "IfPathMatches",
    "IfPayloadVersion",
    "KeepWhileConditionsNotMet",
    "Kind",
    "Latency",
    "MalformedCommand",
    "Member",
    "MemberStatus",
    "MismatchingNode",
    "Name",
    "NoQuorum",
    "NodeNotFound",
    "NodeView",
    "NotOf",
    "OutcomeUnknown",
    "Path",
    "Pattern",
    "PatternStep",
    "PossiblyManyNodes",
    "Procedure",
    "Projection",
    "ProjectionStatus",
    "ReadOnly",
    "ReadOnlyTransaction",
    "ReadTransaction",
    "Refusal",
    "RefusedByInstance",
    "Replica",
    "ReplicaConfig",
    "ReplicaStatus",
    "Store",
    "StoredProcedure",
    "Timing",
    "TooMuch",
    "TouchReason",
    "Touched",
    "Transaction",
    "TreeError",
    "Trigger",
    "TriggerProcedure",
    "Watch",
    "Watcher",
    "WatcherCut",
    "WatcherState",
    "Written",
    "format_path",
    "parse_path",
    "parse_pattern",
    "read_only",
]
