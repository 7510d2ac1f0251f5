"""What wants no answer goes to the part that waits for it; what nobody has asked for is counted and changes nothing."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from batonpass.authority.model.records import DirectoryRow, Role
from batonpass.authority.wire import transfer as messages
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.homeserver.node.composition import Parts

SENDER = "alpha.s1"
PARTS = {
    messages.Spawned: ("births", "spawned"),
    messages.Despawned: ("deletion_notices", "heard"),
    messages.Collected: ("takeovers", "collected"),
    messages.Adopted: ("takeovers", "adopted"),
    messages.LoadReport: ("balancer", "reported"),
    messages.RegionReport: ("regions", "reported"),
    messages.StandingWord: ("standings", "heard"),
    messages.Census: ("balancer", "took_census"),
}


def took(kind: Any, waits: bool = True) -> tuple[bool, list[str], list[str]]:
    """Whether it was taken, which part was told, and what was counted."""
    told, dropped = list[str](), list[str]()

    def method(part: str, name: str) -> Any:
        def called(*_: Any) -> bool:
            told.append(f"{part}.{name}")
            return waits

        return called

    parts: dict[str, Any] = {part: SimpleNamespace() for part, _ in PARTS.values()}
    for part, name in PARTS.values():
        setattr(parts[part], name, method(part, name))
    row = DirectoryRow(name=SENDER, role=Role.SIMSERVER, keys={"keys": []})
    store = SimpleNamespace(row=lambda _: row)
    message = kind.model_construct(load=None, still=0)
    opened = OpenedMessage(message, SENDER, Trace("transfer-1"))
    node = cast(Any, SimpleNamespace(**parts, store=store, instance="alpha"))
    return Parts.took(node, opened, dropped.append), told, dropped


@pytest.mark.parametrize("kind", PARTS, ids=lambda kind: kind.__name__)
def test_it_goes_to_its_part(kind: Any) -> None:
    part, name = PARTS[kind]
    assert took(kind) == (True, [f"{part}.{name}"], [])


def test_what_nobody_waits_for_is_counted() -> None:
    assert took(messages.Spawned, waits=False)[2] == ["unexpected_spawned"]
    assert took(messages.StandingWord, waits=False)[2] == ["unexpected_standing"]


def test_what_wants_an_answer_is_left_to_others() -> None:
    assert took(messages.Renew) == (False, [], [])
