"""A server that starts again knows what its disk knows: each of the four things, and none twice."""

from types import SimpleNamespace
from typing import Any

from batonpass.authority.fence import Fence
from batonpass.simserver.entity.table import Tombstone
from batonpass.simserver.server.build import remember

GONE, LIVED, HERE, KNOWN = "alpha.gone", "alpha.lived", "alpha.here", "alpha.known"


def test_what_left_what_lived_what_is_staged_and_what_there_are_copies_of_is_known_again() -> None:
    heard: list[tuple[str, Any]] = []
    there, gone = {HERE: "its holding"}, {KNOWN: "its tombstone"}
    rows = [SimpleNamespace(entity=entity, epoch=5, sub=1, since=77) for entity in (LIVED, HERE, KNOWN)]
    ledger = SimpleNamespace(
        moved=lambda: [(entity, "alpha.s2", Fence(3)) for entity in (GONE, HERE, KNOWN)], interrupted=rows
    )
    node: Any = SimpleNamespace(
        ledger=ledger,
        holdings=SimpleNamespace(
            get=there.get,
            gone=gone.get,
            remember=lambda *row: heard.append(("left", row)),
            remember_lived=lambda *row: heard.append(("lived", row)),
        ),
        stages=SimpleNamespace(waiting=lambda: ["one stage", "another"]),
        arrivals=SimpleNamespace(restage=lambda stage: heard.append(("staged", stage))),
        recovery=SimpleNamespace(remember=lambda given: heard.append(("copies", given))),
    )
    remember(node)
    assert heard == [
        ("left", (GONE, Tombstone("alpha.s2", Fence(3)))),
        ("lived", (LIVED, Fence(5, 1), 77)),
        ("staged", "one stage"),
        ("staged", "another"),
        ("copies", ledger),
    ]
