"""PySyncObj as it comes, in the same simulation: so that everybody sees that the simulation can fail.

The package's classes are not changed: its Raft, its journal, its snapshots, its pickles. In their places are only what
stands for the machine: the clock, the dice, the files under the journal, and a transport, which the package lets
anybody replace. Two things are kinder than a real machine: a crash never loses what was written, because the package
never syncs and would lose everything; and a write to the memory map is never torn.

It has no commands that may be submitted twice and no reads of its own that are not stale, so clients here do not retry
writes, and read through the log.

Not to be imported beside `tree`, which replaces parts of the package's modules for good: a worker process runs the one
or the other. This module is the one exception to the rule that only `tree.raft.raft` imports the package.
"""

import logging
import random
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

import pysyncobj.journal
import pysyncobj.pickle
import pysyncobj.serializer
import pysyncobj.syncobj
from pysyncobj import FAIL_REASON, SyncObj, SyncObjConf, replicated
from pysyncobj.node import Node
from pysyncobj.transport import Transport

from batonpass.scenarios.simulation.calls import Call
from batonpass.scenarios.simulation.cluster import Cluster, Crashed, Member, Seats, Wanted
from batonpass.scenarios.simulation.network import Frame
from batonpass.scenarios.simulation.registers import (
    ABSENT,
    Action,
    Append,
    CompareAndSwap,
    Get,
    Put,
    Value,
    apply_action,
)

if "batonpass.tree.raft.raft" in sys.modules:
    raise ImportError(
        "tree.raft.raft has replaced parts of PySyncObj in this process; run the stock package in another one"
    )

__all__ = ["Stock"]

_TICK_S: Final = 0.05  # SyncObjConf.autoTickPeriod: how long the package's own thread waits when nothing happens
_PICKLE: Final = pysyncobj.pickle


class Stock:
    """The package as it comes, with journal and dump files."""

    name = "stock"
    retries = False
    stands_echoes = False
    changes_members = False

    def __init__(self) -> None:
        self._directory: Final = Path(tempfile.mkdtemp(prefix="batonpass-stock-"))
        self._disks: Final[dict[str, _Disk]] = {}
        pysyncobj.journal.ResizableFile = self._file
        pysyncobj.journal.MetaStorer = self._meta
        pysyncobj.serializer.atomicReplace = self._replace
        logging.disable(logging.CRITICAL)

    def member(self, name: str, cluster: Cluster) -> "_StockMember":
        """See `System`."""
        pysyncobj.syncobj.monotonicTime = cluster.clock_s
        pysyncobj.syncobj.random = cluster.dice
        (self._directory / name).mkdir()
        self._disks[name] = _Disk(cluster.dice)
        return _StockMember(name, cluster, self._directory / name, self._disks[name])

    def judge(self, cluster: Cluster) -> None:
        """All have applied the same entries, so all must have the same values."""
        states = {name: cast("_StockMember", cluster.member(name)).values() for name in cluster.names}
        for name, state in states.items():
            if state != states[cluster.names[0]]:
                cluster.oracle.violated("states-differ", f"{name} and {cluster.names[0]} hold different values")

    def close(self) -> None:
        """See `System`."""
        shutil.rmtree(self._directory)
        logging.disable(logging.NOTSET)

    # --- what stands for the machine ------------------------------------------------------------------------------

    def _disk_of(self, path: str) -> "_Disk":
        return self._disks[Path(path).parent.name]

    def _file(self, path: str, defaultContent: bytes = b"") -> "_File":  # noqa: N803  # PySyncObj's name
        return _File(self._disk_of(path), defaultContent)

    def _meta(self, path: str) -> "_Meta":
        return _Meta(self._disk_of(path))

    def _replace(self, old: str, new: str) -> None:
        with self._disk_of(new).operation():
            Path(old).replace(new)


class _Disk:
    """What a member's disk holds, and in which operation its process is to be interrupted."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self.journal: bytearray | None = None
        self.meta: dict[str, Any] = {}
        self.crashed = False
        self._crash_in: int | None = None

    def crash_within(self, operations: int) -> None:
        self._crash_in = self._dice.randint(1, operations)

    def restart(self) -> None:
        self.crashed, self._crash_in = False, None

    def operation(self) -> "_Operation":
        """Something that happens to the disk whole or not at all."""
        return _Operation(self)

    def count(self) -> None:
        if self.crashed:
            raise Crashed
        if self._crash_in is not None:
            self._crash_in -= 1
            if self._crash_in <= 0:
                self.crashed = True


class _Operation:
    """An interruption falls before it or after it."""

    def __init__(self, disk: _Disk) -> None:
        self._disk = disk

    def __enter__(self) -> None:
        self._disk.count()
        if self._disk.crashed and self._disk._dice.random() < 0.5:
            raise Crashed

    def __exit__(self, *_: object) -> None:
        if self._disk.crashed:
            raise Crashed


class _File:
    """`pysyncobj.journal.ResizableFile`, in memory: what was written survives the process, as in the page cache."""

    def __init__(self, disk: _Disk, default: bytes) -> None:
        self._disk = disk
        if disk.journal is None:
            disk.journal = bytearray(default)
        self._contents = disk.journal

    def write(self, offset: int, values: bytes) -> None:
        with self._disk.operation():
            end = offset + len(values)
            if len(self._contents) < end:
                self._contents.extend(bytes(end - len(self._contents)))
            self._contents[offset:end] = values

    def read(self, offset: int, size: int) -> bytes:
        return bytes(self._contents[offset : offset + size])

    def flush(self) -> None:
        """Nothing is lost anyway."""

    def _destroy(self) -> None:
        """Nothing to close."""


class _Meta:
    """`pysyncobj.journal.MetaStorer`, in memory; it replaces its file by a rename, so it is whole."""

    def __init__(self, disk: _Disk) -> None:
        self._disk = disk

    def getMeta(self) -> dict[str, Any]:  # noqa: N802  # PySyncObj's name
        return dict(self._disk.meta)

    def storeMeta(self, meta: dict[str, Any]) -> None:  # noqa: N802  # PySyncObj's name
        with self._disk.operation():
            self._disk.meta = dict(meta)


class _RankedNode(Node):  # type: ignore[misc]  # PySyncObj has no types
    """Hashed by rank: a set of nodes that are hashed by name iterates differently in every process."""

    def __hash__(self) -> int:
        return int(self.id[1:])


class _Outlet(Transport):  # type: ignore[misc]  # PySyncObj has no types
    """What it sends goes to the simulated network, pickled as in the package's own transport."""

    def __init__(self, name: str, cluster: Cluster) -> None:
        super().__init__(None, None, ())
        self._name = name
        self._cluster = cluster

    def send(self, node: Node, message: Any) -> bool:
        return self._cluster.network.send(self._name, node.id, _PICKLE.dumps(message))


class _Registers(SyncObj):  # type: ignore[misc]  # PySyncObj has no types
    """The keys and values, as a user of the package would write it."""

    def __init__(self, name: str, cluster: Cluster, conf: SyncObjConf) -> None:
        # What is there before `SyncObj.__init__` is not part of the replicated state.
        self.observer: Callable[[int, bytes], None] = lambda index, command: cluster.oracle.applied(
            name, index, command
        )
        self.crashed_disk: Callable[[], bool] = lambda: False
        others = [_RankedNode(other) for other in cluster.names if other != name]
        super().__init__(_RankedNode(name), others, conf, nodeClass=_RankedNode, transport=_Outlet(name, cluster))
        self.values: dict[str, Value] = {}

    @replicated  # type: ignore[untyped-decorator]  # PySyncObj has no types
    def act(self, kind: str, key: str, *operands: Value) -> Any:
        """Do something to a key."""
        if self.crashed_disk():
            raise Crashed
        self.observer(self.raftLastApplied + 1, repr((kind, key, operands)).encode())
        value, answer = apply_action(self.values.get(key), _ACTIONS[kind](*operands))
        self.values[key] = value
        return answer


_ACTIONS: Final[dict[str, Callable[..., Action]]] = {
    "put": Put,
    "get": Get,
    "cas": CompareAndSwap,
    "append": Append,
}


class _StockMember:
    """One member: its files, which remain, and a `SyncObj` while its process runs. See `Member`."""

    def __init__(self, name: str, cluster: Cluster, directory: Path, disk: _Disk) -> None:
        self._name: Final = name
        self._cluster: Final = cluster
        self._directory: Final = directory
        self._disk: Final = disk
        self._nodes: Final = {other: _RankedNode(other) for other in cluster.names}
        self._registers: _Registers | None = None
        self._waiting: set[Call] = set()
        self._ticks = 0
        self.failure: Exception | None = None

    def start(self) -> None:
        mix = self._cluster.mix
        conf = SyncObjConf(
            autoTick=False,
            journalFile=str(self._directory / "journal"),
            fullDumpFile=str(self._directory / "dump"),
            useFork=False,
            appendEntriesBatchSizeBytes=min(mix.batch_bytes, 1 << 16),
            logCompactionMinEntries=mix.compact_after_entries,
        )
        self._doing(lambda: self._begin(conf))

    def _begin(self, conf: SyncObjConf) -> None:
        try:
            self._registers = _Registers(self._name, self._cluster, conf)
            self._registers.crashed_disk = lambda: self._disk.crashed
        except Exception as error:
            self.failure = error
            return
        self._tick_later(0.0)

    def end(self, *, power_cut: bool) -> None:
        self._registers = None
        self._waiting.clear()
        self._disk.restart()

    def crash_within(self, operations: int) -> None:
        self._disk.crash_within(operations)

    def frames_arrived(self, sender: str, frames: list[Frame]) -> None:
        self._doing(lambda: self._receive(sender, frames))

    def _receive(self, sender: str, frames: list[Frame]) -> None:
        registers = self._running()
        for frame in frames:
            _as_its_thread(
                lambda frame=frame: registers._SyncObj__onMessageReceived(  # type: ignore[misc]  # a default binds the loop's variable
                    self._nodes[sender], _PICKLE.loads(frame)
                )
            )
        self._tick()

    def peer_connected(self, name: str) -> None:
        self._doing(lambda: self._running()._SyncObj__onNodeConnected(self._nodes[name]))

    def peer_lost(self, name: str) -> None:
        self._doing(lambda: self._running()._SyncObj__onNodeDisconnected(self._nodes[name]))

    def submit(self, call: Call) -> None:
        def done(answer: Any, error: int) -> None:
            if error == FAIL_REASON.SUCCESS and call in self._waiting:
                self._waiting.discard(call)
                self._cluster.answered(call, answer)

        self._waiting.add(call)
        kind, operands = _operands(call.action)
        self._doing(lambda: self._running().act(kind, call.key, *operands, callback=done))
        self._tick_later(0.0)

    def withdraw(self, call: Call) -> None:
        self._waiting.discard(call)

    def transfer(self, target: str) -> None:
        self._doing(lambda: self._running().transferLeadership(self._nodes[target]))

    def prepare_to_join(self, doors: list[str]) -> None:
        """The package's members are not changed here."""

    def change(self, wanted: Wanted) -> None:
        """See `prepare_to_join`."""

    def seats(self) -> Seats | None:
        return None

    def meets(self, other: Member) -> bool:
        return True

    def leads_in(self) -> int | None:
        registers = self._registers
        return int(registers._getTerm()) if registers is not None and registers._isLeader() else None

    def applied_index(self) -> int:
        return int(self._running().raftLastApplied)

    def snapshots(self) -> int:
        return 0

    def value(self, key: str) -> Value:
        return self._running().values.get(key, ABSENT)

    def values(self) -> dict[str, Value]:
        """All that is not absent."""
        return {key: value for key, value in self._running().values.items() if value is not ABSENT}

    def _running(self) -> _Registers:
        if self._registers is None:
            raise RuntimeError(f"{self._name} does not run")
        return self._registers

    def _doing(self, action: Callable[[], Any]) -> None:
        action()
        if self._disk.crashed:
            raise Crashed  # the package swallows everything that is raised in some places

    def _tick(self) -> None:
        _as_its_thread(lambda: self._running().doTick(0.0))
        self._tick_later(_TICK_S)

    def _tick_later(self, delay_s: float) -> None:
        self._ticks += 1
        number = self._ticks

        def tick() -> None:
            if number == self._ticks:
                self._doing(self._tick)

        self._cluster.in_process(self._name, tick, delay_s)


def _as_its_thread(action: Callable[[], Any]) -> None:
    """As `SyncObj._autoTickThread`: an error is logged, and life goes on."""
    try:
        action()
    except Exception:
        logging.getLogger(__name__).exception("failed _onTick in _autoTickThread")


def _operands(action: Action) -> tuple[str, tuple[Value, ...]]:
    match action:
        case Put(value):
            return "put", (value,)
        case Get():
            return "get", ()
        case CompareAndSwap(expected, value):
            return "cas", (expected, value)
        case Append(token):
            return "append", (token,)
