"""Any sequence of operations, in transactions or not, leaves the store and its twin alike."""

from contextlib import AbstractContextManager
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from batonpass.tree.data.data import decode, encode
from batonpass.tree.data.errors import Abort, TreeError
from batonpass.tree.data.node import NodeView
from batonpass.tree.data.path import Path
from batonpass.tree.data.payload import NO_PAYLOAD, encode_payload
from batonpass.tree.store.changes import Change, Commit, Kind
from batonpass.tree.store.conditions import Condition
from batonpass.tree.store.pattern import Pattern
from batonpass.tree.store.store import Store
from batonpass.tree.store.transaction import Transaction
from tests.budget import examples
from tests.tree.strategies import (
    close_paths,
    conditions,
    few_values,
    keep_whiles,
    near_patterns,
    one_node_patterns,
    patterns,
)
from tests.tree.twin import Pairs, Refused, Twin

payloads = few_values | st.just(NO_PAYLOAD)


class StoreAgainstTwin(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.store = Store()
        self.store.on_commit = self.take
        self.mirror = Store()
        self.twin = Twin()
        self.saved: Twin | None = None
        self.open: AbstractContextManager[Transaction] | None = None
        self.target: Store | Transaction = self.store
        self.commits: list[Commit] = []
        self.known: dict[Path, NodeView] = self.twin.views()

    def take(self, commit: Commit) -> None:
        self.commits.append(commit)

    def both(self, on_store: Any, on_twin: Any) -> None:
        """The same operation on both: refused with the same code, or done."""
        saved = self.twin.copy()
        try:
            on_twin()
        except Refused as refused:
            self.twin = saved
            self.refused(on_store, refused.args[0])
            return
        effects = on_store()
        gone = {path: str(node.reason) for path, node in effects.touched.items() if node.after is None}
        assert gone == {path: "explicit" if named else "keep_while" for path, named in self.twin.gone.items()}

    def refused(self, on_store: Any, code: str) -> None:
        with pytest.raises(TreeError) as raised:
            on_store()
        assert raised.value.code == code

    @rule(path=close_paths, payload=payloads, kept=keep_whiles)
    def keep(self, path: Path, payload: Any, kept: Pairs) -> None:
        self.both(
            lambda: self.target.put(path, payload, keep_while=kept),
            lambda: self.twin.put(path, encode_payload(payload), None, kept),
        )

    @rule(pattern=near_patterns, payload=few_values, kept=keep_whiles)
    def keep_many(self, pattern: Pattern, payload: Any, kept: Pairs) -> None:
        self.both(
            lambda: self.target.put_many(pattern, payload, keep_while=kept),
            lambda: self.twin.put_many(pattern, encode_payload(payload), kept),
        )

    @rule(pattern=one_node_patterns, payload=payloads, condition=st.none() | conditions, kept=st.none() | keep_whiles)
    def put(self, pattern: Pattern, payload: Any, condition: Condition | None, kept: Pairs | None) -> None:
        self.both(
            lambda: self.target.put(pattern, payload, condition, keep_while=kept),
            lambda: self.twin.put(pattern, encode_payload(payload), condition, kept),
        )

    @rule(path=close_paths, payload=few_values)
    def put_simply(self, path: Path, payload: Any) -> None:
        before = self.twin.view(path)
        written = self.target.put(path, payload)
        self.twin.put(path, encode(payload), None, None)
        assert (written.existed, written.previous_encoded) == (before is not None, before.encoded if before else None)

    @rule(pattern=patterns, payload=payloads)
    def put_many(self, pattern: Pattern, payload: Any) -> None:
        def on_twin() -> None:
            self.twin.put_many(pattern, encode_payload(payload))

        if payload is not NO_PAYLOAD:
            self.both(lambda: self.target.put_many(pattern, payload), on_twin)

    @rule(pattern=one_node_patterns)
    def clear_payload(self, pattern: Pattern) -> None:
        self.twin.gone = {}
        self.both(lambda: self.target.clear_payload(pattern), lambda: self.twin.clear(pattern))

    @rule(pattern=patterns)
    def clear_many_payloads(self, pattern: Pattern) -> None:
        self.both(lambda: self.target.clear_many_payloads(pattern), lambda: self.twin.clear_many(pattern))

    @rule(pattern=one_node_patterns)
    def delete(self, pattern: Pattern) -> None:
        self.twin.gone = {}
        self.both(lambda: self.target.delete(pattern), lambda: self.twin.delete(pattern))

    @rule(pattern=patterns)
    def delete_many(self, pattern: Pattern) -> None:
        self.both(lambda: self.target.delete_many(pattern), lambda: self.twin.delete_all(self.twin.matching(pattern)))

    @rule(pattern=patterns, after=st.none() | close_paths)
    def look(self, pattern: Pattern, after: Path | None) -> None:
        expected = self.twin.matching(pattern)
        assert self.target.count(pattern) == len(expected)
        assert self.target.exists(pattern) is bool(expected)
        later = [path for path in expected if after is None or path > after]
        assert [path for path, _ in self.target.matches(pattern, after)] == later

    @precondition(lambda self: self.open is None)
    @rule()
    def begin(self) -> None:
        self.saved = self.twin.copy()
        self.open = self.store.transaction()
        self.target = self.open.__enter__()

    @precondition(lambda self: self.open is not None)
    @rule()
    def commit(self) -> None:
        assert self.open is not None
        self.open.__exit__(None, None, None)
        self.open, self.target = None, self.store

    @precondition(lambda self: self.open is not None)
    @rule()
    def abort(self) -> None:
        assert self.open is not None
        assert self.saved is not None
        assert not self.open.__exit__(Abort, Abort("changed_its_mind"), None)
        self.twin, self.open, self.target = self.saved, None, self.store

    @precondition(lambda self: self.open is None)
    @rule()
    def restore_from_own_snapshot(self) -> None:
        digest, revision = self.store.digest(), self.store.revision
        self.store.restore(decode(encode(self.store.to_data())), revision)
        assert self.store.digest() == digest

    @invariant()
    def alike(self) -> None:
        views = self.twin.views()
        seen = dict(self.store.matches(()))
        order: list[Path] = []

        def collect(path: Path, node: NodeView, _: None) -> None:
            seen[path] = node
            order.append(path)

        self.store.fold_below((), collect, None)
        assert seen == views
        assert order == sorted(order), "parents before children, siblings by name"
        assert self.store.count_below(()) == len(views) - 1
        for path in views:
            assert list(self.store.children(path)) == self.twin.children(path)
            assert bool(self.store.keep_while(path)) is bool(self.twin.nodes[path].kept)

    @invariant()
    def commits_tell_exactly_what_changed(self) -> None:
        if self.open is not None:
            return
        views = self.twin.views()
        told: dict[Path, Change] = {}
        for commit in self.commits:
            assert [change.path for change in commit.changes] == sorted(change.path for change in commit.changes)
            told.update({change.path: change for change in commit.changes})
        for path in {*self.known, *views}:
            if self.known.get(path) != views.get(path):
                change = told[path]
                assert (change.before, change.after) == (self.known.get(path), views.get(path))
        for path, change in told.items():
            exists = (change.before is not None, change.after is not None)
            assert (
                exists
                == {
                    Kind.CREATED: (False, True),
                    Kind.UPDATED: (True, True),
                    Kind.CHILDREN: (True, True),
                    Kind.DELETED: (True, False),
                }[change.kind]
            ), path
        # A mirror that takes over the rows that were told of is the same tree.
        for commit in self.commits:
            rows = [(change.path, self.store.row(change.path)) for change in commit.changes]
            self.mirror.adopt(rows, commit.revision)
        assert self.mirror.digest() == self.store.digest()
        assert self.mirror.revision == self.store.revision
        self.commits, self.known = [], views


StoreAgainstTwin.TestCase.settings = settings(max_examples=examples(80), stateful_step_count=30)
TestStoreAgainstTwin = StoreAgainstTwin.TestCase
