"""Which key of etcd holds what: the layout below the prefix of an instance. Pure.

    <prefix>guard                         what every change compares and writes: revision and format
    <prefix>node/<name>/<name>/.../       one node's row; the root is `<prefix>node/`
    <prefix>answer/<client>/<number>      what a client's commands from that number on were answered
    <prefix>registrations                 triggers, what they fired, and the projections in use; if ever registered

    <root>/leader/<kind>/<instance>       which process runs what triggers fire, for as long as it lives

A node's key ends in a slash. So the range `[key, key with its last slash as the next byte)` is exactly the node and
everything below it. One operation deletes a subtree, and `etcdctl get --prefix` shows one. Parents sort before their
children. Names and client ids are readable in the keys: only the slash, the percent sign and control characters are
written as in URLs (RFC 3986, section 2.1). Everything else stands as it is, in UTF-8.
"""

import re
from typing import Final

from batonpass.tree.data.errors import BadPath
from batonpass.tree.data.path import Path, check_path

__all__ = ["EtcdKeys", "prefix_end"]

_ESCAPED: Final = re.compile(r"[\x00-\x1f\x7f/%]")
_ESCAPE: Final = re.compile(r"%([0-9A-F]{2})")
_NUMBER_DIGITS: Final = 19  # of 2**63 - 1: numbers of one width sort as text


def prefix_end(prefix: bytes) -> bytes:
    """The end of the range of all keys that begin with `prefix` (etcd's own rule: the last byte plus one)."""
    trimmed = prefix.rstrip(b"\xff")
    if not trimmed:
        raise ValueError("this prefix has no end: it is empty or consists of 0xff only")
    return trimmed[:-1] + bytes([trimmed[-1] + 1])


class EtcdKeys:
    """The keys of one instance."""

    def __init__(self, root: str, kind: str, instance: str) -> None:
        """`root` is where all of batonpass lives in this etcd, such as `/batonpass`."""
        self.prefix: Final = f"{root.rstrip('/')}/{_escape(kind)}/{_escape(instance)}/".encode()
        self.end: Final = prefix_end(self.prefix)
        self.guard: Final = self.prefix + b"guard"
        # Not below the prefix, where every change comes with the guard.
        self.leader: Final = f"{root.rstrip('/')}/leader/{_escape(kind)}/{_escape(instance)}".encode()
        self._nodes: Final = self.prefix + b"node/"
        self._answers: Final = self.prefix + b"answer/"
        self.registrations: Final = self.prefix + b"registrations"

    def node(self, path: Path) -> bytes:
        """The key of a node's row."""
        return self._nodes + "".join(f"{_escape(name)}/" for name in path).encode()

    def answers(self, client: str, first_number: int) -> bytes:
        """The key of the answers to a client's commands, from this number on."""
        return self.answers_of(client) + f"{first_number:0{_NUMBER_DIGITS}}".encode()

    def answers_of(self, client: str) -> bytes:
        """What the keys of all answers to this client begin with."""
        return self._answers + f"{_escape(client)}/".encode()

    def read_node(self, key: bytes) -> Path | None:
        """The path of the node whose row this key holds; None if it holds something else.

        Raises `BadPath` if it looks like a node's key and is none that `node` made.
        """
        if not key.startswith(self._nodes):
            return None
        try:
            text = key[len(self._nodes) :].decode()
        except UnicodeDecodeError as error:
            raise BadPath(f"the key {key!r:.300} is not UTF-8") from error
        names = text.split("/")
        if names.pop():
            raise BadPath(f"the key {key!r:.300} does not end in a slash")
        path = check_path(tuple(map(_unescape, names)))
        if self.node(path) != key:
            raise BadPath(f"the key {key!r:.300} is not written as the keys of nodes are")
        return path

    def read_answers(self, key: bytes) -> tuple[str, int] | None:
        """The client and the first number of a key of answers; None if it holds something else."""
        match = self._rest(key, self._answers)
        if match is None or not match[1].isascii() or not match[1].isdigit():
            return None
        return _unescape(match[0]), int(match[1])

    def read_client(self, key: bytes) -> str:
        """The client of a key that `answers_of` made."""
        return _unescape(key[len(self._answers) : -1].decode())

    @staticmethod
    def _rest(key: bytes, prefix: bytes) -> tuple[str, str] | None:
        if not key.startswith(prefix):
            return None
        try:
            first, slash, second = key[len(prefix) :].decode().partition("/")
        except UnicodeDecodeError:
            return None
        return (first, second) if slash else None


def _escape(name: str) -> str:
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", name) if _ESCAPED.search(name) else name


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text) if "%" in text else text
