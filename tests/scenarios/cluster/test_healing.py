"""Both servers heal: whichever actor is killed, and whenever, no entity is lost and no input is applied twice."""

import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path as FilePath
from typing import Any

import pytest
import trio

from batonpass.actors import Exit, RestartLimitReached
from batonpass.actors.supervision.tree_view import Path, draw
from batonpass.homeserver.server import main as homeserver_app
from batonpass.simserver.entity import quarantine
from batonpass.simserver.entity.actor import Entity
from batonpass.simserver.server import main as simserver_app
from batonpass.simserver.server.dispatch import SimserverNode as SimNode
from batonpass.simserver.server.main import Shell
from batonpass.simserver.server.main import run as run_simserver
from tests.collected import ROOT
from tests.homeserver.served import homeserver_config, new_ports, served, simserver_config
from tests.scenarios.asked import LIMIT_S, limited
from tests.scenarios.healing import instance, paths, trees, under_load

# A request that is broken off leaves the generator of its body to the garbage collector: httpx, not us.
pytestmark = [
    limited,
    pytest.mark.filterwarnings("ignore:.*ByteStream.__aiter__:pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:.*ByteStream.__aiter__:ResourceWarning"),
]

# More by hand: BATON_SEEDS="3 4 5" BATON_KILLS=500 pytest tests/scenarios/cluster/test_healing.py -k random
SEEDS = [int(seed) for seed in os.environ.get("BATON_SEEDS", "1").split()]
CRASHES = 0.005
KILLS = int(os.environ.get("BATON_KILLS", "25"))
TREES = trees()
# Every actor of both kinds of server, as the composition roots make them: a new one is killed here from its first day.
VICTIMS = [
    (server, path)
    for server in ("alpha.h1", "alpha.s1")
    for path in paths(TREES["homeserver" if ".h" in server else "simserver"])
]

# Of one server at most so many, well below the restarts for which its supervisors give up.
A_FEW = 4


def batched(victims: Sequence[tuple[str, Path]]) -> list[list[tuple[str, Path]]]:
    """Those of a server together, a few at a time."""
    servers = sorted({server for server, _ in victims})
    of = {server: [victim for victim in victims if victim[0] == server] for server in servers}
    return [of[server][first : first + A_FEW] for server in servers for first in range(0, len(of[server]), A_FEW)]


@pytest.mark.parametrize("kind", TREES)
def test_the_tree_in_the_docs_is_the_one_in_the_code(kind: str) -> None:
    page = (ROOT / "docs" / "reference" / "supervision.md").read_text(encoding="utf-8")
    written = page.partition(f"<!-- {kind} tree -->\n")[2].partition(f"<!-- end of {kind} tree -->")[0]
    assert written.strip() == f"```\n{draw(TREES[kind])}\n```"


@pytest.mark.parametrize("victims", batched(VICTIMS), ids=lambda victims: "/".join(victims[0][1]))
async def test_whoever_is_killed_under_load_everything_runs_again_and_nothing_is_lost(
    victims: Sequence[tuple[str, Path]], tmp_path: FilePath
) -> None:
    """A few actors of an instance, one after the other, each of them when everything runs again."""
    async with instance(tmp_path, seed=1) as alpha:
        async with under_load(alpha):
            await alpha.let_it_work()
            for server, victim in victims:
                await alpha.kill(server, victim)
                await alpha.healed()
                await alpha.let_it_work()
        assert await alpha.unwell() == [], alpha.kills
        evidence = await alpha.evidence()
    assert evidence.findings == [], alpha.kills
    assert evidence.invariants.broken() == {}, alpha.kills
    assert alpha.failures == [], alpha.kills


def crashing(callback: Callable[..., None], dice: random.Random) -> Callable[..., None]:
    """`callback` with a fault of ours in it, now and then: before it has done its work, or after."""

    def crash(*args: Any) -> None:
        if dice.random() < CRASHES:
            raise RuntimeError("a fault of ours, before")
        callback(*args)
        if dice.random() < CRASHES:
            raise RuntimeError("a fault of ours, after")

    return crash


@pytest.mark.parametrize("seed", SEEDS)
async def test_many_kills_and_crashes_at_random_lose_nothing(
    seed: int, tmp_path: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More of them than any supervisor would put up with, in any order, also while others are still healing."""
    for app in (homeserver_app, simserver_app):
        monkeypatch.setitem(app.PATIENCE, "max_restarts", 10_000)
    monkeypatch.setattr(quarantine, "MAX_CRASHES", 10_000)
    dice = random.Random(seed)
    monkeypatch.setattr(Entity, "_tick", crashing(Entity._tick, dice))
    monkeypatch.setattr(Entity, "_acknowledge", crashing(Entity._acknowledge, dice))
    victims = [(server, path) for server, path in VICTIMS if len(path) > 1]
    victims += [("alpha.s2", path) for server, path in victims if server == "alpha.s1"]
    async with instance(tmp_path, seed) as alpha:
        async with under_load(alpha):
            for _ in range(KILLS):
                await alpha.kill(*dice.choice(victims))
                await trio.sleep(dice.choice((0.0, 0.01, 0.05, 0.1)))
            await alpha.healed()
            await alpha.let_it_work()
        assert await alpha.unwell() == []
        evidence = await alpha.evidence()
    told = f"seed {seed}: {alpha.kills}"
    assert evidence.findings == [], told
    assert evidence.invariants.broken() == {}, told


@pytest.mark.parametrize("after_s", [0.0, 0.05])
async def test_a_part_that_fails_every_time_ends_its_server_which_says_so(
    after_s: float, tmp_path: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(self: SimNode, *, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        await trio.sleep(after_s)
        raise RuntimeError("no time any more")

    with new_ports() as ports:
        async with served(homeserver_config(tmp_path, ports)) as home:
            monkeypatch.setattr(SimNode, "serve_ticks", fails)
            with (
                trio.fail_after(LIMIT_S),
                pytest.raises(RestartLimitReached, match=r"'simserver'.*'ticks'.*no time any more"),
            ):
                await run_simserver(simserver_config(home, "alpha.s1"))


async def test_a_server_whose_root_is_killed_ends(tmp_path: FilePath) -> None:
    """The one actor that nobody restarts: whoever started the process does."""
    with new_ports() as ports:
        async with served(homeserver_config(tmp_path, ports)) as home, trio.open_nursery() as nursery:

            async def run(*, task_status: trio.TaskStatus[Shell]) -> None:
                with pytest.raises(Exit, match="killed"):
                    await run_simserver(simserver_config(home, "alpha.s1"), task_status=task_status)

            shell: Shell = await nursery.start(run)
            assert shell.node.system is not None
            shell.node.system.root.kill()
