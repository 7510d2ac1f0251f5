"""Waiting for the events of a tree: nothing is missed, nothing comes twice, and who stops waiting loses nothing."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from batonpass.tree.data.errors import WatcherCut
from batonpass.tree.member.watching import Watch
from batonpass.tree.store.pattern import parse_pattern
from batonpass.tree.store.store import Store
from batonpass.tree.store.watch import Event, History


def watched(**limits: int) -> tuple[Store, History, Watch]:
    store, history = Store(), History()
    history.attach(store)
    return store, history, Watch(history.watch(parse_pattern("jobs/*"), **limits))


async def test_events_come_one_by_one_in_the_order_of_the_log(nursery: trio.Nursery) -> None:
    store, _, watch = watched()
    got: list[Event] = []

    async def follow() -> None:
        async for event in watch:
            got.append(event)

    nursery.start_soon(follow)
    await wait_all_tasks_blocked()
    with store.transaction() as transaction:
        transaction.put(("jobs", "b"), 1)
        transaction.put(("jobs", "a"), 2)
    store.put(("other",), 3)
    await wait_all_tasks_blocked()
    store.delete(("jobs", "b"))
    await wait_all_tasks_blocked()
    assert [(e.revision, e.kind, e.path[-1]) for e in got] == [
        (1, "created", "a"),
        (1, "created", "b"),
        (3, "deleted", "b"),
    ]
    watch.close()
    await wait_all_tasks_blocked()
    assert not nursery.child_tasks


async def test_a_cancelled_wait_takes_nothing_with_it() -> None:
    store, _, watch = watched()
    with trio.CancelScope() as scope:
        store.put(("jobs", "a"), 1)
        scope.cancel()
        await watch.take()
    assert scope.cancelled_caught
    assert len(await watch.take()) == 1


async def test_a_slow_watcher_is_cut_and_told_where_to_go_on() -> None:
    store, history, watch = watched(max_pending_events=2)
    store.put(("jobs", "a"), 0)
    assert len(await watch.take()) == 1
    for number in range(3):
        store.put(("jobs", "a"), number + 1)
    with pytest.raises(WatcherCut) as cut:
        await watch.take()
    assert cut.value.last_revision == watch.last_revision == 1
    async with Watch(history.watch(parse_pattern("jobs/*"), cut.value.last_revision)) as again:
        assert [event.data for event in await again.take()] == [1, 2, 3]


async def test_who_waits_when_all_are_cut_is_told(nursery: trio.Nursery) -> None:
    _, history, watch = watched()

    async def stop() -> None:
        await wait_all_tasks_blocked()
        history.cut_all("the member stopped")

    nursery.start_soon(stop)
    with pytest.raises(WatcherCut, match="the member stopped"):
        await watch.take()
