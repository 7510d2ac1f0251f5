"""Clumsy and hostile requests: each is answered in JSON with a stable code, a sentence, and the offending value."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

from batonpass.authority.model.standing import Standing
from tests.homeserver.served import Home, Player, of_one_server, until

NEW = {"id": "alpha.ball-1", "kind": "ball", "spawner": "alpha.ada", "server": "alpha.s1"}
JSON = {"content-type": "application/json"}


async def test_unknown_routes_name_themselves_shortened(alpha: Home) -> None:
    assert await alpha.api.refused(404, "unknown_route", "GET", "/v1/nothing") == "/v1/nothing"
    for path in ("/", "/docs", "/redoc", "/v1/cluster/", "//v1/cluster", "/V1/cluster", "/v1/../v1/cluster/x"):
        await alpha.api.refused(404, "unknown_route", "GET", path)
    value = await alpha.api.refused(404, "unknown_route", "GET", "/" + "a" * 5000)
    assert len(value) == 200


@of_one_server(
    [
        ("PUT", "/v1/entities/alpha.ball-1", "DELETE, GET, PATCH"),
        ("POST", "/v1/servers/alpha.s1", "DELETE, GET, PUT"),
        ("PUT", "/v1/entities", "GET, POST"),
        ("OPTIONS", "/v1/cluster", "GET"),
        ("HEAD", "/v1/handoffs", "POST"),
        ("TRACE", "/healthz", "GET"),
        ("BREW", "/healthz", "GET"),
    ],
)
async def test_a_wrong_method_is_told_the_right_ones(alpha: Home, method: str, path: str, allow: str) -> None:
    answer = await alpha.api.call(method, path)
    assert (answer.status_code, answer.headers["allow"]) == (405, allow)
    if method != "HEAD":
        assert (answer.json()["code"], answer.json()["value"]) == ("method_not_allowed", method)


async def test_head_is_get_without_a_body(alpha: Home) -> None:
    answer = await alpha.api.call("HEAD", "/healthz")
    assert (answer.status_code, answer.content) == (200, b"")
    assert int(answer.headers["content-length"]) > 0


NO_JSON = [
    b"",
    b"{",
    b"{'id': 1}",
    b'{"id": 1,}',
    b"\xff\xfe",
    b'{"id": "\xff"}',
    b"[" * 10_000,
    b'{"id":' * 10_000,
    b"1" * 5000,
    b"\x00",
]


@of_one_server([(content,) for content in NO_JSON])
async def test_what_is_no_json_is_a_client_error(alpha: Home, content: bytes) -> None:
    answer = await alpha.api.call("POST", "/v1/entities", content=content, headers=JSON)
    assert answer.status_code in (400, 422)
    assert answer.json()["code"] in ("bad_json", "invalid_field")


@of_one_server([({},), ({"content-type": "text/plain"},)])
async def test_a_body_without_the_header_that_makes_it_json_is_told_which(alpha: Home, headers: dict[str, str]) -> None:
    answer = await alpha.api.call("POST", "/v1/entities", content=json.dumps(NEW).encode(), headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_field")
    assert "Content-Type: application/json" in answer.json()["message"]
    assert answer.json()["value"] == headers.get("content-type", "")


WRONG_BODIES: list[tuple[Any, str]] = [
    ([], "body"),
    ("text", "body"),
    (7, "body"),
    (None, "body"),
    ({}, "body.id"),
    (NEW | {"more": 1}, "body.more"),
    (NEW | {"id": None}, "body.id"),
    (NEW | {"id": 7}, "body.id"),
    (NEW | {"id": "alpha"}, "body.id"),
    (NEW | {"id": "alpha.ball-1\n"}, "body.id"),
    (NEW | {"id": "alpha.ball 1"}, "body.id"),
    (NEW | {"id": "alpha./etc"}, "body.id"),
    (NEW | {"id": "ALPHA.ball"}, "body.id"),
    (NEW | {"id": "alpha.\u00fcber"}, "body.id"),
    (NEW | {"id": "alpha." + "b" * 65}, "body.id"),
    (NEW | {"kind": ""}, "body.kind"),
    (NEW | {"kind": "k" * 65}, "body.kind"),
    (NEW | {"rule": "perhaps"}, "body.rule"),
    (NEW | {"rule": ["ask"]}, "body.rule"),
    (NEW | {"server": {}}, "body.server"),
    (NEW | {"params": []}, "body.params"),
]


async def test_a_body_of_another_shape_is_told_which_field(alpha: Home) -> None:
    for body, where in WRONG_BODIES:
        content = json.dumps(body).encode()
        answer = await alpha.api.call("POST", "/v1/entities", content=content, headers=JSON)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_field"), body
        assert answer.json()["message"].startswith(f"{where}: "), answer.text


NO_JSON = [b"NaN", b"-Infinity", b"1e400", b"[" * 500 + b"]" * 500]
STRANGE = [
    *NO_JSON,
    b'"\\ud800"',
    b"9" * 400,
    b"[" * 250 + b"]" * 250,
    b'{"a":' * 200 + b"1" + b"}" * 200,
    b'"' + b"x" * 5000 + b'"',
]


@of_one_server([(field,) for field in ("id", "kind", "rule", "server", "params", "other")])
async def test_values_that_json_can_spell_and_nobody_wants_are_named_in_the_error(alpha: Home, field: str) -> None:
    for value in STRANGE:
        fields = {name: json.dumps(text).encode() for name, text in NEW.items()} | {field: value}
        content = b"{" + b",".join(b'"%s":%s' % (name.encode(), text) for name, text in fields.items()) + b"}"
        answer = await alpha.api.call("POST", "/v1/entities", content=content, headers=JSON)
        assert answer.status_code == (400 if value in NO_JSON else 422), value[:40]
        assert len(answer.content) < 1500


async def test_parameters_that_the_world_or_the_wire_cannot_take_are_refused(world: Home) -> None:
    ada = await world.player("alpha.ada")
    for number, params in enumerate(
        [b'{"p": "\\ud800"}', b'{"\\ud800": 1}', b'{"p": NaN}', b'{"p": ' + b"9" * 100 + b"}", b'{"p": [1e400, 0, 0]}']
        + [b'{"p": ' + b"[" * depth + b"]" * depth + b"}" for depth in (70, 900)]
    ):
        body = {"id": f"alpha.ball-{number}", "kind": "ball", "spawner": ada.name, "server": "alpha.s1"}
        content = json.dumps(body)[:-1].encode() + b', "params": ' + params + b"}"
        answer = await world.api.call("POST", "/v1/entities", content=content, headers=JSON)
        assert (answer.status_code, answer.json()["code"]) in (
            (400, "bad_json"),
            (422, "spawn_refused"),
            (422, "invalid_field"),
        ), (params[:40], answer.text)
        # What was not spawned does not stay behind as a record that nobody simulates.
        await world.api.refused(404, "not_found", "GET", f"/v1/entities/alpha.ball-{number}")
    assert await world.api.refused(422, "spawn_refused", "POST", "/v1/entities", NEW | {"kind": "cube"}) == "cube"
    # What is still on its way from the one that was refused does not mean this one.
    assert (await world.entity("alpha.ball-1", ada, "alpha.s1"))["epoch"] == 2


async def test_a_wrong_content_type_is_refused(alpha: Home) -> None:
    content = json.dumps(NEW).encode()
    for headers in ({}, {"content-type": "text/plain"}, {"content-type": "application/x-www-form-urlencoded"}):
        answer = await alpha.api.call("POST", "/v1/entities", content=content, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_field")


async def test_bodies_are_bounded_by_route_with_and_without_a_declared_length(alpha: Home) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b" " * 1024

    for content in (b" " * 100 * 1024, chunks()):
        answer = await alpha.api.call("POST", "/v1/entities", content=content, headers=JSON)
        assert (answer.status_code, answer.json()["code"]) == (413, "body_too_long")
        assert answer.json()["value"] == 64 * 1024
    big = await alpha.api.call("POST", "/v1/handoffs", content=b" " * 1024 * 1024, headers=JSON)
    assert big.status_code == 400


async def test_an_encoded_slash_is_part_of_a_name_and_leads_to_no_other_route(world: Home) -> None:
    """A proxy in front that lets nobody at the transfers would let this one pass."""
    ada = await world.player("alpha.ada")
    await world.entity("alpha.ball-1", ada, "alpha.s1")
    for path in ("/v1/entities/alpha.ball-1%2Ftransfers", "/v1/entities%2falpha.ball-1", "/v1%2Fcluster"):
        await world.api.refused(404, "unknown_route", "GET", path)
    await world.api.do("PUT", "/v1/tree/jobs/a%2Fb", {"data": 1})
    assert (await world.api.get("/v1/tree/jobs/a%2Fb"))["path"] == ["jobs", "a/b"]


WRONG_NAMES = [
    "alpha",
    "alpha.",
    ".ball",
    "alpha.ball%2F1",
    "alpha.ball%00",
    "alpha.ball%0a",
    "alpha.b%C3%BCll",
    "alpha.%F0%9F%A6%86",
    "alpha.%ff",
    "alpha.ball%20",
    "alpha..",
    "%2e%2e",
    "..%2f..%2fetc",
    "alpha.ball;drop",
    "alpha." + "b" * 200,
    "ALPHA.ball",
    "-alpha.ball",
    "{entity_id}",
]
ROUTES_WITH_NAMES = [
    ("GET", "/v1/entities/{}"),
    ("GET", "/v1/entities/{}/transfers"),
    ("GET", "/v1/servers/{}"),
    ("GET", "/v1/players/{}/keys"),
    ("GET", "/v1/players/{}/asks"),
    ("GET", "/v1/transfers/{}"),
]


@of_one_server(ROUTES_WITH_NAMES)
async def test_what_is_no_name_is_refused_in_paths(alpha: Home, method: str, route: str) -> None:
    for name in WRONG_NAMES:
        answer = await alpha.api.call(method, route.format(name))
        # A slash, also an encoded one, separates: no name has one, so such a path is another route or none.
        assert (answer.status_code, answer.json()["code"]) in (
            (422, "invalid_field"),
            (404, "unknown_route"),
            (404, "not_found") if name in ("{entity_id}",) else (422, "invalid_field"),
        ), name


async def test_the_unknown_is_not_found_and_the_foreign_is_misdirected(alpha: Home) -> None:
    ada = await alpha.player("alpha.ada")
    stated: dict[str, Any] = {"allow": True, "master_rev": 1}
    proof = ada.proof(action="answer", transfer_id="transfer-1", **stated)
    answer: dict[str, Any] = {"by": ada.name, **stated, "proof": proof}
    move = {"to": "alpha.s1"}
    keys: dict[str, Any] = {"keys": ada.keys}
    for status, code, method, path, body, value in [
        (404, "not_found", "GET", "/v1/entities/alpha.none", None, "alpha.none"),
        (404, "not_found", "GET", "/v1/entities/alpha.none/transfers", None, "alpha.none"),
        (404, "not_found", "GET", "/v1/transfers/transfer-1", None, "transfer-1"),
        (404, "not_found", "POST", "/v1/transfers/transfer-1/answer", answer, "transfer-1"),
        (404, "not_found", "GET", "/v1/players/alpha.none/keys", None, "alpha.none"),
        (404, "not_found", "GET", "/v1/players/alpha.h1/keys", None, "alpha.h1"),
        (404, "not_found", "GET", "/v1/servers/alpha.ada", None, "alpha.ada"),
        (422, "unknown_target", "POST", "/v1/entities", NEW, "alpha.s1"),
        (422, "unknown_target", "POST", "/v1/entities", NEW | {"server": "alpha.h1"}, "alpha.h1"),
        (422, "unknown_target", "POST", "/v1/entities", NEW | {"server": "beta.s1"}, "beta.s1"),
        (422, "unknown_target", "POST", "/v1/entities/alpha.none/transfers", move, "alpha.s1"),
        (422, "unknown_target", "POST", "/v1/entities/alpha.none/transfers", {"to": "alpha.h1"}, "alpha.h1"),
        (421, "wrong_home", "POST", "/v1/entities", NEW | {"id": "beta.ball-1"}, "beta.ball-1"),
        (421, "wrong_home", "GET", "/v1/entities/beta.ball-1", None, "beta.ball-1"),
        (421, "wrong_home", "POST", "/v1/entities/beta.ball-1/transfers", move, "beta.ball-1"),
        (421, "wrong_home", "PUT", "/v1/players/beta.ada/keys", keys, "beta.ada"),
    ]:
        assert await alpha.api.refused(status, code, method, path, body) == value, (method, path)
    assert await alpha.api.get("/v1/players/alpha.none/asks") == []


async def test_what_is_taken_stays_taken(world: Home) -> None:
    ada, bob = await world.player("alpha.ada"), await world.player("alpha.bob")
    await world.entity("alpha.ball-1", ada, "alpha.s1")
    await world.entity("alpha.ball-2", ada, "alpha.s1")
    move = {"to": "alpha.s2", "transfer_id": "transfer-1"}
    await world.api.do("POST", "/v1/entities/alpha.ball-1/transfers", move)
    await world.finished("transfer-1")
    for code, path, body, value in [
        ("already_exists", "/v1/entities", NEW | {"kind": "cube"}, "alpha.ball-1"),
        ("already_exists", "/v1/entities", NEW | {"id": "alpha.ball-2", "spawner": bob.name}, "alpha.ball-2"),
        ("transfer_id_taken", "/v1/entities/alpha.ball-2/transfers", move, "transfer-1"),
        ("same_server", "/v1/entities/alpha.ball-1/transfers", {"to": "alpha.s2"}, "alpha.s2"),
    ]:
        assert await world.api.refused(409, code, "POST", path, body) == value
    keys: dict[str, Any] = {"keys": Player("alpha.s1").keys}
    assert await world.api.refused(409, "key_conflict", "PUT", "/v1/players/alpha.s1/keys", keys) == "alpha.s1"


async def test_a_spawn_that_nobody_confirms_says_so(alpha: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    sim = await alpha.simserver("alpha.s1")
    await alpha.player("alpha.ada")
    monkeypatch.setattr("batonpass.homeserver.transfer.creation.SPAWN_TIMEOUT_S", 0.05)

    monkeypatch.setattr(sim.births, "spawn", lambda *_: None)
    assert await alpha.api.refused(504, "spawn_unconfirmed", "POST", "/v1/entities", NEW) == "alpha.s1"
    monkeypatch.undo()
    # The outcome is learned, and had, by repeating the request.
    assert (await alpha.api.do("POST", "/v1/entities", NEW))["authority"] == "alpha.s1"


async def test_a_creation_is_answered_when_the_disk_has_it_and_the_log_knows(
    alpha: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    sim = await alpha.simserver("alpha.s1")
    await alpha.player("alpha.ada")
    monkeypatch.setattr("batonpass.homeserver.transfer.creation.SPAWN_TIMEOUT_S", 0.05)
    waits, flush = trio.Event(), sim.ledger.flush

    async def flushed_late() -> None:
        await waits.wait()
        await flush()

    monkeypatch.setattr(sim.ledger, "flush", flushed_late)
    assert await alpha.api.refused(504, "spawn_unconfirmed", "POST", "/v1/entities", NEW) == "alpha.s1"
    assert (record := alpha.node.store.entity("alpha.ball-1")) is not None
    assert record.unconfirmed
    monkeypatch.undo()
    waits.set()
    assert (await alpha.api.do("POST", "/v1/entities", NEW))["authority"] == "alpha.s1"
    assert sim.ledger.checkpoint_of("alpha.ball-1") is not None
    assert (record := alpha.node.store.entity("alpha.ball-1")) is not None
    assert not record.unconfirmed


@pytest.mark.parametrize("is_deleted", [True, False])
async def test_who_waits_for_a_creation_hears_at_once_what_became_of_it(
    alpha: Home, monkeypatch: pytest.MonkeyPatch, is_deleted: bool
) -> None:
    sim = await alpha.simserver("alpha.s1")
    await alpha.player("alpha.ada")
    monkeypatch.setattr("batonpass.homeserver.transfer.creation.SPAWN_TIMEOUT_S", 10_000.0)
    monkeypatch.setattr(sim.births, "spawn", lambda *_: None)
    store, looks = alpha.node.store, list[bool]()
    look = store.entity

    def entity(name: str) -> Any:
        record = look(name)
        looks.append(record is not None)
        return record

    monkeypatch.setattr(store, "entity", entity)

    async def ends() -> None:
        # Whoever waits has seen that it is there.
        await until(lambda: any(looks))
        if is_deleted:
            await store.submit("entity.delete", entity="alpha.ball-1", by="alpha.ada", master_rev=1)
        else:
            await store.submit("entity.discard", entity="alpha.ball-1", server="alpha.s1", epoch=1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ends)
        expected = (409, "gone") if is_deleted else (504, "spawn_unconfirmed")
        await alpha.api.refused(*expected, "POST", "/v1/entities", NEW)
    monkeypatch.undo()
    if not is_deleted:
        assert (await alpha.api.do("POST", "/v1/entities", NEW))["epoch"] == 2


def raising(error: Exception) -> Any:
    def spawn(*_: Any) -> Any:
        raise error

    return spawn


FAILS = [
    (raising(TypeError("no mass")), "the world failed: TypeError: no mass"),
    (lambda *_: {"p": object()}, "the world failed: NotPortable: it cannot be written: CBOREncode"),
    (raising(ValueError("\ud800")), "?"),
]


async def test_what_a_world_fails_to_spawn_is_refused_and_leaves_nothing_behind(
    alpha: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    sim = await alpha.simserver("alpha.s1")
    ada = await alpha.player("alpha.ada")
    for spawn, said in FAILS:
        monkeypatch.setattr("batonpass.simserver.world.demo_balls.Balls.spawn", spawn)
        answer = await alpha.api.call("POST", "/v1/entities", NEW)
        assert (answer.status_code, answer.json()["code"]) == (422, "spawn_refused"), answer.text
        assert answer.json()["message"].startswith(said)
        await alpha.api.refused(404, "not_found", "GET", "/v1/entities/alpha.ball-1")
    assert sim.counts["spawn_failed"] == len(FAILS) - 1
    monkeypatch.undo()
    await alpha.entity("alpha.ball-1", ada, "alpha.s1")


async def test_a_kind_that_the_world_does_not_know_is_refused_by_its_name(
    alpha: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    await alpha.simserver("alpha.s1")
    await alpha.player("alpha.ada")
    monkeypatch.setattr("batonpass.simserver.world.demo_balls.Balls.kinds", ("tree", "crate"), raising=False)
    answer = await alpha.api.call("POST", "/v1/entities", NEW)
    assert (answer.status_code, answer.json()["code"]) == (422, "spawn_refused"), answer.text
    assert answer.json()["message"].startswith("the world here knows no 'ball'; its kinds are crate, tree")


# ---- tokens ----

WITH_TOKEN = [
    ("POST", "/v1/entities"),
    ("PATCH", "/v1/entities/alpha.ball-1"),
    ("PUT", "/v1/entities/alpha.ball-1/delegation"),
    ("POST", "/v1/entities/alpha.ball-1/transfers"),
    ("POST", "/v1/transfers/transfer-1/answer"),
    ("PUT", "/v1/players/alpha.ada/keys"),
]


@of_one_server(WITH_TOKEN)
async def test_changes_take_the_client_token(alpha: Home, method: str, path: str) -> None:
    for header in (None, "", "Bearer", "Basic YTpi", "Token x"):
        headers = {} if header is None else {"authorization": header}
        answer = await alpha.api.call(method, path, {}, token=False, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (401, "no_token"), header
        assert answer.headers["www-authenticate"] == "Bearer"
    wrong: list[bytes] = [b"Bearer wrong", b"Bearer " + b"\xc3\xa4" * 40, b"bearer " + b"x" * 5000, b"Bearer \xff"]
    for raw in wrong:
        answer = await alpha.api.call(method, path, {}, token=False, headers={"authorization": raw})
        assert (answer.status_code, answer.json()["code"]) == (403, "wrong_token"), raw[:20]
    assert (await alpha.api.call(method, path, {})).status_code == 422


# ---- keys ----


async def test_keys_are_two_public_p256_keys_and_a_private_one_is_not_repeated(alpha: Home) -> None:
    signing, agreement = Player("alpha.ada").keys
    secret = "A" * 43
    cases: list[tuple[list[Any], str]] = [
        ([signing], "invalid_field"),
        ([signing, agreement, signing], "bad_keys"),
        ([signing, agreement] * 9, "invalid_field"),
        ([signing, 7], "invalid_field"),
        ([signing, {}], "bad_keys"),
        ([signing, signing], "bad_keys"),
        ([signing, agreement | {"crv": "P-384"}], "bad_keys"),
        ([signing, agreement | {"x": "AAAA"}], "bad_keys"),
        ([signing, agreement | {"x": 7}], "bad_keys"),
        ([signing, agreement | {"x": agreement["y"], "y": agreement["x"]}], "bad_keys"),
        ([signing | {"d": secret}, agreement], "bad_keys"),
        ([signing, {"kty": "oct", "k": secret}], "bad_keys"),
    ]
    for keys, code in cases:
        answer = await alpha.api.call("PUT", "/v1/players/alpha.ada/keys", {"keys": keys})
        assert (answer.status_code, answer.json()["code"]) == (422, code), keys
        assert secret not in answer.text
    await alpha.api.refused(404, "not_found", "GET", "/v1/players/alpha.ada/keys")


async def test_while_nobody_has_authority_a_deletion_is_done_and_the_rest_is_told(
    world: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada = await world.player("alpha.ada")
    await world.entity("alpha.ball-1", ada, "alpha.s1")
    record = world.node.store.entity("alpha.ball-1")
    assert record is not None
    nobody = record.changed(authority="", standing=Standing.LOST)
    monkeypatch.setattr(type(world.node.store), "entity", lambda *_: nobody)
    answer = await world.api.call("POST", "/v1/entities/alpha.ball-1/transfers", {"to": "alpha.s2"})
    assert (answer.status_code, answer.json()["code"]) == (503, "authority_unreachable")
    assert answer.json()["message"].startswith("no server has authority over alpha.ball-1 now: it is lost;")
    body = {"to": "alpha.s2", "transfer_id": answer.json()["value"]}
    again = await world.api.call("POST", "/v1/entities/alpha.ball-1/transfers", body)
    assert (again.status_code, again.json()["value"]) == (503, body["transfer_id"]), "it is the same transfer"
    await world.node.notices.despawn("alpha.ball-1", "", 2)
