"""The tree kept in an etcd cluster instead of our own Raft, for those who run one already.

Pure:

    keys       which key holds what
    wire       requests and answers of etcd's HTTP/JSON gateway
    answers    the memory that makes a command submitted twice apply once

The shell:

    config     where etcd is, and which instance is kept there
    client     requests over several endpoints, and what may have happened when one fails
    queue      commands that wait for their answer
"""

from tree.etcd.config import EtcdConfig

__all__ = ["EtcdConfig"]
