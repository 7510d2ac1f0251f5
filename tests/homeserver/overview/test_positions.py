"""The map: who is asked for positions, how often, and what comes of the answers."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import trio

from batonpass.actors.http.app import ApiError
from batonpass.authority.model.records import DirectoryRow, Role
from batonpass.authority.model.regions import RegionTable, divided
from batonpass.authority.wire.placement import Load
from batonpass.homeserver.overview.positions import MAX_PLACED, PositionsView, surveyed_positions
from batonpass.homeserver.overview.surveys import FRESH_S, FreshView
from batonpass.homeserver.placement.balancer import Reported
from tests.homeserver.overview.rows import MemberRows
from tests.homeserver.overview.test_live import on_mock_clock


class Surveyed:
    """A member whose servers are asked, with what they say."""

    def __init__(self) -> None:
        member = MemberRows()
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.entities: dict[str, int] = {}
        self.ages_s: dict[str, float] = {}
        self.answers: dict[str, Any] = {}
        self.table: RegionTable | None = None
        for name in ("alpha.s1", "alpha.s2"):
            row = DirectoryRow(name=name, role=Role.SIMSERVER, keys={"keys": []}, rest_url="http://x", version=1)
            member.rows.put(("servers", name), row.to_data())
            self.entities[name], self.ages_s[name] = 1, 0.5
            self.answers[name] = {
                "has_positions": True,
                "entities": 1,
                "positions": [{"entity": f"{name}-ball", "kind": "ball", "at": [1.0, 2.0]}],
            }
        node = member.node
        node.clock.monotonic_ns = lambda: round(trio.current_time() * 1e9)
        node.balancer = SimpleNamespace(report=self._report)
        node.asked = SimpleNamespace(ask=self._ask)
        member.store.regions = lambda: self.table  # type: ignore[method-assign]
        self.survey: FreshView[PositionsView] = FreshView(node, partial(surveyed_positions, node))

    def _report(self, name: str) -> Reported:
        load = Load(tick_ppm=0, entities=self.entities[name], leaving=0, inputs_per_s=0, bytes_per_s=0)
        return Reported(load, self.ages_s[name])

    async def _ask(self, row: DirectoryRow, path: str, form: Any, params: dict[str, str]) -> Any:
        assert path == "/v1/local/positions"
        self.asked.append((row.name, params))
        if row.name not in self.answers:
            raise ApiError(502, "peer_unreachable", "it is dead")
        return form.model_validate(self.answers[row.name])


@on_mock_clock
async def test_entities_are_shown_where_their_servers_say_and_a_silent_one_is_named() -> None:
    made = Surveyed()
    view = await made.survey.view()
    assert [(one.entity, one.server, one.at) for one in view.placed] == [
        ("alpha.s1-ball", "alpha.s1", [1.0, 2.0]),
        ("alpha.s2-ball", "alpha.s2", [1.0, 2.0]),
    ]
    assert (view.entities, view.one_in, view.silent, view.cells, view.has_positions) == (2, 1, [], [], True)
    await trio.sleep(FRESH_S)
    del made.answers["alpha.s2"]
    assert (await made.survey.view()).silent == ["alpha.s2"]
    await trio.sleep(FRESH_S)
    made.ages_s["alpha.s2"] = 60
    made.asked.clear()
    view = await made.survey.view()
    assert ([name for name, _ in made.asked], view.silent) == (["alpha.s1"], ["alpha.s2"])


@on_mock_clock
async def test_however_many_look_servers_are_asked_once_a_second() -> None:
    made = Surveyed()
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(made.survey.view)
    assert len(made.asked) == 2
    await trio.sleep(FRESH_S)
    await made.survey.view()
    assert len(made.asked) == 4


@on_mock_clock
async def test_of_very_many_the_same_sample_is_asked_of_all() -> None:
    made = Surveyed()
    made.entities |= {"alpha.s1": 90_000, "alpha.s2": 10_000}
    view = await made.survey.view()
    assert view.one_in == -(-100_000 // MAX_PLACED)
    assert {params["one_in"] for _, params in made.asked} == {str(view.one_in)}


@on_mock_clock
async def test_cells_of_space_are_shown_and_have_no_end_at_the_rim() -> None:
    made = Surveyed()
    made.table = RegionTable(1, 2, divided(["alpha.s1", "alpha.s2"], [0.0, 0.0], [10.0, 4.0]))
    view = await made.survey.view()
    assert [(one.cell, one.server, one.low, one.high) for one in view.cells] == [
        ("c0", "alpha.s1", [None, None], [5.0, None]),
        ("c1", "alpha.s2", [5.0, None], [None, None]),
    ]
