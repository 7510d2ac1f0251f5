"""What a simulation server is told by a sender that may not say it, no part of it hears: see `wire.test_senders`."""

from collections.abc import Callable, Generator
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from batonpass.authority.errors import MessageError
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.authority.wire.senders import SIMSERVER_SENDERS
from batonpass.simserver.server.dispatch import SimserverNode
from tests.authority.message_strategies import TRANSFER_KINDS, of_kind
from tests.authority.wire.test_senders import ANSWERS, SENDERS, SIMSERVER, Directory, example
from tests.budget import examples

NODE_METHODS: Final = [
    name for name in vars(SimserverNode) if name.startswith(("_dispatch", "_of_messages", "_of_peers", "_placement"))
]


class Told:
    """Stands for every part of a server: notes which of its methods are called, at once or awaited."""

    def __init__(self, calls: list[str], path: str = "") -> None:
        self._calls, self._path = calls, path

    def __getattr__(self, name: str) -> "Told":
        return Told(self._calls, f"{self._path}.{name}".strip("."))

    def __call__(self, *_: Any, **__: Any) -> "Told":
        self._calls.append(self._path)
        return self

    def __await__(self) -> Generator[Any, None, "Told"]:
        yield from ()
        return self


class Node:
    """The server's own choice of what is done with a message; all that it is done by notes it."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        parts = {name: Told(self.calls, name) for name in ("arrivals", "departures", "reception", "admissions")}
        parts |= {
            name: Told(self.calls, name)
            for name in ("births", "recovery", "lease", "loads", "outbox", "shows", "neighbours", "post_office")
        }
        parts |= {
            name: Told(self.calls, name) for name in ("holdings", "clock", "environment", "regions", "post_office")
        }
        self._node: Any = SimpleNamespace(**parts, home=Directory(), sealer=SimpleNamespace(name="alpha.s9"))
        vars(parts["lease"])["why_unleased"] = lambda _: "no lease"
        for name in NODE_METHODS:
            setattr(self._node, name, getattr(SimserverNode, name).__get__(self._node))
        self._node.release = self._released

    def _released(self, *_: Any, **__: Any) -> None:
        self.calls.append("release")

    async def take(self, message: Any, sender: str) -> None:
        await SimserverNode.take(cast(Any, self._node), OpenedMessage(message, sender, Trace("transfer-1")))


many: Callable[..., Any] = settings(
    max_examples=examples(2, 2), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)


@pytest.mark.parametrize("kind", TRANSFER_KINDS, ids=lambda kind: kind.__name__)
@given(data=st.data())
@many
async def test_of_a_sender_that_may_not_say_it_no_part_is_told(kind: type[BaseModel], data: st.DataObject) -> None:
    message = example(SIMSERVER_SENDERS, kind, data.draw(of_kind(kind)))
    for sender in SENDERS.keys() - SIMSERVER.get(kind, set()):
        node = Node()
        with pytest.raises(MessageError):
            await node.take(message, SENDERS[sender][0])
        assert node.calls == [], sender


@pytest.mark.parametrize("kind", SIMSERVER, ids=lambda kind: kind.__name__)
@given(data=st.data())
@many
async def test_of_one_that_may_say_it_a_part_is_told(kind: type[BaseModel], data: st.DataObject) -> None:
    message = example(SIMSERVER_SENDERS, kind, data.draw(of_kind(kind)))
    for sender in SIMSERVER[kind]:
        node = Node()
        await node.take(message, SENDERS[sender][0])
        assert node.calls, sender


def test_answers_are_no_messages_of_their_own() -> None:
    assert not ANSWERS & SIMSERVER.keys()
