"""The tree kept in an etcd cluster instead of our own Raft, for those who run one already.

Pure:

    keys       which key holds what
    wire       requests and answers of etcd's HTTP/JSON gateway
    answers    the memory that makes a command submitted twice apply once

    mirrored_store   a store on which commands are rehearsed, and that takes rows over
    mirror     the tree at one revision of etcd's: decides commands, takes what etcd accepted

The shell:

    config     where etcd is, and which instance is kept there
    http       connections that are kept, and failures that tell whether anything was sent
    client     requests over several endpoints, and what may have happened when one fails
    queue      commands that wait for their answer
    following  reading the mirror, and keeping it up by a watch
    leading    which process runs what triggers fire
    replica    all of this as a backend

`docs/guides/etcd.md` is for those who run it; `docs/decisions/0004-etcd.md` says why it is done this way.
"""

from batonpass.tree.etcd.client import RefusedByEtcd
from batonpass.tree.etcd.config import EtcdConfig
from batonpass.tree.etcd.following import EtcdReplaced
from batonpass.tree.etcd.mirror import Damaged
from batonpass.tree.etcd.replica import EtcdReplica

__all__ = ["Damaged", "EtcdConfig", "EtcdReplaced", "EtcdReplica", "RefusedByEtcd"]
