"""Who may call which route: every route of every server, by every kind of caller.

`EXPECTED` is written down apart from the tables that servers have. After a change, write the table of the documentation
anew:

    python -m tests.homeserver.rest.test_callers
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from unittest.mock import MagicMock

import httpx
import pytest
from fastapi import FastAPI

from batonpass.actors.http.callers import Caller, CallersDiffer, RouteCallers
from batonpass.authority.model.enrolment import DoorGrant
from batonpass.crypto.access_tokens import TokenRole
from batonpass.homeserver.rest import api, make_app
from batonpass.homeserver.rest.access import AT_DOOR, PlayerAtDoor
from batonpass.homeserver.rest.allowed import ALLOWED
from batonpass.homeserver.rest.callers import HOMESERVER_CALLERS, RELAY_CALLERS
from batonpass.homeserver.server import relay
from batonpass.homeserver.server.relay import make_relay_app
from batonpass.simserver.server import http_status
from batonpass.simserver.server.callers import SIMSERVER_CALLERS
from batonpass.simserver.server.http_status import make_status_app
from tests.homeserver.rest.test_rules import BALL, Game
from tests.homeserver.served import Home, Player
from tests.tokens import NOW_S, gate, token_of, write_issuer

PAGE: Final = Path(__file__).parents[3] / "docs" / "reference" / "threats.md"
BEGIN: Final = "<!-- callers: made by tests/homeserver/rest/test_callers.py -->"
END: Final = "<!-- end of callers -->"

CLIENT: Final = """
    POST /v1/entities/many
    PUT /v1/entities/{entity_id}/delegation
    GET /v1/export
    POST /v1/groups
    POST /v1/import
    GET /v1/invitations
    POST /v1/invitations
    DELETE /v1/invitations/{invitation_id}
    GET /v1/players/{player}/enrolment
    PUT /v1/players/{player}/enrolment
    PUT /v1/players/{player}/keys
    DELETE /v1/tree/{path}
    POST /v1/tree/{path}
    PUT /v1/tree/{path}
    POST /v1/tx
"""
VIEWER: Final = """
    GET /v1/tree
    GET /v1/tree/{path}
    GET /v1/watch
"""
PLAYER: Final = """
    POST /v1/entities
    PATCH /v1/entities/{entity_id}
    POST /v1/entities/{entity_id}/delete
    POST /v1/entities/{entity_id}/divest
    POST /v1/entities/{entity_id}/hand-back
    POST /v1/entities/{entity_id}/leave
    POST /v1/entities/{entity_id}/locks/{name}/lock
    POST /v1/entities/{entity_id}/locks/{name}/unlock
    POST /v1/entities/{entity_id}/ownership
    PUT /v1/entities/{entity_id}/parent
    POST /v1/entities/{entity_id}/release
    POST /v1/entities/{entity_id}/transfers
    POST /v1/transfers/{transfer_id}/answer
    POST /v1/transfers/{transfer_id}/cancel
"""
"""The role server, or player; or a connection to the door on which a player has proved its key."""
ACTORS_AND_KEYS: Final = """
    DELETE /v1/actors/{pid}
    GET /v1/actors/{pid}
    POST /v1/actors/{pid}/resume
    PUT /v1/actors/{pid}/state
    DELETE /v1/actors/{pid}/statistics
    PUT /v1/actors/{pid}/statistics
    POST /v1/actors/{pid}/suspend
    GET /v1/actors/{pid}/trace
    DELETE /v1/keys/pins/{name}
    POST /v1/keys/revoke
    POST /v1/keys/rotate
"""
OPERATOR: Final = f"""
    {ACTORS_AND_KEYS}
    POST /v1/cluster/leader
    DELETE /v1/cluster/log-alarm
    GET /v1/cluster/log-alarm
    POST /v1/cluster/log-alarm/held
    POST /v1/cluster/members
    DELETE /v1/cluster/members/{{name}}
    POST /v1/directory/{{name}}/reset
    DELETE /v1/entities/{{entity_id}}
    DELETE /v1/players/{{player}}
    DELETE /v1/regions
    PUT /v1/regions
    POST /v1/regions/{{cell}}/merge
    POST /v1/regions/{{cell}}/move
    POST /v1/regions/{{cell}}/split
    DELETE /v1/servers/balance/pause
    POST /v1/servers/balance/pause
    DELETE /v1/servers/{{name}}
    DELETE /v1/servers/{{name}}/drain
    POST /v1/servers/{{name}}/drain
    DELETE /v1/transfers/{{transfer_id}}
"""
SIMSERVER_OPERATOR: Final = f"""
    {ACTORS_AND_KEYS}
    POST /v1/local/entities/{{entity_id}}/release
    POST /v1/local/shows/{{entity_id}}/nodes/{{server}}/hold
    POST /v1/local/shows/{{entity_id}}/nodes/{{server}}/release
    POST /v1/local/shows/{{entity_id}}/reset
"""
BY_WHAT_IT_SAYS: Final = "PUT /v1/servers/{name}", "POST /v1/handoffs", "POST /v1/federation"
"""What changes something and takes no token: a proof of the join token, or a sealed message."""

CALLERS: Final[Mapping[str, str | None]] = {
    "stranger": None,
    "client": "client",
    "operator": "operator",
    "server of the instance": "join",
    "member of the instance": "raft",
    "other instance": "federation",
    "guesser": "guess",
    "player at the door": None,
    **{f"signed {role}": token_of(role, subject="alpha.ada") for role in TokenRole},
    "signed operator of simulation servers": token_of(TokenRole.OPERATOR, audience="alpha/simservers"),
    "signed operator of another instance": token_of(TokenRole.OPERATOR, audience="beta"),
    "former operator": token_of(TokenRole.OPERATOR, expires_s=NOW_S - 31, not_before_s=NOW_S - 3600),
}
"""Kinds of callers by the bearer token that they send, each of which is of its own."""
OPERATORS: Final = {"operator", "signed operator"}
PROGRAMS: Final = OPERATORS | {"client", "signed server"}
EXPECTED: Final = [
    (VIEWER, PROGRAMS | {"signed viewer"}),
    (CLIENT, PROGRAMS),
    (PLAYER, PROGRAMS | {"player at the door", "signed player"}),
    (OPERATOR, OPERATORS),
]
CODES: Final = {
    "stranger": "no_token",
    "player at the door": "no_token",
    "server of the instance": "wrong_token",
    "member of the instance": "wrong_token",
    "other instance": "wrong_token",
    "guesser": "wrong_token",
    "signed operator of another instance": "wrong_audience",
    "former operator": "token_expired",
}
"""Of the refusal of those that no route lets in by their tokens; `missing_right` of others."""
SERVERS: Final = ["homeserver", "simulation server", "relay"]


@pytest.fixture(scope="module")
def issuer_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_issuer(tmp_path_factory.mktemp("issuer"))


def app_of(server: str, issuer_file: Path | None = None) -> FastAPI:
    """An application of which the routes are never reached."""
    node = MagicMock()
    node.tokens = gate(issuer_file, "client", "operator")
    node.store.enrolled.return_value.grant = DoorGrant()
    node.config.pages, node.leases.went_back = None, ""
    match server:
        case "homeserver":
            return make_app(node)
        case "simulation server":
            return make_status_app(node, node, gate(issuer_file, "", "operator", "alpha/simservers"))
        case _:
            return make_relay_app(node, "alpha.relay")


def table_of(server: str) -> RouteCallers:
    tables = {"homeserver": HOMESERVER_CALLERS, "simulation server": SIMSERVER_CALLERS, "relay": RELAY_CALLERS}
    return tables[server]


def expected(server: str, route: str) -> set[str]:
    """Whom the head of a request lets in."""
    operators = {"operator", "signed operator of simulation servers"}
    rows = {"homeserver": EXPECTED, "simulation server": [(SIMSERVER_OPERATOR, operators)], "relay": []}[server]
    return next((callers for routes, callers in rows if route in map(str.strip, routes.split("\n"))), set(CALLERS))


async def let_in(app: FastAPI, method: str, path: str) -> set[str]:
    """Who of all callers gets as far as the parameters of a request, of which one is a mistake."""

    async def served(scope: Any, receive: Any, send: Any) -> None:
        if scope["headers"] and (b"x-door", b"1") in scope["headers"]:
            scope[AT_DOOR] = PlayerAtDoor("alpha.ada", DoorGrant())
        await app(scope, receive, send)

    found = set()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=served), base_url="http://alpha") as http:
        for caller, token in CALLERS.items():
            headers = {"authorization": f"Bearer {token}"} if token else {}
            headers |= {"x-door": "1"} if caller == "player at the door" else {}
            answer = await http.request(method, f"{path}?mistake=1", headers=headers)
            code = "" if answer.is_success else answer.json()["code"]
            if answer.status_code in (401, 403):
                assert code in (CODES.get(caller, "missing_right"), "wrong_token", "wrong_audience")
                assert token or code == "no_token"
            else:
                assert path == "/openapi.json" or (answer.status_code, code) == (422, "invalid_field"), answer.text
                found.add(caller)
    return found


@pytest.mark.parametrize("server", SERVERS)
async def test_a_route_lets_in_these_callers_and_no_other(server: str, issuer_file: Path) -> None:
    app = app_of(server, issuer_file)
    for method, path in table_of(server):
        assert await let_in(app, method, path.replace("{pid}", "7")) == expected(server, f"{method} {path}"), path


async def test_a_server_without_an_operator_token_lets_no_operator_in() -> None:
    node = MagicMock()
    node.tokens, node.config.pages = gate(client="client"), None
    for app, server in ((make_app(node), "homeserver"), (make_status_app(node, node, gate()), "simulation server")):
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://alpha") as http:
            for (method, path), caller in table_of(server).items():
                if caller is Caller.OPERATOR:
                    answer = await http.request(method, path, headers={"authorization": "Bearer None"})
                    assert (answer.status_code, answer.json()["code"]) == (403, "no_operator"), path


@pytest.mark.parametrize("server", SERVERS)
def test_a_server_of_which_a_route_has_no_row_is_not_made(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for row in [("GET", "/healthz"), ("GET", "/openapi.json")]:
        rest = {one: caller for one, caller in table_of(server).items() if one != row}
        for module, name in (
            (api, "HOMESERVER_CALLERS"),
            (http_status, "SIMSERVER_CALLERS"),
            (relay, "RELAY_CALLERS"),
        ):
            monkeypatch.setattr(module, name, rest)
        with pytest.raises(CallersDiffer, match=f"GET {row[1]} has no row"):
            app_of(server)


def test_what_changes_something_is_let_in_by_a_token_a_proof_or_a_seal() -> None:
    for server in SERVERS:
        for (method, path), caller in table_of(server).items():
            if method != "GET":
                counts = caller in (Caller.JOINED, Caller.SEALED)
                assert counts == (f"{method} {path}" in BY_WHAT_IT_SAYS), path
                assert caller not in (Caller.ANYBODY, Caller.WAITING), path


def test_the_door_has_a_row_for_every_route_that_lets_it_in() -> None:
    changing = {row for row, caller in HOMESERVER_CALLERS.items() if caller in (Caller.AT_DOOR, Caller.PLAYER)}
    assert {row for row, right in ALLOWED.items() if right is not None} == changing
    assert {HOMESERVER_CALLERS[row] for row in set(ALLOWED) - changing} == {Caller.ANYBODY, Caller.WAITING}


# --- in whose name ----------------------------------------------------------------------------------------------------


ASKED: Final = "asked-by-eve"


def _wanted(who: str, record: Mapping[str, Any]) -> dict[str, tuple[str, dict[str, Any], dict[str, Any]]]:
    """What `who` may want of the ball: by route, the action that is signed, the rest of that, and of the body."""
    owner_rev, master_rev = record["owner_rev"], record["master_rev"]
    revisions = {name: record[name] for name in ("rule_rev", "owner_rev", "master_rev")}
    of_ball: dict[str, Any] = {"entity": BALL}
    rights = {"rule": "deny", "owner": None, "master": None}
    lock = {"name": "dock", "locks_rev": record["locks_rev"]}
    parent = {"parent": "", "parent_rev": record["parent_rev"]}
    ownership = {"want": "by_rule", "owner_rev": owner_rev, "transfer_id": f"{who}-owns"}
    transfer = {"to": "alpha.s2", "transfer_id": f"{who}-moves"}
    release = {"master_rev": master_rev, "discard_inputs": False}
    answer = {"transfer_id": ASKED, "allow": True, "master_rev": master_rev}
    ball = f"/v1/entities/{BALL}"
    return {
        f"PATCH {ball}": ("rights", of_ball | rights | revisions, rights),
        f"POST {ball}/delete": ("delete", of_ball | {"master_rev": master_rev}, {"master_rev": master_rev}),
        f"POST {ball}/divest": ("divest", of_ball | {"if_wanted": False, "owner_rev": owner_rev}, {}),
        f"POST {ball}/hand-back": ("hand_back", of_ball | {"owner_rev": owner_rev}, {}),
        f"POST {ball}/leave": ("leave", of_ball | {"owner_rev": owner_rev}, {"owner_rev": owner_rev}),
        f"POST {ball}/locks/dock/lock": ("lock", of_ball | lock, {"locks_rev": record["locks_rev"]}),
        f"POST {ball}/locks/dock/unlock": ("unlock", of_ball | lock, {"locks_rev": record["locks_rev"]}),
        f"POST {ball}/ownership": ("ownership", of_ball | ownership, ownership),
        f"PUT {ball}/parent": ("attach", of_ball | parent, parent),
        f"POST {ball}/release": ("release", of_ball | release | {"release_rev": record["release_rev"]}, release),
        f"POST {ball}/transfers": ("transfer", of_ball | transfer, transfer),
        f"POST /v1/transfers/{ASKED}/answer": ("answer", answer, {"allow": True, "master_rev": master_rev}),
        f"POST /v1/transfers/{ASKED}/cancel": ("cancel", {"transfer_id": ASKED}, {}),
    }


async def _refusal(world: Home, route: str, body: Mapping[str, Any]) -> str:
    method, path = route.split(" ")
    answer = await world.api.call(method, path, body)
    return "" if answer.is_success else str(answer.json()["code"])


async def test_what_is_done_in_a_players_name_takes_that_players_proof_and_its_right(world: Home) -> None:
    """Of the player, who has not the right; of another one, by its own key and by one that is not the player's."""
    game = Game(world, await world.player("alpha.ada"), await world.player("alpha.bob"))
    ada, bob = game.ada, game.bob
    stranger, forged = Player("alpha.mallory"), Player("alpha.ada")
    await world.entity(BALL, ada, "alpha.s1")
    stated: dict[str, Any] = {"want": "by_rule", "owner_rev": None, "transfer_id": ASKED}
    eve = await world.player("alpha.eve")
    proof = eve.proof(action="ownership", entity=BALL, **stated)
    await world.api.do("POST", f"/v1/entities/{BALL}/ownership", {"requester": eve.name, "proof": proof} | stated)
    action, statement, body = _wanted("of-ada", await game.record())[f"POST /v1/entities/{BALL}/locks/dock/lock"]
    body |= {"by": ada.name, "proof": ada.proof(action=action, **statement)}
    await world.api.do("POST", f"/v1/entities/{BALL}/locks/dock/lock", body)
    before = await game.record()
    rows = _wanted("of-bob", before)
    assert len(rows) == len([row for row in HOMESERVER_CALLERS.values() if row is Caller.PLAYER])
    for route, (action, statement, body) in rows.items():
        name = "requester" if route.endswith(("ownership", "transfers")) else "by"
        signed = {
            "wrong_signer": (ada, bob.proof(action=action, **statement)),
            "bad_proof": (ada, forged.proof(action=action, **statement)),
            "proof_mismatch": (ada, ada.proof(action="another", **statement)),
            "proof_expired": (ada, ada.proof(action=action, lifetime_s=-1, **statement)),
            "unknown_player": (stranger, stranger.proof(action=action, **statement)),
        }
        for code, (who, proof) in signed.items():
            assert await _refusal(world, route, body | {name: who.name, "proof": proof}) == code, route
        assert await _refusal(world, route, body | {name: ada.name}) in ("invalid_field", "no_proof"), route
        if name == "by":
            own = body | {"by": bob.name, "proof": bob.proof(action=action, **statement)}
            assert await _refusal(world, route, own) in ("not_owner", "not_master", "not_requester", "locked"), route
    assert await game.record() == before
    assert (await world.api.get(f"/v1/transfers/{ASKED}"))["result"] == "pending"


# --- the page ---------------------------------------------------------------------------------------------------------


def _table() -> str:
    lines = []
    for server in SERVERS:
        lines += [f"What a {server} answers over HTTP, and to whom:", "", "| route | to whom |", "|---|---|"]
        rows: dict[Caller, list[str]] = {caller: [] for caller in Caller}
        for (method, path), caller in table_of(server).items():
            rows[caller].append(f"`{method} {path}`")
        lines += [f"| {', '.join(routes)} | {caller} |" for caller, routes in rows.items() if routes]
        lines.append("")
    return "\n".join(lines)


def _page() -> str:
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n\n{_table()}\n{END}{rest.split(END)[1]}"


def test_the_page_has_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == _page(), "python -m tests.homeserver.rest.test_callers"


if __name__ == "__main__":
    PAGE.write_text(_page(), encoding="utf-8")
