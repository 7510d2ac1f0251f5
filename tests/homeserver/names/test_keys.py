"""Running servers change their keys, lose them and lie about them."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from batonpass.authority.node.breakpoints import Breakpoint
from batonpass.crypto.continuity import Published, sign_successor
from batonpass.crypto.key_store import KeyStore
from batonpass.crypto.keys import Identity, PublicIdentity
from batonpass.crypto.pin_file import PinFile
from batonpass.homeserver.config import PeerConfig
from batonpass.homeserver.names import federation as federation_module
from batonpass.simserver.net import home_client as simserver_home
from batonpass.simserver.net.home_answers import HomeRefused
from batonpass.simserver.server.main import run as run_simserver
from tests.homeserver.served import DEADLINE_S, Home, Player, homeserver_config, new_ports, served, simserver_config


@pytest.fixture
def operator(alpha: Home) -> dict[str, str]:
    return operator_of(alpha)


def operator_of(home: Home) -> dict[str, str]:
    return {"authorization": f"Bearer {(home.directory / 'operator').read_text()}"}


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 -- what is waited for has no event
            await trio.sleep(0.01)


def kids(keys: dict[str, Any]) -> list[str]:
    return [key["kid"] for key in keys["keys"]]


async def move(home: Home, entity: str, to: str, transfer_id: str, **more: Any) -> None:
    body = {"to": to, "transfer_id": transfer_id, "transport": "link"} | more
    await home.api.do("POST", f"/v1/entities/{entity}/transfers", body)
    assert (await home.finished(transfer_id))["result"] == "done"


async def test_a_homeserver_and_simulation_servers_change_keys_while_entities_move(
    alpha: Home, operator: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simserver_home, "KEYS_TTL_NS", 0)
    one, two = await alpha.simserver("alpha.s1"), await alpha.simserver("alpha.s2")
    ada = await alpha.player("alpha.ada")
    await alpha.entity("alpha.ball-1", ada, "alpha.s1")
    await move(alpha, "alpha.ball-1", "alpha.s2", "transfer-1")
    before = await alpha.api.get("/v1/keys")
    assert (before["version"], before["published"], before["statements"]) == (1, True, [])

    view = await alpha.api.do("POST", "/v1/keys/rotate", {"overlap_s": 3600}, headers=operator)
    assert (view["version"], view["published"], len(view["statements"])) == (2, True, 1)
    assert kids(view["keys"])[2:] == kids(before["keys"])
    assert (await alpha.api.get("/v1/servers/alpha.h1"))["keys"] == view["keys"]
    await move(alpha, "alpha.ball-1", "alpha.s1", "transfer-2")

    for node in (one, two):
        old = node.sealer.identity.public.signing_kid
        await alpha.keys[node.config.name].rotate(3600.0)
        assert node.sealer.identity.public.signing_kid != old
        assert node.sealer.identity.public.retiring
    await move(alpha, "alpha.ball-1", "alpha.s2", "transfer-3")
    for transport in ("rest", "link"):
        await move(alpha, "alpha.ball-1", "alpha.s1", f"transfer-a-{transport}", transport=transport)
        await move(alpha, "alpha.ball-1", "alpha.s2", f"transfer-b-{transport}", transport=transport)

    revoked = await alpha.api.do("POST", "/v1/keys/revoke", {"kid": kids(view["keys"])[0]}, headers=operator)
    assert {entry["kid"] for entry in revoked["keys"]["revoked"]} == set(kids(view["keys"])[:2])
    await alpha.keys[two.config.name].revoke(two.sealer.identity.public.signing_kid)
    await move(alpha, "alpha.ball-1", "alpha.s1", "transfer-4")
    pin = one.home.pins.pin_of("alpha.s2")
    assert pin is None or pin.version == 3 or not one.home.pins.conflicts
    assert not one.home.pins.conflicts
    assert one.counts["bad_message"] == two.counts["bad_message"] == 0


async def test_changing_keys_takes_the_operator_token_and_what_is_wrong_is_said(
    alpha: Home, operator: dict[str, str]
) -> None:
    for method, path, body in (
        ("POST", "/v1/keys/rotate", {}),
        ("POST", "/v1/keys/revoke", {"kid": "k" * 43}),
        ("DELETE", "/v1/keys/pins/alpha.s1", None),
        ("POST", "/v1/directory/alpha.s1/reset", {}),
    ):
        await alpha.api.refused(401, "no_token", method, path, body, token=False)
        await alpha.api.refused(403, "missing_right", method, path, body)
    assert (
        await alpha.api.refused(404, "unknown_key", "POST", "/v1/keys/revoke", {"kid": "k" * 43}, headers=operator)
        == "k" * 43
    )
    await alpha.api.refused(404, "not_pinned", "DELETE", "/v1/keys/pins/alpha.s1", headers=operator)
    await alpha.api.refused(422, "invalid_field", "POST", "/v1/keys/rotate", {"overlap_s": -1}, headers=operator)
    first = {"overlap_s": 60, "version": 1}
    for _ in range(3):
        assert (await alpha.api.do("POST", "/v1/keys/rotate", first, headers=operator))["version"] == 2
    for _ in range(2):
        await alpha.api.do("POST", "/v1/keys/rotate", {"overlap_s": 60}, headers=operator)
    stale = await alpha.api.refused(409, "stale_revision", "POST", "/v1/keys/rotate", first, headers=operator)
    assert stale == 4
    await alpha.api.refused(409, "too_many_keys", "POST", "/v1/keys/rotate", {}, headers=operator)
    alpha.clock.ahead_s = 61.0
    await alpha.api.do("POST", "/v1/keys/rotate", {"overlap_s": 60}, headers=operator)
    await until(lambda: len(alpha.node.sealer.identity.retiring) == 1)


async def test_a_server_that_lost_its_keys_is_let_in_again_by_the_operator(
    alpha: Home, operator: dict[str, str], tmp_path: Path
) -> None:
    await alpha.player("alpha.ada")
    old = KeyStore(tmp_path / "old").load_or_create()
    lost = alpha.directory / "alpha.s1" / "keys"
    await register(alpha, "alpha.s1", old)
    with pytest.raises(HomeRefused, match="baton keys reset"):
        await run_simserver(simserver_config(alpha, "alpha.s1"))
    new = KeyStore(lost).load_ring().identity.public
    body = {"keys": new.to_jwks()["keys"], "reason": "the disk is lost"}
    await alpha.api.refused(409, "own_keys", "POST", "/v1/directory/alpha.h1/reset", body, headers=operator)
    await alpha.api.refused(404, "not_found", "POST", "/v1/directory/alpha.none/reset", body, headers=operator)
    await alpha.api.refused(421, "wrong_home", "POST", "/v1/directory/beta.s1/reset", body, headers=operator)
    for bad in ({"keys": [], "reason": "x"}, body | {"reason": ""}, body | {"more": 1}):
        await alpha.api.refused(422, "invalid_field", "POST", "/v1/directory/alpha.s1/reset", bad, headers=operator)
    for unfit in (body | {"reason": "a\nb"}, body | {"keys": old.public.to_jwks()["keys"]}):
        await alpha.api.refused(422, "bad_keys", "POST", "/v1/directory/alpha.s1/reset", unfit, headers=operator)
    row = await alpha.api.do("POST", "/v1/directory/alpha.s1/reset", body, headers=operator)
    assert row["version"] == 2
    assert {entry["kid"] for entry in row["keys"]["revoked"]} == {old.public.signing_kid, old.public.agreement_kid}
    node = await alpha.simserver("alpha.s1")
    keys = alpha.keys[node.config.name]
    assert (keys.ring.version, keys.is_published) == (2, True)
    ring = await keys.rotate(60.0)
    assert (await alpha.api.get("/v1/servers/alpha.s1"))["version"] == ring.version == 3


async def register(home: Home, name: str, identity: Identity) -> None:
    from tests.homeserver.rest.test_server_routes import Server

    server = Server(home, name)
    server.sealer.change_identity(identity)
    await server.register()


async def test_keys_of_players_are_followed_too(alpha: Home) -> None:
    ada = await alpha.player("alpha.ada")
    changed = ada.identity.rotated(Identity.generate(), now_s=alpha.clock.unix_s(), overlap_s=60)
    old = Published(1, ada.identity.public)
    statement = sign_successor("alpha.ada", old, changed.public, signer=ada.identity, now_s=alpha.clock.unix_s())
    put = ("PUT", "/v1/players/alpha.ada/keys")
    body = changed.public.to_jwks() | {"version": 2, "statements": [statement]}
    await alpha.api.refused(409, "key_conflict", *put, body | {"statements": []})
    await alpha.api.refused(409, "key_conflict", *put, body | {"keys": Identity.generate().public.to_jwks()["keys"]})
    assert (await alpha.api.do(*put, body))["version"] == 2
    assert (await alpha.api.do(*put, body))["revision"] == 2
    await alpha.api.refused(409, "key_conflict", *put, {"keys": Player("alpha.ada").keys, "version": 3})
    ada.identity = changed
    await alpha.simserver("alpha.s1")
    await alpha.simserver("alpha.s2")
    await alpha.entity("alpha.ball-1", ada, "alpha.s1")
    proof = ada.proof(action="transfer", entity="alpha.ball-1", to="alpha.s2", transfer_id="transfer-1")
    await move(alpha, "alpha.ball-1", "alpha.s2", "transfer-1", requester="alpha.ada", proof=proof)


async def test_a_liar_between_two_instances_cannot_swap_roll_back_or_split(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """He even knows the federation secret, so that the proofs of his rows are right."""
    monkeypatch.setattr(federation_module, "FRESH_NS", 0)
    thief = Identity.generate()
    with new_ports() as ports:
        near, far = homeserver_config(tmp_path, ports), homeserver_config(tmp_path, ports, "beta.h1")
        near = near.model_copy(update={"peers": (PeerConfig(instance="beta", urls=(far.rest.url,)),)})
        async with served(near) as alpha, served(far) as beta:
            bob = await beta.player("beta.bob")
            first = beta.node.store.row("beta.bob")
            assert first is not None
            look = alpha.node.directory

            async def seen() -> PublicIdentity | None:
                return await look.keys_of("beta.bob", fresh=True)

            assert await seen() == bob.identity.public
            renewed = bob.identity.rotated(Identity.generate(), now_s=beta.clock.unix_s(), overlap_s=3600)
            statement = sign_successor(
                "beta.bob",
                Published(1, bob.identity.public),
                renewed.public,
                signer=bob.identity,
                now_s=beta.clock.unix_s(),
            )
            row = first.changed(keys=renewed.public.to_jwks(), version=2, statements=(statement,))
            forged = sign_successor(
                "beta.bob", Published(1, bob.identity.public), thief.public, signer=thief, now_s=beta.clock.unix_s()
            )
            split = sign_successor(
                "beta.bob",
                Published(1, bob.identity.public),
                thief.public,
                signer=bob.identity,
                now_s=beta.clock.unix_s(),
            )
            lies = [first.changed(keys=thief.public.to_jwks())]
            lies.append(first.changed(keys=thief.public.to_jwks(), version=2, statements=(forged,)))
            for lie in lies:
                beta.node.store.find_row = always(lie)  # type: ignore[method-assign]
                assert await seen() == bob.identity.public
            beta.node.store.find_row = always(row)  # type: ignore[method-assign]
            assert await seen() == renewed.public
            for lie in (*lies, first, first.changed(keys=thief.public.to_jwks(), version=2, statements=(split,))):
                beta.node.store.find_row = always(lie)  # type: ignore[method-assign]
                assert await seen() == renewed.public
            view = await alpha.api.get("/v1/keys")
            assert "two different versions 2" in view["conflicts"]["beta.bob"]
            assert view["counts"]["keys_refused"] == 6
            assert PinFile(near.directory / "keys" / "pins.jsonl").load()["beta.bob"].pin.version == 2
            headers = operator_of(alpha)
            await alpha.api.do("DELETE", "/v1/keys/pins/beta.bob", headers=headers)
            assert await seen() == thief.public


def always(row: Any) -> Any:
    async def find_row(_: str) -> Any:
        await trio.lowlevel.checkpoint()
        return row

    return find_row


async def test_private_keys_never_leave_over_rest(alpha: Home, operator: dict[str, str]) -> None:
    await alpha.api.do("POST", "/v1/keys/rotate", {"overlap_s": 60}, headers=operator)
    store = KeyStore(alpha.node.config.directory / "keys")
    identity = store.load_ring().identity
    text = json.dumps(await alpha.api.get("/v1/keys"))
    for one in identity.generations:
        for key in (one.signing, one.agreement):
            secret = key.private_numbers().private_value.to_bytes(32, "big")
            assert base64.urlsafe_b64encode(secret).rstrip(b"=").decode() not in text


@pytest.mark.parametrize("who", ["alpha.s1", "alpha.s2"])
@pytest.mark.parametrize("at", ["frozen", "offered", "permitted", "activated"])
async def test_failures_row_19_identity_keys_are_replaced_in_the_midst_of_a_hand_over(
    alpha: Home, at: str, who: str
) -> None:
    """Real seals: what was sealed before opens for the overlap, and what comes after is opened with the next keys."""
    nodes = {name: await alpha.simserver(name) for name in ("alpha.s1", "alpha.s2")}
    ada = await alpha.player("alpha.ada")
    await alpha.entity("alpha.ball-1", ada, "alpha.s1")
    before, rotated = nodes[who].sealer.identity.public.signing_kid, trio.Event()

    async def rotate() -> None:
        await alpha.keys[who].rotate(3600.0)
        rotated.set()

    async with trio.open_nursery() as nursery:
        steps = [at]

        def reached(step: Breakpoint, transfer_id: str) -> None:
            if transfer_id == "transfer-1" and [step] == steps:
                steps.clear()
                nursery.start_soon(rotate)

        for node in nodes.values():
            node.departures._reached = node.arrivals._reached = reached
        await move(alpha, "alpha.ball-1", "alpha.s2", "transfer-1")
        with trio.fail_after(10):
            await rotated.wait()
    public = nodes[who].sealer.identity.public
    assert public.signing_kid != before
    assert public.knows(before)
    record = await alpha.api.get("/v1/entities/alpha.ball-1")
    assert (record["authority"], record["epoch"]) == ("alpha.s2", 2), "once"
    await move(alpha, "alpha.ball-1", "alpha.s1", "transfer-2")
    assert [node.counts["internal_error"] for node in nodes.values()] == [0, 0]
