"""`GET /v1/local/positions`: where entities are, of very many the same sample on every server, and faults of worlds."""

from types import SimpleNamespace
from typing import Any

import httpx
import hypothesis.strategies as st
from fastapi import FastAPI
from hypothesis import given, settings

from batonpass.actors.http.app import prepare_app
from batonpass.simserver.server.position_routes import is_shown, position_routes
from tests.budget import examples


class Life(SimpleNamespace):
    """As much of an entity as is looked at."""

    def __init__(self, state: Any, **more: Any) -> None:
        fields: dict[str, Any] = {"seen": state, "kind": "ball", "is_untaken": False, "quarantine_reason": ""}
        super().__init__(passive=None, **fields | more)
        self.faults: list[str] = []

    def enter(self) -> int:
        return 0

    def leave(self, began_ns: int) -> None:
        pass

    def fault(self, what: str, error: BaseException) -> None:
        self.faults.append(what)


class Lives(dict[str, Any]):
    def ids(self) -> list[str]:
        return list(self)


def app_of(world: Any, lives: dict[str, Life]) -> FastAPI:
    app = FastAPI()
    prepare_app(app)
    holdings = Lives({name: SimpleNamespace(id=name, life=life) for name, life in lives.items()})
    node: Any = SimpleNamespace(holdings=holdings, environment=SimpleNamespace(world=world))
    position_routes(node).add_to(app)
    return app


async def asked(app: FastAPI, query: str = "") -> Any:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://alpha") as http:
        answer = await http.get(f"/v1/local/positions{query}")
        assert answer.status_code == 200, answer.text
        return answer.json()


def said(state: Any) -> Any:
    """The state is what the world says of the place."""
    if isinstance(state, Exception):
        raise state
    return state


WORLD = SimpleNamespace(position=said)


async def test_each_entity_is_where_its_world_says_and_none_where_it_says_nothing() -> None:
    lives = {
        "alpha.a": Life([1, 2.5]),
        "alpha.b": Life((0.0, -1.0, 3.0), kind="lamp"),
        "alpha.nowhere": Life(None),
        "alpha.odd": Life([1, 2, 3, 4]),
        "alpha.endless": Life([float("inf"), 0]),
        "alpha.broken": Life(ZeroDivisionError("mine")),
        "alpha.untaken": Life([1, 1], is_untaken=True),
        "alpha.ill": Life([1, 1], quarantine_reason="it fails"),
        "alpha.away": Life(None),
    }
    lives["alpha.away"].passive = SimpleNamespace(position=(7.0,))
    seen = await asked(app_of(WORLD, lives))
    assert (seen["has_positions"], seen["entities"]) == (True, len(lives))
    assert seen["positions"] == [
        {"entity": "alpha.a", "kind": "ball", "at": [1.0, 2.5]},
        {"entity": "alpha.b", "kind": "lamp", "at": [0.0, -1.0, 3.0]},
        {"entity": "alpha.away", "kind": "ball", "at": [7.0]},
    ]
    assert {name for name, life in lives.items() if life.faults} == {"alpha.broken"}


async def test_a_world_without_places_is_not_asked() -> None:
    seen = await asked(app_of(SimpleNamespace(), {"alpha.a": Life([1, 2])}))
    assert seen == {"has_positions": False, "entities": 1, "positions": []}


async def test_of_very_many_a_sample_is_shown_and_no_more_than_was_asked_for() -> None:
    app = app_of(WORLD, {f"alpha.ball-{number}": Life([number, 0]) for number in range(5000)})
    seen = await asked(app, "?one_in=10&limit=2000")
    assert seen["entities"] == 5000
    assert 300 < len(seen["positions"]) < 700
    assert all(is_shown(one["entity"], 10) for one in seen["positions"])
    assert len((await asked(app, "?limit=7"))["positions"]) == 7


@settings(max_examples=examples(100))
@given(st.text(), st.integers(1, 1000), st.integers(1, 20))
def test_a_smaller_sample_is_a_part_of_the_larger_one(entity: str, one_in: int, times: int) -> None:
    assert not is_shown(entity, one_in * times) or is_shown(entity, one_in)
    assert is_shown(entity, 1)
