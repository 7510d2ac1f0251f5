"""A homeserver is wired in one place, whether it runs or is simulated, and none of its guards is wired later."""

import ast
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio

from batonpass import homeserver, scenarios
from batonpass.homeserver.node import composition
from batonpass.homeserver.server import main
from batonpass.scenarios.simulation.servers.cluster import ServersCluster
from batonpass.scenarios.simulation.servers.mixes import MIXES
from tests.homeserver.batched import Home, log_of_three

COMPOSITION = Path(inspect.getfile(composition))


def sources(package: Any) -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(Path(package.__path__[0]).rglob("*.py")):
        yield path, ast.parse(path.read_text("utf-8"))


def called(tree: ast.AST) -> set[str]:
    """The classes of homeservers that are made here."""
    imported = {
        name.asname or name.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("batonpass.homeserver")
        for name in node.names
    }
    calls = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    return {name for name in imported & calls if name[0].isupper()}


def test_what_decides_is_made_in_one_place_for_servers_that_run_and_for_simulated_ones() -> None:
    """A part that is made elsewhere too can be wired there otherwise, and what is found of it does not count."""
    parts = called(ast.parse(COMPOSITION.read_text("utf-8")))
    assert {
        "Leases",
        "Batches",
        "Transfers",
        "OutcomeQueries",
        "OwnershipCheck",
        "LogWitnesses",
        "StandingQuestions",
    } <= parts
    elsewhere = {
        f"{path.name}: {name}"
        for package in (homeserver, scenarios)
        for path, tree in sources(package)
        if path.name != COMPOSITION.name
        # What its parts are made of is theirs.
        for name in called(tree) & parts - {"Certification"}
    }
    assert elsewhere == set()


def test_simulated_homeservers_are_made_as_those_that_run(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[composition.Parts] = []
    build = composition.build

    def noted(*args: Any) -> composition.Parts:
        made.append(build(*args))
        return made[-1]

    monkeypatch.setattr("batonpass.scenarios.simulation.servers.homeserver.build", noted)
    cluster = ServersCluster(MIXES["calm"], Random("composition"))
    assert [home.parts for home in cluster.homes.values()] == made
    assert "composition.build(" in inspect.getsource(main.build)


async def test_whatever_a_part_does_all_the_time_is_done_by_every_homeserver(monkeypatch: pytest.MonkeyPatch) -> None:
    parts, done = Home(log_of_three()).parts, set[str]()

    def noting(name: str) -> Callable[..., Any]:
        async def note(*_: Any) -> None:
            done.add(name)

        return note

    # The way to other instances is given.
    names = [name for name in vars(parts) if name != "federation" and hasattr(getattr(parts, name), "serve")]
    for name in names:
        for method in ("serve", "look_around"):
            if hasattr(getattr(parts, name), method):
                monkeypatch.setattr(getattr(parts, name), method, noting(name))
    async with trio.open_nursery() as nursery:
        for loops in parts.loops().values():
            for loop in loops:
                nursery.start_soon(loop, nursery)
    assert done == set(names)
    for group in parts.loops():
        assert f'["{group}"]' in inspect.getsource(main), "a server that runs does all of it"


def test_no_callback_and_no_part_of_a_homeserver_is_put_in_after_it_was_made() -> None:
    """Who forgets it would have a guard that lets everything pass, or a request that meets nothing."""
    late = [
        f"{path.name}:{node.lineno}"
        for path, tree in sources(homeserver)
        for node in ast.walk(tree)
        if (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Attribute)
            and isinstance(node.value, ast.Lambda)
        )
        or (path.parent.name == "node" and isinstance(node, ast.keyword) and node.arg == "init")
    ]
    assert late == []
