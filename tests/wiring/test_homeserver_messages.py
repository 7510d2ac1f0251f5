"""Each message that wants no answer reaches the part of a homeserver that waits for it, with who sent it."""

from types import SimpleNamespace
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from batonpass.authority.model.records import Role
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.regions import RegionReport
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.authority.wire.senders import HOMESERVER_SENDERS
from batonpass.authority.wire.transfer import (
    Adopted,
    AuthorityRequest,
    Census,
    Collected,
    Despawned,
    LoadReport,
    Spawned,
    StandingWord,
)
from batonpass.homeserver.node.composition import Parts
from tests.authority.message_strategies import of_kind
from tests.authority.rows import directory_row
from tests.authority.wire.test_senders import example
from tests.budget import examples

SENDER: Final = "alpha.s1"
TAKEN_BY: Final[dict[type[BaseModel], tuple[str, str]]] = {
    Spawned: ("births", "spawned"),
    Despawned: ("deletion_notices", "heard"),
    Collected: ("takeovers", "collected"),
    Adopted: ("takeovers", "adopted"),
    LoadReport: ("balancer", "reported"),
    RegionReport: ("regions", "reported"),
    StandingWord: ("standings", "heard"),
    Census: ("balancer", "took_census"),
}
DROPPED: Final = {Spawned: "unexpected_spawned", StandingWord: "unexpected_standing"}


class Noting:
    """The parts of a homeserver; each notes what it is given, and says whether it waited for that."""

    instance = "alpha"

    def __init__(self, is_awaited: bool) -> None:
        self.is_awaited, self.given = is_awaited, list[Any]()
        self.store = SimpleNamespace(row=lambda name: directory_row(name, Role.SIMSERVER))

    def __getattr__(self, part: str) -> Any:
        def given(method: str) -> Any:
            def take(*args: Any) -> bool:
                self.given.append((part, method, args))
                return self.is_awaited

            return take

        return type("Part", (), {"__getattr__": lambda _, method: given(method)})()


@pytest.mark.parametrize("is_awaited", [True, False])
@pytest.mark.parametrize("kind", TAKEN_BY, ids=lambda kind: kind.__name__)
@given(data=st.data())
@settings(max_examples=examples(2, 2), deadline=None)
def test_a_message_reaches_the_part_that_waits_for_it(
    kind: type[BaseModel], is_awaited: bool, data: st.DataObject
) -> None:
    message: Any = example(HOMESERVER_SENDERS, kind, data.draw(of_kind(kind)))
    parts: Any = Noting(is_awaited)
    dropped: list[str] = []
    assert Parts.took(parts, OpenedMessage(message, SENDER, Trace("transfer-1")), dropped.append)
    ((part, method, args),) = parts.given
    assert (part, method) == TAKEN_BY[kind]
    assert SENDER in args
    if kind is LoadReport:
        assert message.load in args
        assert message.still in args
    else:
        assert message in args
    assert dropped == ([] if is_awaited or kind not in DROPPED else [DROPPED[kind]])


@given(message=of_kind(AuthorityRequest))
@settings(max_examples=examples(2, 2), deadline=None)
def test_what_wants_an_answer_is_left_to_others(message: Any) -> None:
    parts: Any = Noting(True)
    assert not Parts.took(parts, OpenedMessage(message, SENDER, Trace("transfer-1")), list[str]().append)
    assert parts.given == []
