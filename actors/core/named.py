"""Names for actors: unique within a system, gone the moment the actor ends, the same across restarts.

A name is any hashable value. `Named` is a ref by name: it looks the name up on every use, so it keeps working when
the actor behind it has been restarted. `Names` is the table of one system, `system.registry`: names and nothing else.
`Via` is a name in a registry that users make for themselves (`actors.registry.registry`), where entries also carry a
value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar, final, overload

import trio

from batonpass.actors.base.exact_keys import exact, plain
from batonpass.actors.base.handles import Handle
from batonpass.actors.core.exits import NOPROC, NORMAL, AlreadyStarted, NoProc, Reason, StartError
from batonpass.actors.core.ref import DEFAULT_TIMEOUT_S, Ref

if TYPE_CHECKING:
    from collections.abc import Hashable

    from batonpass.actors.core.messages import Request

ReplyT = TypeVar("ReplyT")


class AlreadyRegistered(Exception):
    """The name belongs to a living actor, `ref`."""

    def __init__(self, name: Hashable, ref: Ref) -> None:
        self.name = name
        self.ref = ref
        super().__init__(f"the name {name!r} belongs to {ref}; stop that one first, or choose another name")


@final
class Names:
    """Unique names of one system; see the head of the module."""

    __slots__ = ("_refs",)

    def __init__(self) -> None:
        self._refs: dict[Hashable, Ref] = {}
        """By exact name."""

    def __len__(self) -> int:
        return len(self._refs)

    def __contains__(self, name: Hashable) -> bool:
        return exact(name) in self._refs

    def register(self, name: Hashable, ref: Ref) -> None:
        """Give a living actor a name; it may have several. A `Via` is entered in its own registry.

        Raises `AlreadyRegistered`, `NoProc` for an actor that has ended, `ValueError` for the name None.
        """
        if isinstance(name, Via):
            name.register(ref)
            return
        if name is None:
            raise ValueError("None is not a name: it means that an actor has none")
        ref.process.require_loop()
        if not ref.alive:
            raise NoProc(str(ref))
        key = exact(name)
        holder = self._refs.setdefault(key, ref)
        if holder is not ref:
            raise AlreadyRegistered(name, holder)
        process = ref.process
        if process.names is None:
            process.names = {}
        process.names[key] = self

    def claim(self, name: Hashable, ref: Ref) -> None:
        """`register` for an actor that is being started. Raises `AlreadyStarted`; `StartError`: no such registry."""
        try:
            self.register(name, ref)
        except AlreadyRegistered as error:
            raise AlreadyStarted(name, error.ref) from None
        except NoProc as error:
            raise StartError(f"{name!r}", error) from None

    def unregister(self, name: Hashable) -> None:
        """Take the name away from the actor that has it, if any."""
        key = exact(name)
        ref = self._refs.get(key)
        if ref is not None:
            ref.process.require_loop()
            del self._refs[key]
            if ref.process.names is not None:
                ref.process.names.pop(key, None)

    def vacate(self, key: Hashable, ref: Ref) -> None:
        """`ref` has ended: forget that it had the name that is kept under `key`. For the runtime."""
        if self._refs.get(key) is ref:
            del self._refs[key]

    def whereis(self, name: Hashable) -> Ref | None:
        """Who has the name now, if there is one."""
        if type(name) is not str:
            if isinstance(name, Named):
                return name.ref
            name = exact(name)
        return self._refs.get(name)

    def names(self) -> list[Hashable]:
        """All names, in the order in which they were registered."""
        return list(map(plain, self._refs))

    def named(self, name: Hashable) -> Named:
        """A ref by name; no actor needs to have the name yet."""
        return name if isinstance(name, Named) else Named(self, name)


class NameDirectory(Protocol):
    """Where a name can be looked up."""

    def whereis(self, name: Hashable, /) -> Ref | None:
        """Who has the name now, if there is one."""


class Named(Handle):
    """The actor that has the name at the moment of use. None there: a call raises `NoProc`, all else does nothing.

    It has the verbs of a `Ref`, and goes wherever one goes: to `monitor`, `link`, timers, stages and supervisors. Two
    are equal when they mean the same name in the same table.
    """

    __slots__ = ("_registry", "name")

    def __init__(self, registry: NameDirectory, name: Hashable) -> None:
        self._registry = registry
        self.name = name

    def __repr__(self) -> str:
        return f"<the actor named {self.name!r}>"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Named)
            and type(self) is type(other)
            and self._registry == other._registry
            and exact(self.name) == exact(other.name)
        )

    def __hash__(self) -> int:
        return hash((self._registry, self.name))

    @property
    def ref(self) -> Ref | None:
        """Who has the name now, if there is one."""
        return self._registry.whereis(self.name)

    @property
    def alive(self) -> bool:
        """Whether an actor has the name now."""
        return self.ref is not None

    @overload
    async def call(self, request: Request[ReplyT], timeout_s: float | None = DEFAULT_TIMEOUT_S) -> ReplyT: ...

    @overload
    async def call(self, request: Any, timeout_s: float | None = DEFAULT_TIMEOUT_S) -> Any: ...

    async def call(self, request: Any, timeout_s: float | None = DEFAULT_TIMEOUT_S) -> Any:
        """`Ref.call`, or `NoProc`."""
        ref = self.ref
        if ref is None:
            await trio.lowlevel.checkpoint()
            raise NoProc(str(self))
        return await ref.call(request, timeout_s)

    def cast(self, message: Any) -> None:
        """`Ref.cast`, or nothing."""
        ref = self.ref
        if ref is not None:
            ref.cast(message)

    def send(self, message: Any) -> None:
        """`Ref.send`, or nothing."""
        ref = self.ref
        if ref is not None:
            ref.send(message)

    async def stop(self, reason: Reason = NORMAL, timeout_s: float | None = None) -> None:
        """`Ref.stop`, or `NoProc`. Once that life has ended, the next one may have the name."""
        ref = self.ref
        if ref is None:
            await trio.lowlevel.checkpoint()
            raise NoProc(str(self))
        await ref.stop(reason, timeout_s)

    def exit(self, reason: Reason, sender: Ref | None = None) -> None:
        """`Ref.exit`, or nothing."""
        ref = self.ref
        if ref is not None:
            ref.exit(reason, sender)

    def kill(self) -> None:
        """`Ref.kill`, or nothing."""
        ref = self.ref
        if ref is not None:
            ref.kill()

    def link(self, other: Ref | Named) -> None:
        """`Ref.link`, or `NoProc`."""
        ref = self.ref
        if ref is None:
            raise NoProc(str(self))
        ref.link(other)

    def unlink(self, other: Ref | Named) -> None:
        """`Ref.unlink`, or nothing."""
        ref = self.ref
        if ref is not None:
            ref.unlink(other)

    async def exited(self) -> Reason:
        """`Ref.exited`, for the life that has the name now; `"noproc"` at once if there is none."""
        ref = self.ref
        if ref is None:
            await trio.lowlevel.checkpoint()
            return NOPROC
        return await ref.exited()


class ViaDirectory(NameDirectory, Protocol):
    """A registry of unique keys, as `Via` needs it."""

    def register(self, key: Hashable, ref: Ref, value: Any = None) -> None:
        """Enter `ref` under `key`. Raises `AlreadyRegistered`, `NoProc`."""


@final
class Via(Named):
    """A key of one registry, as a name to start an actor with and as an address; made by `Registry.via`.

    Two of them are equal when they mean the same key of the same registry, whatever their values.
    """

    __slots__ = ("_via", "value")

    def __init__(self, registry: ViaDirectory, key: Hashable, value: Any) -> None:
        super().__init__(registry, key)
        self._via = registry
        self.value = value

    def __repr__(self) -> str:
        return f"via({self._via!r}, {self.name!r})"

    def register(self, ref: Ref) -> None:
        """Enter `ref` under this key, with this value. Raises `AlreadyRegistered`, `NoProc`."""
        self._via.register(self.name, ref, self.value)
