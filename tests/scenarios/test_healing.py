"""Both servers heal: whichever actor is killed, and whenever, no entity is lost and no input is applied twice."""

import os
import random
from pathlib import Path as FilePath

import pytest
import trio

from actors.outline import Path, draw
from homeserver import app as homeserver_app
from simserver import app as simserver_app
from tests.scenarios.healing import instance, paths, trees, under_load

# A request that is broken off leaves the generator of its body to the garbage collector: httpx, not us.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*ByteStream.__aiter__:pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:.*ByteStream.__aiter__:ResourceWarning"),
]

# More by hand: BATON_SEEDS="3 4 5" BATON_KILLS=500 pytest tests/scenarios/test_healing.py -k random
SEEDS = [int(seed) for seed in os.environ.get("BATON_SEEDS", "1 2").split()]
KILLS = int(os.environ.get("BATON_KILLS", "25"))
TREES = trees()
# Every actor of both kinds of server, as the composition roots make them: a new one is killed here from its first day.
VICTIMS = [
    (server, path)
    for server in ("alpha.h1", "alpha.s1")
    for path in paths(TREES["homeserver" if ".h" in server else "simserver"])
]


@pytest.mark.parametrize("kind", TREES)
def test_the_tree_in_the_docs_is_the_one_in_the_code(kind: str) -> None:
    page = (FilePath(__file__).parents[2] / "docs" / "supervision.md").read_text(encoding="utf-8")
    written = page.partition(f"<!-- {kind} tree -->\n")[2].partition(f"<!-- end of {kind} tree -->")[0]
    assert written.strip() == f"```\n{draw(TREES[kind])}\n```"


@pytest.mark.parametrize(
    ("server", "victim"), VICTIMS, ids=lambda part: "/".join(part) if isinstance(part, tuple) else part
)
async def test_whoever_is_killed_under_load_everything_runs_again_and_nothing_is_lost(
    server: str, victim: Path, tmp_path: FilePath
) -> None:
    async with instance(tmp_path, seed=1) as alpha:
        async with under_load(alpha):
            await alpha.let_it_work()
            await alpha.kill(server, victim)
            await alpha.healed()
            await alpha.let_it_work()
        assert await alpha.unwell() == []
        evidence = await alpha.evidence()
    assert evidence.findings == []
    assert evidence.invariants.broken() == {}
    assert alpha.failures == []


@pytest.mark.parametrize("seed", SEEDS)
async def test_many_kills_at_random_lose_nothing(
    seed: int, tmp_path: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More of them than any supervisor would put up with, in any order, also while others are still healing."""
    for app in (homeserver_app, simserver_app):
        monkeypatch.setitem(app.PATIENCE, "max_restarts", 10_000)
    dice = random.Random(seed)
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
