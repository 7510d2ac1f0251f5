"""Watching: ordered, complete, resumable; what is too old is compacted, and who is too slow is cut."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.tree.data.data import encode
from batonpass.tree.data.errors import BadPath, BadPattern, Compacted, WatcherCut
from batonpass.tree.data.path import Path
from batonpass.tree.data.payload import StoredProcedure
from batonpass.tree.store.changes import Kind
from batonpass.tree.store.conditions import AllOf, AnyOf, IfDataLike, IfDataMatches, IfNameMatches
from batonpass.tree.store.pattern import ANY_DEPTH, ANY_NAME
from batonpass.tree.store.store import Store
from batonpass.tree.store.watch import Event, History, Watcher, WatcherState
from tests.tree.strategies import close_paths, few_values


def watched_store(**limits: int) -> tuple[Store, History]:
    store, history = Store(), History(**limits)
    history.attach(store)
    return store, history


def told(watcher: Watcher) -> list[tuple[int, str, Path, Any]]:
    return [(event.revision, str(event.kind), event.path, event.data) for event in watcher.take()]


def test_what_happens_to_a_node_is_told_in_order() -> None:
    store, history = watched_store()
    watcher = history.watch(("a", ANY_NAME))
    store.put(("a", "b"), 1)
    store.put(("a", "b"), 2)
    store.put(("elsewhere",), 3)
    store.put(("a", "b"), 2)
    store.delete(("a", "b"))
    assert told(watcher) == [
        (1, "created", ("a", "b"), 1),
        (2, "updated", ("a", "b"), 2),
        (4, "deleted", ("a", "b"), None),
    ]
    assert told(watcher) == []
    assert watcher.last_revision == 4


def test_parents_made_and_reclaimed_on_the_way_are_told_too() -> None:
    store, history = watched_store()
    watcher = history.watch((ANY_DEPTH,))
    store.put(("a", "b"), 1)
    store.delete(("a", "b"))
    assert [(revision, kind, path) for revision, kind, path, _ in told(watcher)] == [
        (1, "created", ("a",)),
        (1, "created", ("a", "b")),
        (2, "deleted", ("a",)),
        (2, "deleted", ("a", "b")),
    ]


def test_an_event_tells_before_and_after() -> None:
    store, history = watched_store()
    watcher = history.watch(("a",))
    store.put(("a",), {"hp": 1})
    store.put(("a",), {"hp": 2})
    store.put(("a",), StoredProcedure("p"))
    store.delete(("a",))
    events = watcher.take()
    assert [event.to_data(previous=True) for event in events] == [
        {"revision": 1, "kind": "created", "path": ["a"], "payload_version": 1, "data": {"hp": 1}},
        {
            "revision": 2,
            "kind": "updated",
            "path": ["a"],
            "payload_version": 2,
            "data": {"hp": 2},
            "previous": {"hp": 1},
        },
        {
            "revision": 3,
            "kind": "updated",
            "path": ["a"],
            "payload_version": 3,
            "procedure": "p",
            "previous": {"hp": 2},
        },
        {"revision": 4, "kind": "deleted", "path": ["a"], "payload_version": 3},
    ]
    assert (events[1].data, events[1].previous, events[0].previous) == ({"hp": 2}, {"hp": 1}, None)
    assert encode([event.to_data() for event in events])


def test_a_transaction_is_one_revision_with_net_effects() -> None:
    store, history = watched_store()
    watcher = history.watch((ANY_DEPTH,))
    with store.transaction() as transaction:
        transaction.put(("a",), 1)
        transaction.put(("a",), 2)
        transaction.put(("gone",), 1)
        transaction.delete(("gone",))
    assert told(watcher) == [(1, "created", ("a",), 2)]


def test_conditions_on_the_target_are_judged_after_the_change() -> None:
    store, history = watched_store()
    watcher = history.watch((AllOf((ANY_NAME, IfDataMatches("x"))),))
    store.put(("a",), "y")
    store.put(("a",), "x")
    store.delete(("a",))
    assert [kind for _, kind, _, _ in told(watcher)] == ["updated", "deleted"]


def test_resuming_gives_what_was_missed_and_nothing_twice() -> None:
    store, history = watched_store()
    for value in range(5):
        store.put(("a",), value)
    assert [revision for revision, *_ in told(history.watch(("a",), since_revision=2))] == [3, 4, 5]
    resumed = history.watch(("a",), since_revision=5)
    store.put(("a",), "new")
    assert [revision for revision, *_ in told(resumed)] == [6]


def test_a_revision_that_is_still_to_come_is_waited_for() -> None:
    store, history = watched_store()
    watcher = history.watch(("a",), since_revision=2)
    for value in range(4):
        store.put(("a",), value)
    assert [revision for revision, *_ in told(watcher)] == [3, 4]
    assert watcher.last_revision == 4


@given(
    st.lists(st.tuples(close_paths.filter(bool), few_values | st.just("delete")), max_size=40),
    st.lists(st.integers(0, 40), max_size=4),
)
def test_a_watcher_that_comes_back_again_and_again_misses_nothing(
    operations: list[tuple[Path, Any]], breaks: list[int]
) -> None:
    store, history = watched_store()
    steady = history.watch((ANY_DEPTH,))
    coming_and_going = history.watch((ANY_DEPTH,))
    seen: list[Event] = []
    for number, (path, value) in enumerate(operations):
        if value == "delete":
            store.delete(path)
        else:
            store.put(path, value)
        if number in breaks:
            seen += coming_and_going.take(max_events=2)
            coming_and_going.close()
            coming_and_going = history.watch((ANY_DEPTH,), coming_and_going.last_revision)
    assert seen + coming_and_going.take(10_000) == steady.take(10_000)


def test_whole_commits_are_taken() -> None:
    store, history = watched_store()
    watcher = history.watch((ANY_DEPTH,))
    store.put(("a", "b", "c"), 1)
    store.put(("d",), 1)
    assert len(watcher.take(max_events=1)) == 3
    assert (watcher.last_revision, watcher.pending) == (1, 1)


def test_what_is_older_than_the_window_is_compacted() -> None:
    store, history = watched_store(max_events=3)
    for value in range(10):
        store.put(("a",), value)
    with pytest.raises(Compacted) as compacted:
        history.watch(("a",), since_revision=6)
    assert (compacted.value.asked, compacted.value.oldest) == (6, 7)
    assert [revision for revision, *_ in told(history.watch(("a",), since_revision=7))] == [8, 9, 10]


def test_a_commit_that_is_only_partly_kept_is_not_resumed_before() -> None:
    store, history = watched_store(max_events=2)
    store.put(("a", "b", "c"), 1)
    assert history.oldest == 1
    with pytest.raises(Compacted):
        history.watch((ANY_DEPTH,), since_revision=0)


def test_the_window_is_bounded_in_bytes_too() -> None:
    store, history = watched_store(max_bytes=3000)
    for value in range(10):
        store.put(("a",), f"{value}" * 500)
    assert 5 < history.oldest < 10


def test_a_history_that_begins_late_knows_nothing_of_before() -> None:
    store = Store()
    store.put(("a",), 1)
    history = History()
    history.attach(store)
    with pytest.raises(Compacted):
        history.watch(("a",), since_revision=0)
    assert history.watch(("a",), since_revision=1).state is WatcherState.OPEN


@pytest.mark.parametrize("limits", [{"max_pending_events": 3}, {"max_pending_bytes": 700}])
def test_a_slow_watcher_is_cut_and_can_resume(limits: dict[str, int]) -> None:
    store, history = watched_store()
    slow, quick = history.watch(("a",), **limits), history.watch(("a",))
    store.put(("a",), 0)
    assert len(slow.take()) == 1
    for value in range(1, 6):
        store.put(("a",), value)
    assert (slow.state, slow.pending, history.watcher_count) == (WatcherState.CUT, 0, 1)
    with pytest.raises(WatcherCut) as cut:
        slow.take()
    assert cut.value.last_revision == 1
    resumed = history.watch(("a",), cut.value.last_revision, **limits)
    assert [event.data for event in resumed.take()] == [1, 2, 3, 4, 5]
    assert len(quick.take()) == 6


def test_what_waits_at_the_start_is_not_slowness() -> None:
    store, history = watched_store()
    for value in range(100):
        store.put(("a",), value)
    watcher = history.watch(("a",), since_revision=0, max_pending_events=2)
    store.put(("a",), "one more")
    assert history.watcher_count == 1
    assert len(watcher.take(200)) == 101
    for value in range(3):
        store.put(("a",), value)
    assert watcher.state is WatcherState.CUT


def test_a_snapshot_cuts_everybody() -> None:
    store, history = watched_store()
    store.put(("a",), 1)
    watcher = history.watch(("a",))
    store.restore(store.to_data(), revision=50)
    with pytest.raises(WatcherCut, match="snapshot"):
        watcher.take()
    with pytest.raises(Compacted):
        history.watch(("a",), since_revision=1)
    assert history.revision == history.oldest == 50


def test_a_closed_watcher_is_told_nothing() -> None:
    store, history = watched_store()
    watcher = history.watch(("a",))
    watcher.close()
    watcher.close()
    store.put(("a",), 1)
    assert watcher.take() == []
    assert history.watcher_count == 0
    assert watcher.state is WatcherState.CLOSED


def test_watchers_are_woken_once_per_commit_and_when_cut() -> None:
    store, history = watched_store()
    watcher = history.watch((ANY_DEPTH,), max_pending_events=4)
    woken: list[WatcherState] = []
    watcher.on_events = lambda: woken.append(watcher.state)
    store.put(("a", "b", "c"), 1)
    assert woken == [WatcherState.OPEN]
    store.put(("d", "e", "f"), 1)
    assert woken == [WatcherState.OPEN, WatcherState.CUT]


def test_a_watcher_that_closes_another_while_woken_harms_nobody() -> None:
    store, history = watched_store()
    first, second = history.watch(("a",)), history.watch(("a",))
    first.on_events = second.close
    store.put(("a",), 1)
    assert (len(first.take()), second.state) == (1, WatcherState.CLOSED)


def test_children_alone_are_no_event() -> None:
    store, history = watched_store()
    watcher = history.watch(("a",))
    store.put(("a",), 1)
    store.put(("a", "b"), 1)
    assert [event.kind for event in watcher.take()] == [Kind.CREATED]


def test_a_bad_pattern_is_refused() -> None:
    _, history = watched_store()
    with pytest.raises(BadPath):
        history.watch(("",))


def test_a_commit_does_not_look_at_watchers_of_other_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    store, history = watched_store()
    for number in range(1000):
        history.watch((f"part{number}", ANY_DEPTH))
    asked: list[str] = []

    def holds(_condition: IfNameMatches, _node: Any, name: str = "") -> bool:
        asked.append(name)
        return True

    monkeypatch.setattr(IfNameMatches, "holds", holds)
    store.put(("part7", "x"), 1)
    assert len(asked) == 1


def test_an_observer_that_crashes_does_not_undo_the_commit(caplog: pytest.LogCaptureFixture) -> None:
    store = Store()

    def crash(_commit: Any) -> None:
        raise ZeroDivisionError

    store.on_commit = crash
    store.put(("a",), 1)
    assert (store.get(("a",)), store.revision) == (1, 1)
    assert "observer" in caplog.text


def test_a_pattern_for_events_has_few_parts() -> None:
    history = History()
    expression = IfNameMatches(regex="a.b")
    for pattern in (
        ("a", ANY_DEPTH, expression),
        ("a", AnyOf([expression, "b", "c"])),
        ("a", AnyOf([str(number) for number in range(7)])),
        ("a", IfDataLike({"x" * 100: {"$any": True}})),
    ):
        history.watch(pattern).close()
    for refused in (
        (AnyOf([expression] * 2),),
        (expression, ANY_NAME, expression),
        ("a", AnyOf([str(number) for number in range(8)])),
        ("a", IfDataLike({"x" * 1000: {"$any": True}})),
    ):
        with pytest.raises(BadPattern, match="at most 8 parts"):
            history.watch(refused)
    assert history.watcher_count == 0
