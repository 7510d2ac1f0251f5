"""What the log keeps of deleted entities, in the memory of each homeserver: little of each, and of a bounded number."""

from batonpass.authority.model.records import EntityRecord
from batonpass.authority.procedures.delete import FAREWELLS, MAX_TOMBSTONES, bury
from batonpass.tree.store.store import Store
from tests.simserver.entity.test_memory_of_the_gone import measured

ENTITIES = 150
# Of docs/reference/operations.md: its row, and its place in the order in which they are forgotten.
TOMBSTONE_BYTES = 1000


def deleted(number: int) -> EntityRecord:
    """One of which everybody has heard that it was deleted."""
    entity = f"alpha.entity-{number}"
    return EntityRecord(id=entity, kind="ball", master="alpha.ada", owner="alpha.ada", authority="alpha.s1", epoch=2)


def test_a_tombstone_is_small_and_nothing_else_is_left() -> None:
    store = Store()
    with measured() as taken:
        for number in range(ENTITIES):
            record = deleted(number)
            bury(store, record)
            store.delete((FAREWELLS, record.id))
        assert taken() / ENTITIES < TOMBSTONE_BYTES
    assert store.count_children(("tombstones",)) == store.count_children(("tombstone_order",)) == ENTITIES
    assert {name for name in store.children(()) if store.count_children((name,))} == {"tombstones", "tombstone_order"}


def test_all_of_them_are_a_hundred_megabytes_at_most() -> None:
    assert MAX_TOMBSTONES * TOMBSTONE_BYTES <= 100 * 10**6
