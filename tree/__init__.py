"""The tree: a small replicated store of paths and values, the truth that a logical instance agrees on.

Where to start: `Replica` is one member of an instance. Give it a `ReplicaConfig` and the procedures of your program,
run `serve` in a nursery, `submit` procedures by name, and read `store`.

The pure half knows no network, disk or clock:

    path, data, errors     what names a node, what a node may hold, what can be refused
    conditions             what must hold of a node for an operation to go ahead
    store, transaction     the tree, and several operations on it as one
    procedures             the built-in commands (`tree.put`, `tree.delete`, ...)
    commands, sessions     commands from the log, applied exactly once
    reads, frames, tls     read-index rounds, the shapes of messages, TLS without I/O

The shell makes it durable and replicated:

    disk, journal, snapshot       files that survive a power cut, and what it means when a disk fails
    certificates, transport       who is a member, and the connections between them
    raft                          the fence around PySyncObj, its only importer
    submissions, status           commands that wait for their answer; what a member is and tells
    replica                       all of this driven by trio

`docs/decisions/0001-raft-fence.md` says what is changed of PySyncObj and why.
"""

from tree.conditions import AllOf, AnyOf, Condition, IfDataMatches, IfNodeExists, IfPayloadVersion, NotOf
from tree.disk import DiskFailed
from tree.errors import Abort, BadData, BadPath, MalformedCommand, MismatchingNode, NodeNotFound, TreeError
from tree.path import ROOT, Path, format_path, parse_path
from tree.procedures import Procedure
from tree.raft import Timing
from tree.replica import DirectoryInUse, Replica
from tree.status import Latency, MemberStatus, ReplicaConfig, ReplicaStatus
from tree.store import NodeView, Store, Written
from tree.submissions import Aborted, NoQuorum, OutcomeUnknown
from tree.transaction import Transaction
from tree.transport import Member, Refusal, RefusedByInstance

__all__ = [
    "ROOT",
    "Abort",
    "Aborted",
    "AllOf",
    "AnyOf",
    "BadData",
    "BadPath",
    "Condition",
    "DirectoryInUse",
    "DiskFailed",
    "IfDataMatches",
    "IfNodeExists",
    "IfPayloadVersion",
    "Latency",
    "MalformedCommand",
    "Member",
    "MemberStatus",
    "MismatchingNode",
    "NoQuorum",
    "NodeNotFound",
    "NodeView",
    "NotOf",
    "OutcomeUnknown",
    "Path",
    "Procedure",
    "Refusal",
    "RefusedByInstance",
    "Replica",
    "ReplicaConfig",
    "ReplicaStatus",
    "Store",
    "Timing",
    "Transaction",
    "TreeError",
    "Written",
    "format_path",
    "parse_path",
]
