"""Members whose logs differ are told from each other, and do not go on together."""

from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from batonpass.actors.base.clock import Clock
from batonpass.actors.http.client import HttpClient
from batonpass.authority.model.records import LeaseOffice
from batonpass.homeserver.log.log_identity import LogDiffers, LogIdentity
from tests.homeserver.served import Home

TOKEN = b"t" * 32


class Rows:
    """A copy of the tree, of which only the offices matter."""

    def __init__(self, marks: dict[int, str]) -> None:
        self.marks = marks

    def get_or(self, path: tuple[str, str], default: Any) -> Any:
        mark = self.marks.get(int(path[1]))
        return default if mark is None else {"mark": mark, "after": 10 * int(path[1])}


def member(name: str, marks: dict[int, str], leader: str = "alpha.h1", **way: Any) -> Any:
    row = SimpleNamespace(rest_url="http://h1")
    store: Any = SimpleNamespace(
        tree=Rows(marks),
        lease_office=lambda: LeaseOffice(holder="alpha.h3", number=max(marks, default=0)),
        row=lambda asked: row if asked == "alpha.h1" else None,
    )
    told: list[LogDiffers] = []
    client: Any = HttpClient(**way) if way else None
    made: Any = LogIdentity(name, store, TOKEN, lambda: leader, client, Clock(), told.append)
    made.told = told
    return made


def asking(name: str, marks: dict[int, str], officer: LogIdentity, **changes: Any) -> Any:
    """A member that reaches the officer over HTTP."""

    def answer(request: httpx.Request) -> httpx.Response:
        shown = officer.shown(request.url.params["nonce"]) | changes
        return httpx.Response(200, json={name: value for name, value in shown.items() if value is not None})

    return member(name, marks, transport=httpx.MockTransport(answer))


BOTH = {number: f"{number:032x}" for number in range(1, 12)}


async def test_failures_row_42_a_member_whose_log_parted_from_that_of_its_leader_ends() -> None:
    officer = member("alpha.h1", BOTH)
    other = asking("alpha.h3", BOTH | {11: "f" * 32}, officer)
    assert await other.compare()
    (error,) = other.told
    assert "alpha.h3 is not that of alpha.h1" in str(error)
    assert "office 11" in str(error)
    few = asking("alpha.h3", {1: BOTH[1], 2: "f" * 32}, officer)
    assert await few.compare()
    assert "office 2 " in str(few.told[0])


async def test_failures_row_42_an_office_that_one_has_skipped_and_the_other_has_had_tells_them_apart() -> None:
    """A log that parted from another history has skipped one (`authority.procedures.log_rollback`)."""
    skipped = {number: mark for number, mark in BOTH.items() if number != 9}
    for ours, theirs in ((skipped, BOTH), (BOTH, skipped)):
        other = asking("alpha.h3", ours, member("alpha.h1", theirs))
        assert await other.compare()
        assert "part at office 9" in str(other.told[0])
    behind = {number: mark for number, mark in skipped.items() if number < 8}
    other = asking("alpha.h3", behind, member("alpha.h1", {n: mark for n, mark in skipped.items() if n > 3}))
    assert await other.compare()
    assert other.told == []


async def test_members_that_have_the_same_history_go_on_also_if_one_of_them_is_behind() -> None:
    officer = member("alpha.h1", BOTH)
    assert len(officer.offices()) == len(BOTH)
    for marks in (BOTH, {number: BOTH[number] for number in (1, 2, 3)}, {9: BOTH[9], 10: BOTH[10]}):
        other = asking("alpha.h3", marks, officer)
        assert await other.compare()
        assert other.told == []


@pytest.mark.parametrize(
    "changes", [{"proof": "made up"}, {"proof": None}, {"offices": {"11": "f" * 32}}, {"offices": 7}]
)
async def test_what_is_not_proved_by_the_join_token_ends_nobody(changes: dict[str, Any]) -> None:
    other = asking("alpha.h3", BOTH, member("alpha.h1", BOTH), **changes)
    assert not await other.compare()
    assert other.told == []


async def test_who_cannot_be_asked_is_asked_again_and_nobody_asks_himself() -> None:
    def refuses(_request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("nobody there")

    assert not await member("alpha.h3", BOTH, transport=httpx.MockTransport(refuses)).compare()
    assert not await member("alpha.h3", BOTH, leader="alpha.h9").compare()
    assert await member("alpha.h1", BOTH).compare()
    assert await member("alpha.h3", BOTH, leader="").compare()


async def test_members_show_their_offices_to_each_other(alpha: Home) -> None:
    shown = await alpha.api.get("/v1/cluster/offices", params={"nonce": "n" * 20}, token=False)
    assert shown == alpha.node.log_identity.shown("n" * 20)
    assert shown["offices"]
    await alpha.api.refused(422, "invalid_field", "GET", "/v1/cluster/offices", token=False)
