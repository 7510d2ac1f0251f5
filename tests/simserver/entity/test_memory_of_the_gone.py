"""What a server keeps of entities that are not here any more: little of each, and of a bounded number."""

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import trio

from batonpass.authority.fence import Fence
from batonpass.authority.machines.target import Incoming, Offer, Permission
from batonpass.authority.model.ownership import Ownership
from batonpass.authority.trust.certificate_reader import MAX_KNOWN
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.transfer import InputItem
from batonpass.crypto.bounded_tables import LruTable
from batonpass.simserver.durability.ledger import MAX_LOG_BYTES, Ledger
from batonpass.simserver.entity.custody_log import MAX_STINTS, PACKED_STINTS, CustodyLog, Stint
from batonpass.simserver.entity.table import MAX_TOMBSTONES
from batonpass.simserver.transfer.source.order_history import MAX_BEGUN, MAX_REMEMBERED, ReleasedEpochs, SeenOrders
from batonpass.simserver.transfer.target.arrivals import MAX_MACHINES
from batonpass.simserver.transfer.target.offers import MAX_CONTEXTS, Context, remember

ENTITIES = 2000
# Of docs/reference/simulation-servers.md: the machine of its arrival, where it went, and the row that says so on
# disk.
GONE_BYTES = 1200
STINT_BYTES = 750
PACKED_STINT_BYTES = 180
CONTEXT_BYTES = 1500
# As `MAX_KNOWN` says.
CERTIFICATE_BYTES = 3000
ORDER_BYTES = 200
RELEASED_BYTES = 350
HASH = "0" * 60


@contextmanager
def measured() -> Iterator[Callable[[], int]]:
    """How many bytes Python has taken since, and not given back."""
    gc.collect()
    tracemalloc.start()
    begin = tracemalloc.get_traced_memory()[0]

    def taken() -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - begin

    try:
        yield taken
    finally:
        tracemalloc.stop()


def arrived(number: int) -> Incoming:
    """The machine of an entity that came, and went on since."""
    machine = Incoming()
    transfer, state_hash = f"tr-{number:08d}", f"{HASH}{number:04d}"
    machine.offered(Offer(transfer, Fence(1, 0), state_hash, "ball", 3, bytes(500), 0, "alpha.s1"))
    machine.permitted(Permission(transfer, Fence(2, 0), state_hash, "alpha.s1"))
    machine.fence_raised(Fence(3, 0))
    return machine


def test_a_machine_that_waits_for_nothing_is_small() -> None:
    with measured() as taken:
        machines: LruTable[str, Incoming] = LruTable(MAX_MACHINES)
        for number in range(ENTITIES):
            machines[f"alpha.entity-{number}"] = arrived(number)
        assert taken() / ENTITIES < 600
    assert all(machine.staged == 0 for machine in machines.values())


async def live_and_leave(ledger: Ledger, numbers: range) -> None:
    state: dict[str, Any] = {"fence": Fence(1, 0), "tick": 5, "state": bytes(150)}
    names = [f"alpha.entity-{number}" for number in numbers]
    for name in names:
        ledger.lives(name, "ball", Fence(1, 0))
        ledger.checkpoint(name, **state)
    await ledger.flush()
    for name in names:
        ledger.handed_over(name, **state)
        ledger.left(name, "alpha.s2", Fence(2, 0))
    await ledger.flush()
    for name in names:
        ledger.let_go(name)
    await ledger.flush()


async def test_the_row_of_an_entity_that_left_is_small_and_nothing_is_kept_for_watches(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    ledger = Ledger("alpha.s1", tmp_path / "ledger")
    await nursery.start(ledger.serve)
    await live_and_leave(ledger, range(100))
    with measured() as taken:
        for begin in range(100, ENTITIES + 100, 100):
            await live_and_leave(ledger, range(begin, begin + 100))
        # The log goes with its next snapshot.
        assert taken() < MAX_LOG_BYTES // 2 + ENTITIES * 400
    assert len(list(ledger.moved())) == ENTITIES + 100
    assert ledger.replica.watch(("entities",))._watcher._history.oldest == ledger.replica.store.revision


def test_stints_of_lives_that_are_over_are_on_disk(tmp_path: Path) -> None:
    with measured() as taken:
        log = CustodyLog("alpha.s1", directory=tmp_path)
        for number in range(16 * PACKED_STINTS):
            begun_ns = 10**15 + number
            stint = Stint(
                f"alpha.entity-{number}", "alpha.s1", 300 + number, 0, 1000 + number, hash_of(number), begun_ns
            )
            stint.first_tick_ns, stint.last_tick_ns = begun_ns + 1, begun_ns + 2
            log.start(stint).ended(2000 + number, hash_of(-number), begun_ns + 3)
            log.over(stint)
        assert taken() < PACKED_STINTS * STINT_BYTES
    assert len(log.to_data()) == 16 * PACKED_STINTS
    on_disk = sum(packed.size_bytes for packed in log._packed)
    assert on_disk / (16 * PACKED_STINTS) < PACKED_STINT_BYTES
    assert MAX_STINTS * PACKED_STINT_BYTES < 12e6


def hash_of(number: int) -> str:
    return sha256(str(number).encode()).hexdigest()


def test_how_a_permission_came_is_small_once_it_was_used() -> None:
    ownership = Ownership("alpha.ada", 3)
    with measured() as taken:
        contexts: LruTable[Permission, Context] = LruTable(MAX_CONTEXTS)
        for number in range(ENTITIES):
            trace = Trace(f"tr-{number:08d}").leave("alpha.s1", "state", 10**15 + number).arrive("alpha.s2", 10**15)
            item = InputItem(source="alpha.ada", owner_rev=1, seq=number + 1, data=bytes(1000))
            chain = ("x" * 1000, "y" * 1000)
            context = Context(trace, True, [item], chain, ("alpha.s1", "alpha.s2"), Fence(1), ownership)
            context.used()
            permission = Permission(trace.transfer_id, Fence(2 + number), f"{HASH}{number:04d}", "alpha.s1")
            remember(contexts, permission, context)
        assert taken() / ENTITIES < CONTEXT_BYTES


def test_all_of_it_is_less_than_forty_megabytes() -> None:
    gone = max(MAX_TOMBSTONES, MAX_MACHINES) * GONE_BYTES
    contexts, known = MAX_CONTEXTS * CONTEXT_BYTES, MAX_KNOWN * CERTIFICATE_BYTES
    orders = MAX_BEGUN * ORDER_BYTES + MAX_REMEMBERED * RELEASED_BYTES
    assert gone + contexts + known + orders < 45e6


def test_orders_and_released_epochs_are_small() -> None:
    with measured() as taken:
        seen = SeenOrders()
        for number in range(ENTITIES):
            seen.begins(f"tr-{number:08d}", 3)
        assert taken() / ENTITIES < ORDER_BYTES
    with measured() as taken:
        released = ReleasedEpochs()
        for number in range(ENTITIES):
            released.note(f"alpha.entity-{number}", 1000 + number, "alpha.s2")
        assert taken() / ENTITIES < RELEASED_BYTES
