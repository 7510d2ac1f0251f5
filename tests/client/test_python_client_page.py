"""The examples of docs/reference/python-client.md run; every name that `batonpass.client` promises is there."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

import batonpass.client
from tests.homeserver.served import Home, Player, homeserver_config, new_ports, served, until

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "python-client.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def shown(name: str) -> Callable[..., Any]:
    """The function of this name that the page shows."""
    (source,) = [block for block in BLOCKS if f"def {name}(" in block]
    names: dict[str, Any] = {}
    exec(compile(source, "python-client.md", "exec"), names)  # noqa: S102 — the example from our own page
    found: Callable[..., Any] = names[name]
    return found


@pytest.fixture
async def alpha(tmp_path: Path) -> AsyncIterator[Home]:
    with new_ports() as ports:
        async with served(homeserver_config(tmp_path, ports)) as home:
            node = await home.simserver("alpha.s1")
            await until(lambda: node.player_url)
            yield home


@pytest.fixture
async def ada(alpha: Home) -> Player:
    player = await alpha.player("alpha.ada")
    await alpha.entity("alpha.ball-1", player, "alpha.s1", kind="ball")
    return player


def test_every_block_of_the_page_is_run_here() -> None:
    assert re.findall(r"def (\w+)\(", "".join(BLOCKS)) == ["drive", "draw", "host", "look"]


async def test_what_drives_draws_and_looks(alpha: Home, ada: Player, capsys: pytest.CaptureFixture[str]) -> None:
    drive: Callable[..., Awaitable[None]] = shown("drive")
    await drive(alpha.api.url, ada.identity)
    assert "alpha.ball-1 alpha.s1" in capsys.readouterr().out
    await shown("draw")(alpha.api.url)
    assert "alpha.ball-1 [" in capsys.readouterr().out
    await trio.to_thread.run_sync(shown("look"), alpha.api.url)
    assert capsys.readouterr().out.startswith("alpha.s1\nalpha.ball-1 {")


async def asked_for(client: batonpass.client.PlayerClient, entity: str) -> bool:
    """Ask to own it, once it is there."""
    try:
        await client.home.own(entity)
    except batonpass.client.HomeFailure as failure:
        if failure.code != "not_found":
            raise
        return False
    return True


async def test_a_host_answers_who_wants_its_entity(alpha: Home, ada: Player) -> None:
    bob = await alpha.player("alpha.bob")
    async with trio.open_nursery() as nursery:
        invitation = await alpha.api.do("POST", "/v1/invitations", {"players": ada.name, "kinds": ["ball"]})
        nursery.start_soon(shown("host"), alpha.api.url, ada.identity, invitation["invitation"])
        async with batonpass.client.connect(alpha.api.url, player=bob.name, identity=bob.identity) as client:
            with trio.fail_after(120.0):
                while not await asked_for(client, "alpha.ada-ball"):  # noqa: ASYNC110 — nobody tells of it
                    await trio.sleep(0.05)


def test_every_name_of_the_package_is_there() -> None:
    for name in batonpass.client.__all__:
        assert getattr(batonpass.client, name) is not None
        assert name in dir(batonpass.client)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        batonpass.client.nothing  # noqa: B018
