"""The tree: a small replicated store of paths and values, the truth that a logical instance agrees on.

Where to start: `Replica` is one member of an instance. Give it a `ReplicaConfig` and the procedures of your program,
run `serve` in a nursery, `submit` procedures by name, and read `store`.

The pure half knows no network, disk or clock:

    path, data, errors     what names a node, what plain data is, what can be refused
    payload, node          what a node may hold, and what readers see of it
    conditions, shapes     what must hold of a node for an operation to go ahead
    condition_reader       conditions from data that may have come from the network
    pattern, matching      which nodes are meant, and how they are found
    effort                 how much work one command or read may make
    keep_while             nodes that stay only while something holds elsewhere
    store, transaction     the tree, and several operations on it as one
    queries                what can be asked of it
    mutable                how it changes, and how a change is undone
    changes, watch         what a commit changed, and the events that watchers are told of
    triggers, projections  what is to be run after a commit, and tables that follow the tree
    export, json_form      nodes as rows that stand for themselves, and data as JSON
    procedures             the built-in commands (`tree.put`, `tree.delete`, ...)
    registrations          the commands about triggers and projections
    commands, sessions     commands from the log, applied exactly once
    membership, elections  who the members are and how that changes; who may stand for election
    roster                 whom a member is in contact with, and whom it lets in
    reads, frames, tls     read-index rounds, the shapes of messages, TLS without I/O

The shell makes it durable and replicated:

    disk, journal, snapshot       files that survive a power cut, and what it means when a disk fails
    certificates, transport       who is a member, and the connections between them
    raft, raft_ports              the fence around PySyncObj, its only importers, with
      raft_member, raft_elections, raft_changes
    submissions, status           commands that wait for their answer; what a member is and tells
    read_index                    a member's part in read-index rounds, leading or not
    steward                       requests to change the members or the leader, on their way to the leader
    watching, triggering          watchers that can be waited for; running what triggers fired
    local_tree                    what every backend does with its own copy, asking nobody
    patience, occupancy           waiting until a deadline at little cost; one process to a directory
    replica                       all of this driven by trio

And the same operations elsewhere:

    backend                       what a program may expect of whatever keeps its tree
    etcd/                         the tree in an etcd cluster

`docs/decisions/0001-raft-fence.md` says what is changed of PySyncObj and why.
"""

from tree.data.errors import (
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
from tree.data.node import NodeView
from tree.data.path import ROOT, Path, format_path, parse_path
from tree.data.payload import NO_PAYLOAD, StoredProcedure
from tree.disk.disk import DiskFailed
from tree.member.replica import DirectoryInUse, Replica
from tree.member.status import Latency, MemberStatus, ReplicaConfig, ReplicaStatus
from tree.member.steward import ChangeNotFinished
from tree.member.triggering import TriggerProcedure
from tree.member.watching import Watch
from tree.net.membership import ChangeRefused
from tree.net.transport import Member, Refusal, RefusedByInstance
from tree.raft.raft import Timing
from tree.raft.submissions import Aborted, NoQuorum, OutcomeUnknown
from tree.store.changes import Change, Commit, Effects, Kind, Reason, Touched, Written
from tree.store.conditions import (
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
from tree.store.pattern import ANY_DEPTH, ANY_NAME, Pattern, Step, parse_pattern
from tree.store.procedures import Procedure, ReadOnly, read_only
from tree.store.projections import Projection, ProjectionStatus
from tree.store.store import Store
from tree.store.transaction import ReadTransaction, Transaction
from tree.store.triggers import Fired, Trigger
from tree.store.watch import Event, History, Watcher, WatcherState

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
    "PossiblyManyNodes",
    "Procedure",
    "Projection",
    "ProjectionStatus",
    "ReadOnly",
    "ReadOnlyTransaction",
    "ReadTransaction",
    "Reason",
    "Refusal",
    "RefusedByInstance",
    "Replica",
    "ReplicaConfig",
    "ReplicaStatus",
    "Step",
    "Store",
    "StoredProcedure",
    "Timing",
    "TooMuch",
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
