"""A guard that a composition forgets is closed: it cannot be left out, or says no by itself."""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from batonpass import simserver
from batonpass.actors.http.client import HttpClient
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.sealing import Sealer
from batonpass.authority.wire.transfer import Passed
from batonpass.crypto.keys import Identity
from batonpass.simserver.entity.environment import EntityEnvironment
from batonpass.simserver.failover.foreign_entities import ForeignEntities
from batonpass.simserver.failover.spawn import EntitySpawns
from batonpass.simserver.lease.keeper import LeaseKeeper, Nonces
from batonpass.simserver.lease.log_watermark import LogWatermark
from batonpass.simserver.net.home_answers import HomeUnreachable
from batonpass.simserver.net.home_client import HomeClient
from batonpass.simserver.server.load_report import Loads
from batonpass.simserver.transfer.source.admission import Reception
from batonpass.simserver.transfer.source.departures import Departures
from batonpass.simserver.transfer.source.preparation import DeparturePreparation
from batonpass.simserver.transfer.source.waiting_for_home import WaitingForHome
from batonpass.simserver.transfer.target.arrivals import Arrivals
from batonpass.simserver.transfer.target.unresolved import StagedOutcomeQueries, UnresolvedTransfers
from tests.simserver.ports import TrioClock, clock_of, never, ports_of

GUARDS = {"lease", "may_act", "home_answers", "is_lost_by", "keeps_copies"}
SOURCES = sorted(Path(simserver.__path__[0]).rglob("*.py"))


@pytest.mark.parametrize(
    "guarded",
    [
        Arrivals,
        EntitySpawns,
        Departures,
        DeparturePreparation,
        EntityEnvironment,
        WaitingForHome,
        StagedOutcomeQueries,
        Loads,
        UnresolvedTransfers,
        Reception,
        ForeignEntities,
    ],
)
def test_a_guard_cannot_be_left_out(guarded: type) -> None:
    parameters = inspect.signature(guarded).parameters
    guards = GUARDS & parameters.keys()
    assert guards
    assert {name for name in guards if parameters[name].default is not inspect.Parameter.empty} == set()


def dummies(tree: ast.AST) -> Iterator[int]:
    """The lines of callbacks that do nothing until another is set, and of fields that are not there until they are."""
    for node in ast.walk(tree):
        match node:
            case ast.AnnAssign(value=ast.Lambda()):
                yield node.lineno
            case ast.Assign(targets=[ast.Attribute()], value=ast.Lambda()):
                yield node.lineno
            case ast.arguments():
                yield from (one.lineno for one in (*node.defaults, *node.kw_defaults) if isinstance(one, ast.Lambda))
            case ast.keyword(arg="init", value=ast.Constant(value=False)):
                yield node.value.lineno
            case ast.keyword(arg="default", value=ast.Lambda()):
                yield node.value.lineno
            case _:
                pass


def test_no_part_of_a_server_has_a_callback_that_is_a_dummy_until_it_is_set() -> None:
    found = {(file.name, line) for file in SOURCES for line in dummies(ast.parse(file.read_text(encoding="utf-8")))}
    assert len(SOURCES) > 50
    assert found == set()


@pytest.mark.parametrize(
    "source",
    [
        "self.may_act: Callable[[int], bool] = lambda now_ns: True",
        "self.may_act = lambda now_ns: True",
        "def __init__(self, may_act=lambda now_ns: True): ...",
        "def __init__(self, *, may_act=lambda now_ns: True): ...",
        "copier: Copier = field(init=False)",
        "begun: Callable[[str], None] = field(default=lambda entity: None)",
    ],
)
def test_such_a_callback_would_be_found(source: str) -> None:
    assert list(dummies(ast.parse(source))) == [1]


def lease(directory: Path) -> LeaseKeeper:
    return LeaseKeeper(ports_of(), Nonces(directory / "lease.json"), LogWatermark(TrioClock()))


def bind(keeper: LeaseKeeper) -> None:
    async def find_way_back(_position: str) -> bool:
        return False

    nothing: Any = lambda: None  # noqa: E731
    keeper.bind(stepped_down=nothing, find_way_back=find_way_back, has_shared=nothing, home_is_back=nothing)


async def test_a_lease_that_is_bound_to_nothing_is_not_asked_for(tmp_path: Path) -> None:
    keeper = lease(tmp_path)
    keeper.begin(lambda: ("", "", 0))
    assert not keeper.may_act(TrioClock().monotonic_ns())
    with pytest.raises(RuntimeError, match="bound to nothing"):
        await keeper.serve()
    assert not keeper.may_act(TrioClock().monotonic_ns())


async def test_a_lease_is_bound_once(tmp_path: Path) -> None:
    keeper = lease(tmp_path)
    bind(keeper)
    with pytest.raises(RuntimeError, match="bound already"):
        bind(keeper)


async def test_a_home_of_which_nobody_says_whether_there_is_a_lease_is_asked_for_nothing_else() -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        raise AssertionError("it was asked")

    client = HttpClient(transport=httpx.MockTransport(answer))
    sealer, clock = Sealer.without_log("alpha.s1", Identity.generate()), clock_of(TrioClock())
    home = HomeClient(sealer, "alpha", ("http://h",), b"t" * 32, client, clock, never)
    message: Any = Passed.model_construct(type="passed", entity="alpha.ball", transfer_id="t")
    with pytest.raises(HomeUnreachable, match="it is not known yet whether this server has a lease"):
        await home.ask(message, Trace("t"), on_path=False)
    home.bind(lambda: "")
    with pytest.raises(RuntimeError, match="bound to a lease already"):
        home.bind(lambda: "")
    await client.aclose()
