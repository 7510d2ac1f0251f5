"""An obviously correct twin of the store: a flat map of paths, and brute force for everything.

It shares with the store the conditions and the form of patterns, and nothing else: matching looks at every node, what a
transaction changed is found by comparing copies, and keep_while is looked at for every watcher.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from batonpass.tree.data.node import NodeView
from batonpass.tree.data.path import Path
from batonpass.tree.store.conditions import Condition, Name, only_name
from batonpass.tree.store.pattern import Component, Pattern, PatternStep

Pairs = tuple[tuple[Pattern, Condition], ...]

_ANY = NodeView(None, 1, 1, 0)


@dataclass(frozen=True)
class Row:
    payload: bytes | None = None
    payload_version: int = 1
    list_version: int = 1
    on_the_way: bool = False
    kept: Pairs = ()


class Refused(Exception):
    """The operation is refused; the argument is the code."""


def absolute(pattern: Pattern, base: Path = ()) -> tuple[Component, ...]:
    found: list[Component] = list(base) if pattern and pattern[0] in (PatternStep.THIS, PatternStep.PARENT) else []
    for component in pattern:
        match component:
            case PatternStep.ROOT:
                found = []
            case PatternStep.PARENT:
                found = found[:-1]
            case PatternStep.THIS:
                pass
            case Name(name):
                found.append(name)
            case _:
                found.append(component)
    return tuple(found)


def matches(pattern: tuple[Component, ...], path: Path, holds: Callable[[Component, Path], bool], at: int = 0) -> bool:
    """Whether the pattern means this path; `holds` judges one component at one place."""
    if not pattern:
        return at == len(path)
    if at == len(path):
        return False
    component, here = pattern[0], path[: at + 1]
    if holds(component, here) and matches(pattern[1:], path, holds, at + 1):
        return True
    return isinstance(component, Condition) and component.recursive and matches(pattern, path, holds, at + 1)


def by_name(component: Component, here: Path) -> bool:
    if isinstance(component, str):
        return component == here[-1]
    assert isinstance(component, Condition)
    if component.names_only:
        return component.holds(_ANY, here[-1])
    return only_name(component) in (None, here[-1])


class Twin:
    def __init__(self) -> None:
        self.nodes: dict[Path, Row] = {(): Row()}
        # Of the last operation: every path that went away, and whether the operation named it.
        self.gone: dict[Path, bool] = {}
        # And those whose list of children it changed.
        self.raised: set[Path] = set()

    # --- looking --------------------------------------------------------------------------------------------------

    def children(self, path: Path) -> list[str]:
        return sorted(node[-1] for node in self.nodes if node and node[:-1] == path)

    def view(self, path: Path) -> NodeView | None:
        row = self.nodes.get(path)
        if row is None:
            return None
        return NodeView(row.payload, row.payload_version, row.list_version, len(self.children(path)))

    def views(self) -> dict[Path, NodeView]:
        found = {path: self.view(path) for path in self.nodes}
        return {path: view for path, view in found.items() if view is not None}

    def holds(self, component: Component, here: Path) -> bool:
        if isinstance(component, str):
            return component == here[-1]
        assert isinstance(component, Condition)
        return component.holds(self.view(here), here[-1])

    def matching(self, pattern: Pattern) -> list[Path]:
        return sorted(path for path in self.nodes if matches(absolute(pattern), path, self.holds))

    # --- operations -----------------------------------------------------------------------------------------------

    def target(self, pattern: Pattern) -> Path:
        """The one node meant, all conditions on the way checked."""
        path: Path = ()
        conditions: list[Component] = []
        for component in absolute(pattern):
            name = component if isinstance(component, str) else only_name(component)  # type: ignore[arg-type]  # a Condition
            if name is None:
                raise Refused("possibly_matching_many_nodes")
            path = (*path, name)
            conditions.append(component)
        for depth, component in enumerate(conditions):
            here = path[: depth + 1]
            if isinstance(component, Condition) and not component.holds(self.view(here), here[-1]):
                raise Refused("mismatching_node" if here in self.nodes else "node_not_found")
        return path

    def put(self, pattern: Pattern, payload: bytes | None, condition: Condition | None, kept: Pairs | None) -> None:
        path = self.target(pattern)
        if condition is not None and not condition.holds(self.view(path), path[-1] if path else ""):
            raise Refused("mismatching_node" if path in self.nodes else "node_not_found")
        self.put_all([path], payload, kept)
        if payload is None and kept is None and path in self.nodes:
            self.change(path, on_the_way=False)

    def put_all(self, paths: list[Path], payload: bytes | None, kept: Pairs | None, *, reclaim: bool = False) -> None:
        before = self.begin()
        new = {path for path in paths if path not in self.nodes}
        for path in paths:
            self.write(path, payload)
        for path in paths if kept is not None else ():
            assert kept is not None
            if path == ():
                raise Refused("bad_path")
            pairs = tuple((absolute(pattern, path), condition) for pattern, condition in kept)
            for pair in pairs:
                about_itself = self.literal_beginning(pair[0])[: len(path)] == path
                if not (path in new and about_itself) and not self.pair_holds(*pair):
                    raise Refused("keep_while_conditions_not_met")
            self.change(path, kept=pairs, on_the_way=False)
        for path in reversed(paths) if reclaim else ():
            self.reclaim(path)
        self.settle(before, just_kept=set(paths) if kept is not None else set())

    def clear(self, pattern: Pattern) -> None:
        try:
            path = self.target(pattern)
        except Refused as refused:
            if refused.args[0] == "node_not_found":
                return
            raise
        if path in self.nodes:
            self.put_all([path], None, None, reclaim=True)

    def clear_many(self, pattern: Pattern) -> None:
        self.put_all(self.matching(pattern), None, None, reclaim=True)

    def put_many(self, pattern: Pattern, payload: bytes | None, kept: Pairs | None = None) -> None:
        whole, names = absolute(pattern), 0
        while names < len(whole) and isinstance(whole[len(whole) - names - 1], str):
            names += 1
        tail = tuple(str(name) for name in whole[len(whole) - names :])
        self.put_all([(*path, *tail) for path in self.matching(whole[: len(whole) - names])], payload, kept)

    def delete(self, pattern: Pattern) -> None:
        try:
            path = self.target(pattern)
        except Refused as refused:
            if refused.args[0] == "possibly_matching_many_nodes":
                raise
            return
        self.delete_all([path])

    def delete_all(self, paths: list[Path]) -> None:
        before = self.begin()
        for path in paths:
            if path == ():
                if self.nodes[()].payload is not None:
                    self.change((), payload=None, payload_version=self.nodes[()].payload_version + 1)
                for name in self.children(()):
                    self.drop((name,), named=True)
            elif path in self.nodes:
                self.drop(path, named=True)
                self.reclaim(path[:-1])
        self.settle(before, just_kept=set())

    # --- the steps of operations ----------------------------------------------------------------------------------

    def begin(self) -> dict[Path, NodeView]:
        self.gone, self.raised = {}, set()
        return self.views()

    def change(self, path: Path, **fields: object) -> None:
        self.nodes[path] = replace(self.nodes[path], **fields)  # type: ignore[arg-type]  # names are checked by replace

    def write(self, path: Path, payload: bytes | None) -> None:
        existed = path in self.nodes
        missing = [path[:depth] for depth in range(1, len(path) + 1) if path[:depth] not in self.nodes]
        if missing:
            # Only the parent of the topmost new node gains a child; the others are made with theirs.
            parent = missing[0][:-1]
            self.raise_list(parent)
        for made in missing:
            self.nodes[made] = Row(on_the_way=made != path)
        row = self.nodes[path]
        if row.payload != payload:
            self.change(path, payload=payload, payload_version=row.payload_version + existed)

    def drop(self, path: Path, *, named: bool) -> None:
        for node in [node for node in self.nodes if node[: len(path)] == path]:
            self.gone[node] = named
            del self.nodes[node]
        self.raise_list(path[:-1])

    def raise_list(self, parent: Path) -> None:
        """Once in an operation, however many children come or go."""
        if parent not in self.raised:
            self.raised.add(parent)
            self.change(parent, list_version=self.nodes[parent].list_version + 1)

    def reclaim(self, path: Path) -> None:
        while path and path in self.nodes:
            row = self.nodes[path]
            if not row.on_the_way or row.payload is not None or self.children(path):
                return
            self.drop(path, named=False)
            path = path[:-1]

    # --- keep_while -----------------------------------------------------------------------------------------------

    def settle(self, before: dict[Path, NodeView], just_kept: set[Path]) -> None:
        while True:
            after = self.views()
            changed = [path for path in {*before, *after} if before.get(path) != after.get(path)]
            concerned = [
                watcher
                for watcher, row in sorted(self.nodes.items())
                if watcher not in just_kept
                and any(self.could_be_about(pattern, path) for pattern, _ in row.kept for path in changed)
            ]
            before, just_kept = after, set()
            for watcher in concerned:
                if watcher in self.nodes and not all(self.pair_holds(*pair) for pair in self.nodes[watcher].kept):
                    self.drop(watcher, named=False)
                    self.reclaim(watcher[:-1])
            if self.views() == before:
                return

    def pair_holds(self, pattern: Pattern, condition: Condition) -> bool:
        found = self.matching(pattern)
        if not found:
            last = pattern[-1] if pattern else ""
            return condition.holds(None, last if isinstance(last, str) else "")
        return all(condition.holds(self.view(path), path[-1] if path else "") for path in found)

    @staticmethod
    def literal_beginning(pattern: Pattern) -> Path:
        names: list[str] = []
        for component in pattern:
            name = component if isinstance(component, str) else only_name(component)  # type: ignore[arg-type]  # a Condition
            if name is None:
                break
            names.append(name)
        return tuple(names)

    @staticmethod
    def could_be_about(pattern: Pattern, path: Path) -> bool:
        beginnings: Iterable[int] = (
            length
            for length in range(len(pattern) + 1)
            if length == len(pattern)
            or (length and isinstance(pattern[length - 1], Condition) and not pattern[length - 1].names_only)  # type: ignore[union-attr]  # a Condition
        )
        return any(matches(pattern[:length], path, by_name) for length in beginnings)

    def copy(self) -> "Twin":
        twin = Twin()
        twin.nodes = dict(self.nodes)
        return twin
