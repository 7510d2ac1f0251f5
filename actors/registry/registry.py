"""A registry: who can be found under which key, with a value for each entry (Elixir's Registry).

`UNIQUE` keys have one owner each: names with a value. `DUPLICATE` keys have any number: topics, and their subscribers.
Make one, run it under a supervisor *before* the actors that use it, and hand the object to them:

    rooms = Registry("rooms", Keys.UNIQUE)
    System.open("s1", [RegistrySpec("rooms", rooms), ActorSpec("lobby", Room, name=via(rooms, "lobby", {"seats": 8}))])
    ...
    await via(rooms, "lobby").call("who is there?")

The object is the address: it stays the same when its supervisor restarts the registry. Everything except the start is
a plain function, to be called from callbacks and from tasks alike, and takes effect before it returns.

**Ends.** The entries of an actor go in the same step as the actor itself; a dead one is never found. As in Elixir, what
is registered is linked to the registry. When the registry ends (killed, or shut down on its own), its owners get the
exit signal too, because they could not be found any more. Their supervisors start them again, and they register anew.
The registry does not end because an owner does.

**Partitions.** Elixir divides a registry so that processors need not wait for each other. Here one thread makes every
change, so there is nothing to wait for, and partitions would only cost a hash for each look-up: there are none.

The tables behind a registry: who is entered under which key, with which value. Pure.

Keys are equal only to their own kind (`actors.base.exact_keys`): 1, 1.0 and True are three.

Both are indexed by key and by owner, so that an owner's entries go in time proportional to their number, however many
others there are. A hundred thousand owners end in linear time, also when all are entered under one key.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, final

import trio

from batonpass.actors.base.exact_keys import exact, plain
from batonpass.actors.base.handles import Handle
from batonpass.actors.core.checks import member_of
from batonpass.actors.core.children import ChildSpec
from batonpass.actors.core.exits import SHUTDOWN, NoProc, Reason, is_normal
from batonpass.actors.core.named import AlreadyRegistered, Via
from batonpass.actors.core.process import Process, logger
from batonpass.actors.core.server import Reply, Server
from batonpass.actors.core.server_process import ServerProcess

if TYPE_CHECKING:
    from batonpass.actors.core.ref import From, Ref
    from batonpass.actors.core.system import System

__all__ = ["Entry", "Keys", "Registered", "Registry", "RegistrySpec", "Row", "Unregistered", "via"]


class Entry(NamedTuple):
    """Who is registered under a key, and the value that belongs to this registration."""

    ref: Ref
    value: Any


class Row(NamedTuple):
    """One registration, with its key."""

    key: Hashable
    ref: Ref
    value: Any


class Table(Protocol):
    """What a registry needs of its table. Entries are listed in the order in which they were added."""

    def add(self, key: Hashable, ref: Ref, value: Any) -> Ref | None:
        """Enter `ref`; None. If another entry is in the way: nothing happens, and whose it is."""

    def remove(self, key: Hashable, ref: Ref, where: Callable[[Any], bool] | None) -> int:
        """Remove the entries of `ref` under `key` (whose values satisfy `where`); how many there were."""

    def remove_owner(self, ref: Ref) -> list[Hashable]:
        """Remove all entries of `ref`; their keys, one for each entry."""

    def entries(self, key: Hashable) -> list[Entry]:
        """The entries under `key`."""

    def keys(self, ref: Ref) -> list[Hashable]:
        """The keys under which `ref` is entered, one for each entry."""

    def owners(self) -> list[Ref]:
        """All that have an entry, once."""

    def rows(self) -> Iterator[Row]:
        """All entries."""

    def __len__(self) -> int:
        """How many entries there are."""


@final
class UniqueTable:
    """At most one entry under each key."""

    __slots__ = ("_entries", "_keys")

    def __init__(self) -> None:
        self._entries: dict[Hashable, Entry] = {}
        self._keys: dict[Ref, dict[Hashable, None]] = {}

    def add(self, key: Hashable, ref: Ref, value: Any) -> Ref | None:
        """Enter `ref`, unless another actor has the key."""
        entry = Entry(ref, value)
        holder = self._entries.setdefault(key, entry)
        if holder is not entry:
            return holder.ref
        self._keys.setdefault(ref, {})[key] = None
        return None

    def replace_value(self, key: Hashable, ref: Ref, value: Any) -> None:
        """Give the entry of `ref` under `key`, which must be there, another value."""
        self._entries[key] = Entry(ref, value)

    def remove(self, key: Hashable, ref: Ref, where: Callable[[Any], bool] | None = None) -> int:
        """Remove the entry of `ref` under `key`."""
        entry = self._entries.get(key)
        if entry is None or entry.ref is not ref or (where is not None and not where(entry.value)):
            return 0
        del self._entries[key]
        keys = self._keys[ref]
        del keys[key]
        if not keys:
            del self._keys[ref]
        return 1

    def remove_owner(self, ref: Ref) -> list[Hashable]:
        """Remove all entries of `ref`; their keys."""
        keys = list(self._keys.pop(ref, ()))
        for key in keys:
            del self._entries[key]
        return keys

    def entries(self, key: Hashable) -> list[Entry]:
        """The entry under `key`, in a list."""
        entry = self._entries.get(key)
        return [] if entry is None else [entry]

    def whereis(self, key: Hashable) -> Ref | None:
        """Who has the key."""
        entry = self._entries.get(key)
        return None if entry is None else entry.ref

    def keys(self, ref: Ref) -> list[Hashable]:
        """The keys that `ref` has."""
        return list(self._keys.get(ref, ()))

    def owners(self) -> list[Ref]:
        """All that have a key, once."""
        return list(self._keys)

    def rows(self) -> Iterator[Row]:
        """All entries."""
        for key, (ref, value) in self._entries.items():
            yield Row(key, ref, value)

    def __len__(self) -> int:
        return len(self._entries)


@final
class DuplicateTable:
    """Any number of entries under each key, also several of one owner."""

    __slots__ = ("_count", "_keys", "_values")

    def __init__(self) -> None:
        self._values: dict[Hashable, dict[Ref, list[Any]]] = {}
        self._keys: dict[Ref, dict[Hashable, None]] = {}
        self._count = 0

    def add(self, key: Hashable, ref: Ref, value: Any) -> Ref | None:
        """Enter `ref`; nothing is ever in the way."""
        self._values.setdefault(key, {}).setdefault(ref, []).append(value)
        self._keys.setdefault(ref, {})[key] = None
        self._count += 1
        return None

    def remove(self, key: Hashable, ref: Ref, where: Callable[[Any], bool] | None = None) -> int:
        """Remove the entries of `ref` under `key` (whose values satisfy `where`); how many there were."""
        values = self._values.get(key, {}).get(ref, [])
        kept = [] if where is None else [value for value in values if not where(value)]
        removed = len(values) - len(kept)
        if not removed:
            return 0
        self._count -= removed
        if kept:
            self._values[key][ref] = kept
            return removed
        self._drop(key, ref)
        keys = self._keys[ref]
        del keys[key]
        if not keys:
            del self._keys[ref]
        return removed

    def remove_owner(self, ref: Ref) -> list[Hashable]:
        """Remove all entries of `ref`; their keys, one for each entry."""
        keys = self.keys(ref)
        for key in self._keys.pop(ref, ()):
            self._drop(key, ref)
        self._count -= len(keys)
        return keys

    def _drop(self, key: Hashable, ref: Ref) -> None:
        owners = self._values[key]
        del owners[ref]
        if not owners:
            del self._values[key]

    def entries(self, key: Hashable) -> list[Entry]:
        """The entries under `key`, owner by owner."""
        return [Entry(ref, value) for ref, values in self._values.get(key, {}).items() for value in values]

    def keys(self, ref: Ref) -> list[Hashable]:
        """The keys under which `ref` is entered, one for each entry."""
        return [key for key in self._keys.get(ref, ()) for _ in self._values[key][ref]]

    def owners(self) -> list[Ref]:
        """All that have an entry, once."""
        return list(self._keys)

    def rows(self) -> Iterator[Row]:
        """All entries, key by key."""
        for key, owners in self._values.items():
            for ref, values in owners.items():
                for value in values:
                    yield Row(key, ref, value)

    def __len__(self) -> int:
        return self._count


class Keys(Enum):
    """How many owners a key may have."""

    UNIQUE = "unique"
    DUPLICATE = "duplicate"


@final
@dataclass(frozen=True, slots=True)
class Registered:
    """To the listeners of a registry: `ref` has been entered under `key`."""

    registry: Registry
    key: Hashable
    ref: Ref
    value: Any


@final
@dataclass(frozen=True, slots=True)
class Unregistered:
    """To the listeners of a registry: `ref` is not under `key` any more. Once for each entry that went."""

    registry: Registry
    key: Hashable
    ref: Ref


class NotRegistered(Exception):
    """The actor has no entry under this key, so there is no value to change."""

    def __init__(self, registry: Registry, key: Hashable, ref: Ref) -> None:
        super().__init__(f"{ref} is not registered under {key!r} in {registry}: register it first")


@final
class Registry(Handle):
    """One registry; see the head of the module. It does its work while a `RegistrySpec` runs it, and is empty else.

    `listeners` are names (in the system that runs it, or `via` other registries) of actors to whom `Registered` and
    `Unregistered` are sent, on the terms of `Ref.send`. A name that no actor has is passed over. `meta` is what
    `Registry.meta` knows from the start.
    """

    __slots__ = ("_first_meta", "_keeper", "_listeners", "_locks", "_meta", "_slot", "_table", "_unique", "name")

    def __init__(
        self,
        name: str,
        keys: Keys = Keys.UNIQUE,
        *,
        listeners: Sequence[Hashable] = (),
        meta: Mapping[Hashable, Any] | None = None,
    ) -> None:
        """Raises `TypeError`, `ValueError` for `keys` that are neither unique nor duplicate."""
        self.name = name
        self._unique = member_of(Keys, f"keys of the registry {name!r}", keys) is Keys.UNIQUE
        self._listeners = tuple(listeners)
        self._first_meta = {exact(key): value for key, value in (meta or {}).items()}
        self._meta: dict[Hashable, Any] = {}
        self._locks: dict[Hashable, tuple[trio.Lock, int]] = {}
        self._table: UniqueTable | DuplicateTable = self._empty_table()
        self._keeper: Process | None = None
        # Stands for this registry in the table of names that each process has for its end.
        self._slot = object()

    def __repr__(self) -> str:
        return f"<registry {self.name}>"

    def __len__(self) -> int:
        return len(self._table)

    def __contains__(self, key: Hashable) -> bool:
        return bool(self._table.entries(exact(key)))

    @property
    def running(self) -> bool:
        """Whether it can be used now."""
        return self._keeper is not None

    @property
    def unique(self) -> bool:
        """Whether a key has one owner at most."""
        return self._unique

    # Changing

    def register(self, key: Hashable, ref: Ref, value: Any = None) -> None:
        """Enter a living actor of this system under `key`. Duplicate keys: as often as it likes.

        Raises `AlreadyRegistered` if a unique key is taken (also by `ref` itself), `NoProc` if the actor has ended or
        the registry is not running, `ValueError` for an actor of another system.
        """
        keeper = self._keeper
        if keeper is None:
            raise NoProc(repr(self))
        process = ref.process
        if not process.alive:
            raise NoProc(str(ref))
        if process.system is not keeper.system:
            raise ValueError(f"{ref} runs in the system {ref.node!r}, not where {self} is: a registry is local")
        keeper.require_loop()
        holder = self._table.add(exact(key), ref, value)
        if holder is not None:
            raise AlreadyRegistered(key, holder)
        if process.names is None:
            process.names = {}
        process.names[self._slot] = self
        if self._listeners:
            self._tell(Registered(self, key, ref, value))

    def unregister(self, key: Hashable, ref: Ref, where: Callable[[Any], bool] | None = None) -> int:
        """Remove the entries of `ref` under `key`, or those whose value satisfies `where`; how many there were.

        With `where` it is Elixir's unregister_match.
        """
        self._require_loop()
        removed = self._table.remove(exact(key), ref, where)
        if self._listeners:
            for _ in range(removed):
                self._tell(Unregistered(self, key, ref))
        return removed

    def update_value(self, key: Hashable, ref: Ref, change: Callable[[Any], Any]) -> tuple[Any, Any]:
        """Replace the value of the entry of `ref` under a unique `key` by `change(value)`; the new and the old one.

        Raises `NotRegistered` if `ref` has no such entry, `ValueError` for a registry of duplicate keys, and what
        `change` raises; nothing has changed then.
        """
        table = self._require_unique("update_value")
        self._require_loop()
        kept = exact(key)
        found = table.entries(kept)
        if not found or found[0].ref is not ref:
            raise NotRegistered(self, key, ref)
        old = found[0].value
        new = change(old)
        table.replace_value(kept, ref, new)
        return new, old

    # Finding

    def lookup(self, key: Hashable) -> list[Entry]:
        """Which actors are registered under `key`, with the values; empty if none is, or the registry is not
        running.
        """
        return self._table.entries(exact(key))

    def whereis(self, key: Hashable) -> Ref | None:
        """Who has a unique `key`, if there is one. Raises `ValueError` for a registry of duplicate keys."""
        return self._require_unique("whereis").whereis(exact(key))

    def values(self, key: Hashable, ref: Ref) -> list[Any]:
        """The values of the entries of `ref` under `key`."""
        return [entry.value for entry in self.lookup(key) if entry.ref is ref]

    def keys(self, ref: Ref) -> list[Hashable]:
        """The keys under which `ref` is registered, one for each entry."""
        return list(map(plain, self._table.keys(ref)))

    def match(self, key: Hashable, where: Callable[[Any], bool]) -> list[Entry]:
        """Those entries under `key` whose value satisfies `where` (Elixir has patterns and guards for that)."""
        return [entry for entry in self.lookup(key) if where(entry.value)]

    def select(self, where: Callable[[Hashable, Ref, Any], bool] | None = None) -> list[Row]:
        """All entries, or those for which `where(key, ref, value)` is true. It looks at every entry."""
        rows = [row._replace(key=plain(row.key)) for row in self._table.rows()]
        return rows if where is None else [row for row in rows if where(*row)]

    def count(self) -> int:
        """How many entries there are."""
        return len(self._table)

    def count_match(self, key: Hashable, where: Callable[[Any], bool]) -> int:
        """How many entries under `key` have a value that satisfies `where`."""
        return len(self.match(key, where))

    def count_select(self, where: Callable[[Hashable, Ref, Any], bool]) -> int:
        """For how many entries `where(key, ref, value)` is true."""
        return len(self.select(where))

    def dispatch(self, key: Hashable, function: Callable[[list[Entry]], object]) -> None:
        """Call `function` with the entries under `key`, here and now; not at all if there are none.

        The list is a copy, so `function` may register and unregister. What it raises comes out.
        """
        entries = self.lookup(key)
        if entries:
            function(entries)

    @asynccontextmanager
    async def lock(self, key: Hashable) -> AsyncIterator[None]:
        """`async with registry.lock(key):` one task at a time, in the order of asking; locks of other keys continue.

        It has nothing to do with who is registered under the key. Plain callbacks need none: nothing comes between.
        """
        kept = exact(key)
        lock, users = self._locks.get(kept) or (trio.Lock(), 0)
        self._locks[kept] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks[kept]
            if users == 1:
                del self._locks[kept]
            else:
                self._locks[kept] = (lock, users - 1)

    # What belongs to the registry as a whole

    def meta(self, key: Hashable, default: Any = None) -> Any:
        """What `put_meta` said last, or the registry was made with."""
        return self._meta.get(exact(key), default)

    def put_meta(self, key: Hashable, value: Any) -> None:
        """Remember `value` until the registry ends. Raises `NoProc` if it is not running."""
        if self._keeper is None:
            raise NoProc(repr(self))
        self._require_loop()
        self._meta[exact(key)] = value

    def delete_meta(self, key: Hashable) -> None:
        """Forget what `put_meta` said; harmless if there is nothing."""
        self._require_loop()
        self._meta.pop(exact(key), None)

    # For the runtime

    def vacate(self, _slot: object, ref: Ref) -> None:
        """`ref` has ended: forget its entries."""
        for key in self._table.remove_owner(ref):
            if self._listeners:
                self._tell(Unregistered(self, plain(key), ref))

    def open(self, keeper: Process) -> None:
        """`keeper` runs this registry from now until it ends. Raises `RuntimeError` if another does."""
        if self._keeper is not None:
            raise RuntimeError(f"{self} is run by {self._keeper.ref} already; make one Registry for each RegistrySpec")
        self._keeper = keeper
        self._meta = dict(self._first_meta)
        keeper.watch(self._close)

    def _close(self, reason: Reason) -> None:
        keeper, self._keeper = self._keeper, None
        owners = self._table.owners()
        # First of all no actor is registered, so that owners that end now, or look around, find the registry as it is.
        self._table = self._empty_table()
        self._meta = {}
        signal = SHUTDOWN if is_normal(reason) else reason
        for ref in owners:
            ref.exit(signal, None if keeper is None else keeper.ref)

    def _require_loop(self) -> None:
        if self._keeper is not None:
            self._keeper.require_loop()

    def _empty_table(self) -> UniqueTable | DuplicateTable:
        return UniqueTable() if self._unique else DuplicateTable()

    def _require_unique(self, what: str) -> UniqueTable:
        if isinstance(self._table, UniqueTable):
            return self._table
        raise ValueError(f"{what}: {self} has duplicate keys, so a key does not mean one actor; use lookup or dispatch")

    def _tell(self, message: Registered | Unregistered) -> None:
        if self._keeper is None:
            return
        names = self._keeper.system.registry
        for name in self._listeners:
            listener = names.whereis(name)
            if listener is not None:
                listener.send(message)


def via(registry: Registry, key: Hashable, value: Any = None) -> Via:
    """A key of a registry as a name: to start an actor under (`name=via(...)`, entered with `value`), and to address.

    Raises `ValueError` for a registry of duplicate keys.
    """
    if not registry.unique:
        raise ValueError(f"via: {registry} has duplicate keys, so a key is no name; use a registry of unique keys")
    return Via(registry, key, value)


@final
class RegistryKeeper(Server[None]):
    """The actor whose life is that of a registry. It has nothing to do; any call is answered with the `Registry`."""

    def init(self, arg: Registry) -> None:
        """Open the registry for use."""
        self._registry = arg
        arg.open(self.ref.process)

    def handle_call(self, request: Any, from_: From, state: None) -> Reply[None]:
        """Hand out the registry, to code that knows only the name of this actor."""
        return Reply(self._registry)

    def handle_cast(self, message: Any, state: None) -> None:
        """It takes no messages; a stray one must not end all that are registered."""
        logger.warning("%s, which keeps %s, got a cast: %r", self.ref, self._registry, message)


@dataclass(frozen=True)
class RegistrySpec(ChildSpec):
    """A registry as a child: it is running as long as the child is. Put it before those who register."""

    registry: Registry = field(kw_only=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.registry, Registry):
            raise TypeError(f"registry of the child {self.id!r} must be a Registry, not {self.registry!r}")

    def start_nowait(self, system: System, parent: Process) -> Process:
        """Open the registry, empty."""
        return ServerProcess.start_nowait(system, RegistryKeeper, self.registry, self.name, parent)
