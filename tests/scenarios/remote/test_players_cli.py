"""`baton player` against a running instance, which takes what the commands sign; and how its answers are shown."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from batonpass.crypto.key_store import KeyStore
from tests.homeserver.conftest import alpha, world
from tests.homeserver.served import Home
from tests.scenarios.commands import Baton, baton_command, parsed

__all__ = ["alpha", "world"]


class Players:
    """`baton player` as somebody runs it who has set its variables, in another thread."""

    def __init__(self, home: Home, baton: Baton) -> None:
        self.home = home
        self._baton = baton

    async def run(self, *arguments: object) -> tuple[int, str, str]:
        return await trio.to_thread.run_sync(partial(self._baton, *arguments))

    async def said(self, *arguments: object) -> str:
        """What a command wrote that found nothing wrong."""
        status, out, err = await self.run(*arguments)
        assert (status, err) == (0, ""), err
        return out

    async def asks(self, transfer_id: str, player: str, entity: str, keys: Path) -> str:
        """Have somebody ask to own an entity where it is."""
        stated = {"want": "by_rule", "owner_rev": 1, "transfer_id": transfer_id}
        statement = json.dumps({"action": "ownership", "entity": entity, **stated})
        proof = (await self.said("sign", player, statement, "--keys", keys)).strip()
        body = {"requester": player, **stated, "proof": proof}
        view = await self.home.api.do("POST", f"/v1/entities/{entity}/ownership", body)
        phase: str = view["phase"]
        return phase


@pytest.fixture
def players(
    world: Home,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Players:
    monkeypatch.setenv("BATON_URL", world.api.url)
    monkeypatch.setenv("BATON_TOKEN_FILE", str(world.node.config.client_token_file))
    monkeypatch.setenv("BATON_KEYS", str(tmp_path / "ada"))
    return Players(world, baton_command(capsys, "player"))


async def test_a_player_is_registered_asked_answers_sets_a_rule_and_moves(players: Players, tmp_path: Path) -> None:
    home, bob = players.home, tmp_path / "bob"
    for _ in range(2):
        assert "alpha.ada is registered with version 1 of the keys in " in await players.said("create", "alpha.ada")
    await players.said("create", "alpha.bob", "--keys", bob)
    body = {"id": "alpha.ball-1", "kind": "ball", "spawner": "alpha.ada", "server": "alpha.s1"}
    await home.api.do("POST", "/v1/entities", body)
    assert await players.asks("bob-asks", "alpha.bob", "alpha.ball-1", bob) == "asked"

    out = await players.said("show", "alpha.ada")
    assert "owns:      alpha.ball-1, simulated at alpha.s1" in out
    assert "is asked:  bob-asks: may alpha.bob own alpha.ball-1, where it is?" in out
    assert [ask["transfer_id"] for ask in parsed(await players.run("show", "alpha.ada", "--json"))["asks"]] == [
        "bob-asks"
    ]
    status, _, err = await players.run("answer", "alpha.ada", "bob-asks")
    assert (status, "say --allow or --deny" in err) == (2, True)
    assert "done" in await players.said("answer", "alpha.ada", "bob-asks", "--allow")
    assert (await home.api.get("/v1/entities/alpha.ball-1"))["owner"] == "alpha.bob"

    assert await players.said("rule", "alpha.ada", "alpha.ball-1", "deny") == "alpha.ball-1 has the rule deny\n"
    # The owner may have it moved, whatever the rule.
    out = await players.said(
        "move", "alpha.bob", "alpha.ball-1", "alpha.s2", "--keys", bob, "--transfer-id", "bob-moves"
    )
    assert out == "bob-moves alpha.ball-1: alpha.s1 → alpha.s2, done\n"
    status, _, err = await players.run("rule", "alpha.bob", "alpha.ball-1", "allow", "--keys", bob)
    assert (status, "not_master" in err) == (1, True), err

    out = await players.said("ls", "--search", "a.a")
    assert "alpha.ada" in out
    assert "alpha.bob" not in out
    assert "1 shown, 2 in the instance" in out
    assert [row["name"] for row in parsed(await players.run("ls", "--json"))] == ["alpha.ada", "alpha.bob"]
    assert "there are more: raise --limit" in await players.said("ls", "--limit", 1)


def test_what_cannot_be_signed_is_a_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    baton = baton_command(capsys, "player", "sign", "alpha.ada")
    keys: Any = ("--keys", tmp_path / "none")
    status, _, err = baton('{"action": "leave"}', *keys)
    assert (status, "holds no keys" in err) == (3, True), err
    assert not (tmp_path / "none").exists()
    for given in ("[1]", "no JSON"):
        assert baton(given, *keys)[0] == 2


async def test_keys_are_where_baton_keys_makes_them(
    players: Players, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So one folder of keys is good for `baton keys`, `baton player` and `baton play`."""
    monkeypatch.delenv("BATON_KEYS")
    made = KeyStore(tmp_path / "eve" / "keys").load_or_create_ring()
    assert f"of the keys in {tmp_path / 'eve' / 'keys'}" in await players.said(
        "create", "alpha.eve", "--keys", tmp_path / "eve"
    )
    assert made.published.keys.signing_kid in await players.said("show", "alpha.eve")
    # A folder that has the keys itself is taken as it is.
    KeyStore(tmp_path / "bare").load_or_create_ring()
    assert f"of the keys in {tmp_path / 'bare'}\n" in await players.said(
        "create", "alpha.bare", "--keys", tmp_path / "bare"
    )
