"""One player asks for more than a home should hear: it is refused before the log hears of it, and delays nobody."""

import math
from typing import Any

import pytest

from batonpass.actors.base.clock import Clock
from batonpass.authority.errors import Reason, Refused
from batonpass.authority.procedures.rate_limit import BURST, Paces, Rate
from batonpass.homeserver.transfer import rate_limit as request_gate
from batonpass.homeserver.transfer.rate_limit import MAX_REQUESTERS, RATE, RequestRateLimit
from tests.homeserver.served import Home, Player

BOB, EVE = "alpha.bob", "alpha.eve"


class Copy:
    """A member's copy of the log, as far as the gate looks at it."""

    def __init__(self) -> None:
        self.known: set[str] = set()
        self.of: dict[str, Paces] = {}

    def transfer(self, transfer_id: str) -> object | None:
        return transfer_id if transfer_id in self.known else None

    def paces(self, entity: str) -> Paces:
        return self.of.get(entity, {})


class Unix(Clock):
    def unix_s(self) -> float:
        return 1000.0


class Gate:
    def __init__(self, rate: Rate = RATE) -> None:
        self.copy, self.now_s = Copy(), 0.0
        store: Any = self.copy
        self.gate = RequestRateLimit(store, Unix(), rate, lambda: self.now_s)

    def took(self, who: str, number: int, entity: str | None = None) -> bool:
        try:
            self.gate.admit(who, entity or f"alpha.e{number}", f"{who}-{number}")
        except Refused as refused:
            if refused.reason is not Reason.TOO_OFTEN:
                raise
            return False
        return True


def test_failures_row_4_one_requester_gets_no_more_than_its_burst_over_all_entities() -> None:
    gate = Gate()
    assert [gate.took(BOB, number) for number in range(800)] == [True] * RATE.burst + [False] * (800 - RATE.burst)
    assert all(gate.took(EVE, number) for number in range(RATE.burst)), "another's are as many as if Bob had not asked"
    gate.now_s = 1.0
    assert sum(gate.took(BOB, number) for number in range(800, 1600)) == RATE.per_s


def test_it_is_told_when_to_ask_again_and_is_heard_then() -> None:
    gate = Gate(Rate(1, 0.25))
    assert gate.took(BOB, 0)
    with pytest.raises(Refused) as caught:
        gate.gate.admit(BOB, "alpha.e", "again")
    gate.now_s = math.nextafter(caught.value.details["retry_after_s"], math.inf)
    assert gate.took(BOB, 1)


def test_failures_row_4_what_the_log_would_refuse_of_one_entity_is_refused_before_it() -> None:
    gate = Gate()
    gate.copy.of["alpha.ball"] = {BOB: [0.0, 1000.0]}
    assert not gate.took(BOB, 1, "alpha.ball")
    assert gate.took(EVE, 1, "alpha.ball")
    gate.copy.known.add(f"{BOB}-1")
    assert gate.took(BOB, 1, "alpha.ball"), "the log answers a repetition as the first time"


@pytest.mark.parametrize("is_in_log", [True, False], ids=["taken", "refused"])
def test_failures_row_4_a_request_said_again_takes_none_of_the_requesters_own_tokens(*, is_in_log: bool) -> None:
    """Whoever has captured one, and holds the client token, can say it again; so can its sender, who got no answer."""
    gate = Gate()
    assert gate.took(BOB, 0)
    if is_in_log:
        gate.copy.known.add(f"{BOB}-0")
    assert [gate.took(BOB, 0) for _ in range(800)] == [True] * RATE.burst + [False] * (800 - RATE.burst)
    assert [gate.took(BOB, number) for number in range(1, RATE.burst + 1)] == [True] * (RATE.burst - 1) + [False]


def test_a_bounded_number_of_requests_is_remembered_as_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_gate, "MAX_COUNTED", 2)
    gate = Gate(Rate(4, 0.001))
    assert [gate.took(BOB, number) for number in (0, 1, 2, 0, 0)] == [True] * 5
    assert not gate.took(BOB, 3), "the request that was counted longest ago is forgotten, and was counted once more"


def test_a_bounded_number_of_requesters_is_remembered() -> None:
    gate = Gate(Rate(1, 0.001))
    for number in range(MAX_REQUESTERS + 1):
        assert gate.took(f"alpha.p{number}", 0)
    assert gate.took("alpha.p0", 1), "the one who asked longest ago is forgotten"
    assert not gate.took(f"alpha.p{MAX_REQUESTERS}", 1)


async def test_failures_row_4_the_flood_of_one_delays_nobody_else(world: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    ada, bob, eve = [await world.player(f"alpha.{name}") for name in ("ada", "bob", "eve")]
    entities = [f"alpha.a{number}" for number in range(3)]
    for entity in (*entities, "alpha.z"):
        await world.entity(entity, ada, "alpha.s1")
    node, submitted = world.node, list[str]()
    node.request_gate = RequestRateLimit(node.store, node.clock, Rate(6, 0.1), lambda: 0.0)
    submit = node.store.submit

    async def counted(procedure: str, **args: Any) -> Any:
        submitted.append(procedure)
        return await submit(procedure, **args)

    monkeypatch.setattr(node.store, "submit", counted)

    def body(who: Player, entity: str, transfer_id: str) -> dict[str, Any]:
        stated: dict[str, Any] = {"want": "by_rule", "owner_rev": None, "transfer_id": transfer_id}
        proof = who.proof(action="ownership", entity=entity, **stated)
        return {"requester": who.name, "transfer_id": transfer_id, "proof": proof}

    for number in range(16):
        entity = entities[number % len(entities)]
        path, wish = f"/v1/entities/{entity}/ownership", body(bob, entity, f"bobs-wish-{number}")
        answer = await world.api.call("POST", path, wish)
        if number < 6:
            assert answer.status_code == 202, answer.text
            continue
        assert (answer.status_code, answer.json()["code"]) == (429, "too_often")
        assert (answer.json()["value"], answer.json()["retry_after_s"]) == ("alpha.bob", 10.0)
        assert answer.headers["retry-after"] == "10"
    assert submitted.count("transfer.propose") == 6, "the log has not heard of the others"

    path = "/v1/entities/alpha.z/ownership"
    assert (await world.api.do("POST", path, body(eve, "alpha.z", "eves-only")))["phase"] == "asked"
    page = await world.api.get("/v1/players/alpha.ada/asks?limit=2")
    assert [ask["requester"] for ask in page] == ["alpha.bob", "alpha.eve"], "the first of each comes first"
    assert len(await world.api.get("/v1/players/alpha.ada/asks")) == 7


async def test_the_logs_own_refusal_says_when_to_ask_again_too(world: Home) -> None:
    ada = await world.player("alpha.ada")
    await world.entity("alpha.ball", ada, "alpha.s1")
    args: dict[str, Any] = {"entity": "alpha.ball", "target": "", "stay": True, "requester": "alpha.ada", "now_s": 1e9}
    for number in range(BURST):
        await world.node.store.submit("transfer.propose", transfer_id=f"transfer-{number}", **args)
    with pytest.raises(Refused) as caught:
        await world.node.store.submit("transfer.propose", transfer_id="one-too-many", **args)
    assert caught.value.details == {"requester": "alpha.ada", "retry_after_s": 0.5}
