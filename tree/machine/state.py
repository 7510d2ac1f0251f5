"""The whole state of a machine in chunks: read from a frozen view while commands are applied, and put together again.

A chunk is plain data and small enough to be made or read in a few milliseconds. They come in this order:

    ["machine", {"format": 3, "nodes": N, "revision": R, "registrations": [...], "configuration": ...}]
    ["tree", [row, ...]]         any number; see `tree.store.rows`
    ["sessions", [row, ...]]     any number; see `tree.machine.sessions`

The first holds what is small and how many rows have to follow.

How many rows a chunk has is counted in rows and bytes, not in time, so the same state gives the same chunks.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from batonpass.tree.data.errors import BadData
from batonpass.tree.machine.sessions import ClientSessions, FrozenSessions
from batonpass.tree.store.pattern import Pattern
from batonpass.tree.store.registrations import Registrations
from batonpass.tree.store.rows import BuiltTree, FrozenTree, TreeBuilder
from batonpass.tree.store.triggers import Triggers

__all__ = ["FORMAT", "FrozenState", "LoadedState", "StateLoader"]

FORMAT: Final = 3
# A chunk ends behind the row that reaches this; a row itself is at most as large as a command or a session.
_CHUNK_BYTES: Final = 128 * 1024


class FrozenState:
    """The state of one moment, for one reader; `release` when it is done or not wanted any more."""

    def __init__(self, parts: Mapping[str, Any], tree: FrozenTree, sessions: FrozenSessions) -> None:
        """`parts` is the small rest of the state by name, as plain data."""
        self._parts: Final = {**parts, "format": FORMAT, "nodes": tree.node_count + 1}
        self._sessions: Final = sessions
        self._rows: Final = {"tree": tree.rows(), "sessions": sessions.rows()}
        self._began = False

    def next_chunk(self, at_most_rows: int) -> list[Any] | None:
        """The next chunk, of at most `at_most_rows`; None after the last."""
        if not self._began:
            self._began = True
            return ["machine", self._parts]
        for kind, rows in self._rows.items():
            taken = _take(rows, at_most_rows)
            if taken:
                return [kind, taken]
        return None

    def release(self) -> None:
        """Let go of what changes of the state had to be kept from."""
        self._sessions.release()


def _take(rows: Iterator[list[Any]], at_most: int) -> list[list[Any]]:
    taken: list[list[Any]] = []
    size = 0
    for row in rows:
        taken.append(row)
        size += _weight(row)
        if len(taken) >= at_most or size >= _CHUNK_BYTES:
            break
    return taken


def _weight(row: list[Any]) -> int:
    """About how many bytes a row has: the payload of a node, or the answers in a session."""
    match row:
        case [_, _, bytes(encoded), *_]:
            return len(encoded)
        case [str(), [_, list(answers)]]:
            return sum(len(answer[1]) for answer in answers)
        case _:
            return 0


class LoadedState(NamedTuple):
    """A state, ready to take the place of another at once."""

    revision: int
    registered: tuple[Triggers, dict[str, Pattern]]
    configuration: Any
    tree: BuiltTree
    sessions: ClientSessions


class _Parts(NamedTuple):
    nodes: int
    revision: int
    registered: tuple[Triggers, dict[str, Pattern]]
    configuration: Any


class StateLoader:
    """Puts a state together from its chunks, beside the one that is in use. After an error it is of no use."""

    def __init__(self) -> None:
        self._parts: _Parts | None = None
        self._tree: Final = TreeBuilder()
        self._sessions: Final = ClientSessions()

    @property
    def node_count(self) -> int:
        """How many nodes were taken."""
        return self._tree.count

    def take_untrusted(self, chunk: Any) -> None:
        """Take the next chunk; raises `BadData` for anything that cannot come here."""
        match chunk:
            case ["machine", dict(parts)] if self._parts is None:
                self._parts = _read_parts(parts)
            case ["tree", rows] if self._parts is not None:
                self._tree.add_untrusted(rows)
            case ["sessions", rows] if self._parts is not None:
                self._sessions.add_untrusted(rows)
            case _:
                raise BadData("a chunk of a state that does not belong here")

    def take_whole_untrusted(self, state: Any) -> None:
        """Take a state in one piece, as `Machine.to_data` gives it and early snapshots have it; raises `BadData`."""
        match state:
            case {"format": 2, "revision": int(revision), "store": list(rows), "registrations": registered}:
                read = Registrations.read_untrusted(registered)
            case {"format": 1, "store": list(rows)}:
                read, revision = (Triggers(), {}), 0
            case _:
                raise BadData("not the state of a tree in format 1 or 2; was it written by a newer version?")
        self._parts = _Parts(len(rows), revision, read, state.get("configuration"))
        self._tree.add_untrusted(rows)
        self._sessions.add_untrusted(state.get("sessions"))

    def finish(self) -> LoadedState:
        """The state; raises `BadData` if something is missing."""
        tree = self._tree.finish()
        if self._parts is None or self._parts.nodes != tree.node_count + 1:
            raise BadData("the state has another number of nodes than it says")
        _, revision, registered, configuration = self._parts
        return LoadedState(revision, registered, configuration, tree, self._sessions)


def _read_parts(parts: dict[Any, Any]) -> _Parts:
    match parts:
        case {"format": 3, "nodes": int(nodes), "revision": int(revision), "registrations": registrations}:
            registered = Registrations.read_untrusted(registrations)
            return _Parts(nodes, revision, registered, parts.get("configuration"))
        case _:
            raise BadData(f"a state in format {parts.get('format')!r:.20}; was it written by a newer version?")
