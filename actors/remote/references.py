"""References across nodes: what travels in place of a ref, a name or a caller, and what stands here for one that came.

What this node has given away it recognises by the seal; what comes home is the local thing itself again. For actors of
other nodes there is one `RemoteProcess` each, as long as a ref to it is held, so refs to one actor are one ref.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final
from weakref import WeakValueDictionary

from batonpass.actors.core.named import Named
from batonpass.actors.core.ref import From, Ref
from batonpass.actors.remote.codec import WireCaller, WireNamed, WireRef
from batonpass.actors.remote.errors import Unsendable
from batonpass.actors.remote.proxies import HandedCaller, RemoteCaller, RemoteNamed, RemoteProcess
from batonpass.actors.remote.settings import MAX_HANDED_CALLERS, MAX_NAME_BYTES, MAX_PUBLISHED

if TYPE_CHECKING:
    from batonpass.actors.core.process import Process
    from batonpass.actors.core.system import System
    from batonpass.actors.remote.codec import Wire
    from batonpass.actors.remote.frames import Target
    from batonpass.actors.remote.proxies import NodeRoute
    from batonpass.actors.remote.seals import Seals

_PURGE_ABOVE: Final = 64


@final
class NodeReferences:
    """See the head of the module: the references of one node in one life, `creation`."""

    types = (Ref, Named, RemoteNamed, From, RemoteCaller, HandedCaller)

    def __init__(self, system: System, node: str, creation: int, seals: Seals) -> None:
        self.node = node
        self.creation = creation
        self.route: NodeRoute
        """Given before the first proxy is made."""
        self.refused = 0
        """Requests and references for an actor that is not there or was never given away."""
        self._system = system
        self._seals = seals
        self._published: dict[str, Ref | Named] = {}
        self._proxies: WeakValueDictionary[tuple[str, int, Target], RemoteProcess] = WeakValueDictionary()
        self._callers: dict[int, From] = {}
        self._last_caller = 0
        self._purged = 0

    # What this node shows

    def publish(self, name: str, target: Ref | Named) -> None:
        """Let every peer reach `target` by `name`. Raises `ValueError` for a name that is taken or no name."""
        if not 0 < len(name.encode()) <= MAX_NAME_BYTES:
            raise ValueError(f"a published name is a text of 1 to {MAX_NAME_BYTES} bytes, not {name!r}")
        if name in self._published:
            raise ValueError(f"{name!r} is published already; unpublish it first")
        if len(self._published) >= MAX_PUBLISHED:
            raise ValueError(f"{MAX_PUBLISHED} names are as many as a node publishes")
        self._published[name] = target

    def unpublish(self, name: str) -> None:
        """Take it back, if it is there. Refs that peers have got by it keep working."""
        self._published.pop(name, None)

    @property
    def published(self) -> list[str]:
        """The published names."""
        return list(self._published)

    def whereis(self, name: str) -> Ref | None:
        """Who has a published name now."""
        target = self._published.get(name)
        ref = target.ref if isinstance(target, Named) else target
        return ref if ref is not None and ref.alive else None

    def find(self, target: Target) -> Process | None:
        """Which actor a request of a peer means, if it may reach one. Else None, counted."""
        if isinstance(target, str):
            ref = self.whereis(target)
            process = None if ref is None else ref.process
        else:
            pid, seal = target
            process = self._system.process(pid)
            if process is not None and self._seals.of_actor(pid) != seal:
                process = None
        if process is None:
            self.refused += 1
        return process

    def take_caller(self, number: int, seal: int) -> From | None:
        """The caller that was handed on under this number, if it still waits."""
        caller = self._callers.get(number)
        if caller is None or self._seals.of_caller(number) != seal:
            return None
        return self._callers.pop(number)

    # Those of others

    def proxy(self, node: str, creation: int, target: Target) -> RemoteProcess:
        """What stands for an actor, or (creation 0) a name, of another node."""
        key = (node, creation, target)
        process = self._proxies.get(key)
        if process is None:
            process = self._proxies[key] = RemoteProcess(self._system, self.route, node, creation, target)
            if node == self.node:
                process.bury()
        return process

    def proxies_of(self, node: str) -> list[RemoteProcess]:
        """All that stand for an actor on that node."""
        return [process for process in self._proxies.values() if process.node == node]

    @property
    def proxy_count(self) -> int:
        """How many of other nodes' actors and names are held here."""
        return len(self._proxies)

    @property
    def handed_callers(self) -> int:
        """How many waiting callers of this node were handed on, and have not been answered."""
        self._purge_callers()
        return len(self._callers)

    # For the codec

    def describe(self, reference: Any) -> Wire:
        """What travels. Raises `Unsendable` for a local name that is no text, and for one caller too many."""
        if isinstance(reference, Ref):
            return self._describe_process(reference.process)
        if isinstance(reference, RemoteNamed):
            return WireNamed(reference.node, str(reference.name))
        if isinstance(reference, Named):
            if not isinstance(reference.name, str) or len(reference.name.encode()) > MAX_NAME_BYTES:
                raise Unsendable(f"{reference!r}: only names that are texts travel, up to {MAX_NAME_BYTES} bytes")
            return WireNamed(self.node, reference.name)
        if isinstance(reference, HandedCaller):
            return reference.wire
        return self._describe_caller(reference)

    def _describe_process(self, process: Process) -> Wire:
        if not isinstance(process, RemoteProcess):
            return WireRef(self.node, self.creation, process.pid, self._seals.of_actor(process.pid))
        if isinstance(process.target, str):
            return WireNamed(process.node, process.target)
        return WireRef(process.node, process.creation, *process.target)

    def _describe_caller(self, caller: From) -> WireCaller:
        if len(self._callers) >= max(_PURGE_ABOVE, self._purged * 2):
            self._purge_callers()
        if len(self._callers) >= MAX_HANDED_CALLERS:
            raise Unsendable(f"{MAX_HANDED_CALLERS} callers are as many as can be handed on to other nodes at a time")
        self._last_caller += 1
        self._callers[self._last_caller] = caller
        return WireCaller(self.node, self.creation, self._last_caller, self._seals.of_caller(self._last_caller))

    def _purge_callers(self) -> None:
        self._callers = {number: caller for number, caller in self._callers.items() if caller.waiting}
        self._purged = len(self._callers)

    def resolve(self, wire: Wire) -> Any:
        """What stands here for it. What is unknown, forged or of a former life is a dead actor."""
        if isinstance(wire, WireNamed):
            return self._resolve_name(wire)
        if isinstance(wire, WireRef):
            return self._resolve_ref(wire)
        if wire.node == self.node and wire.creation == self.creation:
            caller = self._callers.get(wire.number)
            if caller is not None and self._seals.of_caller(wire.number) == wire.seal:
                return caller
        return HandedCaller(self.proxy(wire.node, wire.creation, (0, 0)), wire)

    def _resolve_name(self, wire: WireNamed) -> Ref | Named:
        if wire.node == self.node:
            # Only what is published: or a peer could have an actor here send to whatever it likes.
            target = self._published.get(wire.name)
            if target is not None:
                return target
        return RemoteNamed(self.proxy(wire.node, 0, wire.name))

    def _resolve_ref(self, wire: WireRef) -> Ref:
        if wire.node == self.node and wire.creation == self.creation:
            process = self._system.process(wire.pid)
            if process is not None and self._seals.of_actor(wire.pid) == wire.seal:
                return process.ref
        return self.proxy(wire.node, wire.creation, (wire.pid, wire.seal)).ref
