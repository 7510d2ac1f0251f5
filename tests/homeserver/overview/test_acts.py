"""Acts: what is written down and what is not, what of a body is kept, and where the dashboard only looks."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.actors.base.clock import Clock
from batonpass.actors.http.callers import Caller
from batonpass.actors.http.tokens import ACCESS, Access
from batonpass.crypto.access_tokens import TokenRole
from batonpass.homeserver.overview.acts import MAX_ACTS, ActsList, RecordedAct, RecordsActs, said_untrusted
from batonpass.homeserver.rest import make_app
from tests.tokens import gate

DRAIN = "/v1/servers/{name}/drain"
MOVE = "/v1/entities/{entity_id}/transfers"
CALLERS = {("POST", DRAIN): Caller.OPERATOR, ("POST", MOVE): Caller.PLAYER, ("GET", DRAIN): Caller.ANYBODY}


class Recorded:
    """A homeserver's application that answers everything with one status, behind what writes acts down."""

    def __init__(self, path: Path | None = None, *, dashboard_acts: bool = True) -> None:
        self.told: list[RecordedAct] = []
        self.asked: list[str] = []
        self.status = 202
        self.acts = ActsList(path, self.told.append, Clock())
        self.app = RecordsActs(self._answer, self.acts, CALLERS, dashboard_acts=dashboard_acts)

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked.append(scope["path"])
        while (await receive()).get("more_body"):
            pass
        is_move = scope["path"].startswith("/v1/entities")
        scope["route"] = SimpleNamespace(path_format=MOVE if is_move else DRAIN)
        scope[ACCESS] = Access(TokenRole.SERVER, "shop") if is_move else Access(TokenRole.OPERATOR, "eve")
        await send({"type": "http.response.start", "status": self.status, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    async def ask(
        self, path: str, body: Any = None, *, method: str = "POST", dashboard: bool = False
    ) -> httpx.Response:
        headers = {"baton-act": "dashboard"} if dashboard else {}
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=self.app), base_url="http://alpha") as http:
            return await http.request(method, path, json=body, headers=headers)

    @property
    def seen(self) -> list[tuple[Any, ...]]:
        return [(one.right, one.dashboard, one.method, one.path, one.said, one.status) for one in self.acts.newest(10)]


async def test_what_an_operator_does_and_what_comes_from_the_dashboard_is_written_down_newest_first() -> None:
    home = Recorded()
    body = {"to": "alpha.s2", "transfer_id": "move-0001", "proof": "secret", "keys": [1]}
    await home.ask("/v1/servers/alpha.s1/drain")
    await home.ask("/v1/entities/alpha.ball-1/transfers", body)
    await home.ask("/v1/servers/alpha.s1/drain", method="GET")
    home.status = 409
    await home.ask("/v1/entities/alpha.ball-1/transfers", body, dashboard=True)
    assert home.seen == [
        ("server", True, "POST", "/v1/entities/alpha.ball-1/transfers", {"to": "alpha.s2"}, 409),
        ("operator", False, "POST", "/v1/servers/alpha.s1/drain", {}, 202),
    ]
    assert home.told == home.acts.newest(10)[::-1]


@pytest.mark.parametrize("status", [401, 403])
async def test_who_is_not_let_in_writes_nothing_down(status: int) -> None:
    home = Recorded()
    home.status = status
    await home.ask("/v1/servers/alpha.s1/drain", dashboard=True)
    assert home.seen == []


async def test_where_the_dashboard_only_looks_nothing_of_it_gets_further() -> None:
    home = Recorded(dashboard_acts=False)
    answer = await home.ask("/v1/servers/alpha.s1/drain", dashboard=True)
    assert (answer.status_code, answer.json()["code"]) == (403, "dashboard_reads_only")
    assert home.asked == []
    assert (await home.ask("/v1/servers/alpha.s1/drain")).status_code == 202


@pytest.mark.parametrize(
    ("said", "is_loopback", "acts"),
    [(None, True, True), (None, False, False), (True, False, True), (False, True, False)],
)
async def test_the_dashboard_acts_on_loopback_and_elsewhere_if_it_is_said(
    said: bool | None, is_loopback: bool, acts: bool
) -> None:
    node = MagicMock()
    node.tokens, node.config.pages = gate(operator="operator"), None
    node.config.dashboard, node.config.dashboard_acts, node.config.rest.is_loopback = True, said, is_loopback
    app = make_app(node)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://alpha") as http:
        assert (await http.get("/v1/acts")).json() == {"acts": [], "dashboard_acts": acts}
        answer = await http.post("/v1/servers/alpha.s1/drain", headers={"baton-act": "dashboard"})
        assert answer.json()["code"] == ("no_token" if acts else "dashboard_reads_only")
        assert (await http.get("/v1/acts")).json()["acts"] == []


async def test_acts_outlive_the_process_and_the_last_thousand_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "acts.json"
    home = Recorded(path)
    await home.ask("/v1/servers/alpha.s1/drain")
    await home.ask("/v1/entities/alpha.ball-1/transfers", {"to": "alpha.s2"}, dashboard=True)
    again = Recorded(path)
    assert again.acts.newest(10) == home.acts.newest(10)
    assert path.stat().st_mode & 0o077 == 0
    one = home.acts.newest(1)[0]
    path.write_text("[" + ",".join([one.model_dump_json()] * (MAX_ACTS + 5)) + "]")
    assert len(Recorded(path).acts.newest(2 * MAX_ACTS)) == MAX_ACTS


async def test_a_list_that_cannot_be_read_is_put_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "acts.json"
    path.write_text("[{")
    path.chmod(0o600)
    home = Recorded(path)
    await home.ask("/v1/servers/alpha.s1/drain")
    assert (tmp_path / "acts.damaged").read_text() == "[{"
    assert len(json.loads(path.read_text())) == 1
    assert "cannot be read" in caplog.text


async def test_an_act_that_cannot_be_written_is_told_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home = Recorded(tmp_path / "nowhere" / "acts.json")
    assert (await home.ask("/v1/servers/alpha.s1/drain")).status_code == 202
    assert len(home.told) == 1
    assert "is not on the disk" in caplog.text


@given(st.dictionaries(st.sampled_from(["to", "by", "rule", "proof", "keys", "allow"]), st.text() | st.booleans()))
def test_of_a_body_only_short_lines_that_say_what_was_done_are_kept(body: dict[str, Any]) -> None:
    said = said_untrusted(json.dumps(body).encode())
    assert set(said) <= {"to", "by", "rule", "allow"}
    for value in said.values():
        assert not isinstance(value, str) or (len(value) <= 200 and not re.search(r"[\x00-\x1f\x7f-\x9f]", value))
