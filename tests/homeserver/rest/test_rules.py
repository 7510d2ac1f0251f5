"""ask, deny, allow: who gets an entity when somebody who is not its owner wants it, from the request to the ball."""

from typing import Any

import pytest
import trio

from batonpass.authority.model.records import TransferRecord
from batonpass.authority.procedures.master_question import ASK_LIFETIME_S, MAX_ASKS, MAX_ASKS_EACH
from batonpass.homeserver.rest.models import POLICIES
from batonpass.homeserver.transfer import master_questions as questions
from batonpass.scenarios.players import masters
from batonpass.scenarios.players.masters import Master
from tests.homeserver.served import Home, Player, until

BALL = "alpha.ball-1"


class Game:
    """Ada spawned a ball on alpha.s1; Bob would like to have it on alpha.s2."""

    def __init__(self, home: Home, ada: Player, bob: Player) -> None:
        self.home = home
        self.api = home.api
        self.ada = ada
        self.bob = bob

    def wish(self, who: Player, transfer_id: str, to: str = "alpha.s2") -> dict[str, Any]:
        """The body of a request in a player's name."""
        proof = who.proof(action="transfer", entity=BALL, to=to, transfer_id=transfer_id)
        return {"to": to, "requester": who.name, "proof": proof, "transfer_id": transfer_id}

    async def request(self, who: Player, transfer_id: str, to: str = "alpha.s2") -> dict[str, Any]:
        view: dict[str, Any] = await self.api.do(
            "POST", f"/v1/entities/{BALL}/transfers", self.wish(who, transfer_id, to)
        )
        return view

    def change(self, who: Player, record: dict[str, Any], **rights: str) -> dict[str, Any]:
        """The body of a change of rights."""
        wanted: dict[str, Any] = {"rule": None, "owner": None, "master": None} | rights
        names = ["rule_rev", "owner_rev", "master_rev"] + ["policies_rev"] * bool(rights.keys() & POLICIES)
        revisions = {name: record[name] for name in names}
        proof = who.proof(action="rights", entity=BALL, **wanted, **revisions)
        return {"by": who.name, "proof": proof} | rights

    async def set(self, who: Player, **rights: str) -> dict[str, Any]:
        record: dict[str, Any] = await self.api.do(
            "PATCH", f"/v1/entities/{BALL}", self.change(who, await self.record(), **rights)
        )
        return record

    def word(self, who: Player, transfer_id: str, *, allow: bool, master_rev: int = 1) -> dict[str, Any]:
        """The body of an answer."""
        proof = who.proof(action="answer", transfer_id=transfer_id, allow=allow, master_rev=master_rev)
        return {"by": who.name, "allow": allow, "master_rev": master_rev, "proof": proof}

    async def answer(self, who: Player, transfer_id: str, *, allow: bool, master_rev: int = 1) -> dict[str, Any]:
        body = self.word(who, transfer_id, allow=allow, master_rev=master_rev)
        view: dict[str, Any] = await self.api.do("POST", f"/v1/transfers/{transfer_id}/answer", body)
        return view

    async def record(self) -> dict[str, Any]:
        record: dict[str, Any] = await self.api.get(f"/v1/entities/{BALL}")
        return record

    async def in_the_log(self) -> dict[str, Any]:
        """What the log says of the ball. How it stands is what its server answers, which may be late."""
        record = await self.record()
        del record["standing"]
        return record

    async def asks(self, who: Player) -> list[str]:
        return [ask["transfer_id"] for ask in await self.api.get(f"/v1/players/{who.name}/asks")]

    async def is_simulated(self, server: str, epoch: int) -> bool:
        """Whether the ball goes on at this server, under this epoch."""
        node = self.home.simservers[server]
        holding = node.holdings.get(BALL)
        assert holding is not None
        await until(lambda: holding.fence.epoch == epoch)
        ticks = node.ticks
        await until(lambda: node.ticks > ticks)
        return True


@pytest.fixture
async def game(world: Home) -> Game:
    game = Game(world, await world.player("alpha.ada"), await world.player("alpha.bob"))
    await world.entity(BALL, game.ada, "alpha.s1")
    return game


async def test_deny_refuses_at_once_and_records_nothing(game: Game) -> None:
    await game.set(game.ada, rule="deny")
    before = await game.in_the_log()
    body = game.wish(game.bob, "transfer-1")
    assert await game.api.refused(403, "denied", "POST", f"/v1/entities/{BALL}/transfers", body) == BALL
    await game.api.refused(404, "not_found", "GET", "/v1/transfers/transfer-1")
    assert await game.in_the_log() == before


async def test_under_allow_the_entity_goes_and_ownership_with_it(game: Game) -> None:
    await game.set(game.ada, rule="allow")
    await game.request(game.bob, "transfer-1")
    assert (await game.home.finished("transfer-1"))["result"] == "done"
    record = await game.record()
    assert (record["authority"], record["epoch"]) == ("alpha.s2", 2)
    assert (record["owner"], record["owner_rev"], record["master"]) == ("alpha.bob", 2, "alpha.ada")
    assert await game.is_simulated("alpha.s2", 2)


async def test_a_question_costs_one_round_trip_to_the_master_and_no_other_rule_costs_any(
    game: Game, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted: what the master is answered and what it asks. It waits; it does not look around."""
    talk: list[tuple[str, int]] = []
    path = "/v1/players/alpha.ada/asks"

    class Client:
        async def call(self, _instance: str, method: str, where: str, body: Any = None, **params: Any) -> Any:
            answer = await game.api.call(method, where, body, params=params, timeout=60.0)
            talk.append((f"{method} {where}", len(answer.json()) if where == path else answer.status_code))
            return answer.json()

    monkeypatch.setattr(masters, "WAIT_S", 30.0)
    client: Any = Client()
    eve = await game.home.player("alpha.eve")
    ada = Master(game.ada.name, game.ada.identity, client, lambda _question: True)
    async with trio.open_nursery() as nursery:
        await nursery.start(ada.serve)
        await game.set(game.ada, rule="allow")
        await game.request(game.bob, "transfer-1")
        await game.home.finished("transfer-1")
        await game.set(game.ada, rule="deny")
        await game.api.refused(
            403, "denied", "POST", f"/v1/entities/{BALL}/transfers", game.wish(eve, "transfer-2", "alpha.s1")
        )
        assert talk == []
        await game.set(game.ada, rule="ask")
        await game.request(eve, "transfer-2", "alpha.s1")
        assert (await game.home.finished("transfer-2"))["result"] == "done"
        nursery.cancel_scope.cancel()
    assert talk == [(f"GET {path}", 1), ("POST /v1/transfers/transfer-2/answer", 200)]


async def test_who_waits_for_questions_is_told_of_those_it_has_not_seen(
    game: Game, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "/v1/players/alpha.ada/asks"
    assert await game.api.get(path, params={"wait_s": "0.01"}) == []
    await game.request(game.bob, "transfer-1")
    assert len(await game.api.get(path, params={"wait_s": "30", "seen": "another-1"})) == 1
    assert len(await game.api.get(path, params={"wait_s": "0.01", "seen": "transfer-1,another-1"})) == 1
    # Who has no token does not wait; nor does who needs not.
    for wait_s, status in ((30, 401), (0, 200)):
        assert (await game.api.call("GET", path, params={"wait_s": str(wait_s)}, token=False)).status_code == status
    # A question becomes somebody's with the entity, too; and whoever finds no place to wait is answered at once.
    eve, found = await game.home.player("alpha.eve"), list[Any]()

    async def looks() -> None:
        found.extend(await game.api.get(f"/v1/players/{eve.name}/asks", params={"wait_s": "30"}, timeout=60.0))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(looks)
        await game.set(game.ada, master=eve.name)
    assert [ask["transfer_id"] for ask in found] == ["transfer-1"]
    for bound in ("MAX_WAITING", "MAX_WAITING_EACH"):
        with monkeypatch.context() as patched:
            patched.setattr(questions, bound, 0)
            assert await game.api.get(path, params={"wait_s": "30"}) == []
    for wrong in ("-1", "31", "nan", "soon"):
        await game.api.refused(422, "invalid_field", "GET", f"{path}?wait_s={wrong}")


async def test_under_ask_the_master_is_asked_and_only_its_yes_lets_go(game: Game) -> None:
    view = await game.request(game.bob, "transfer-1")
    assert (view["phase"], view["result"]) == ("asked", "pending")
    (ask,) = await game.api.get("/v1/players/alpha.ada/asks")
    assert ask == {
        "transfer_id": "transfer-1",
        "entity": BALL,
        "requester": "alpha.bob",
        "target": "alpha.s2",
        "stay": False,
        "want": "by_rule",
        "master_rev": 1,
        "ask_expires_at_s": view["ask_expires_at_s"],
    }
    assert await game.asks(game.bob) == []

    path = "/v1/transfers/transfer-1/answer"
    eve = await game.home.player("alpha.eve")
    for somebody in (game.bob, eve):
        body = game.word(somebody, "transfer-1", allow=True)
        assert await game.api.refused(403, "not_master", "POST", path, body) == somebody.name
    forged = game.word(eve, "transfer-1", allow=True) | {"by": "alpha.ada"}
    await game.api.refused(403, "wrong_signer", "POST", path, forged)
    other_way = game.word(game.ada, "transfer-1", allow=False) | {"allow": True}
    assert await game.api.refused(403, "proof_mismatch", "POST", path, other_way) == "allow"
    assert (await game.api.get("/v1/transfers/transfer-1"))["phase"] == "asked"

    assert (await game.answer(game.ada, "transfer-1", allow=True))["phase"] == "permitted"
    assert (await game.home.finished("transfer-1"))["result"] == "done"
    assert await game.asks(game.ada) == []
    record = await game.record()
    assert (record["owner"], record["authority"]) == ("alpha.bob", "alpha.s2")


async def test_the_masters_no_is_final(game: Game) -> None:
    await game.request(game.bob, "transfer-1")
    view = await game.answer(game.ada, "transfer-1", allow=False)
    assert (view["result"], view["reason"]) == ("refused", "denied")
    # It may be said again, as its answer may have been lost; it cannot be taken back.
    assert await game.answer(game.ada, "transfer-1", allow=False) == view
    body = game.word(game.ada, "transfer-1", allow=True)
    value = await game.api.refused(409, "too_late", "POST", "/v1/transfers/transfer-1/answer", body)
    assert value == "refused"
    # Asking again in the same words brings the same answer.
    assert await game.request(game.bob, "transfer-1") == view
    assert (await game.record())["epoch"] == 1
    assert await game.asks(game.ada) == []


async def test_a_master_that_does_not_answer_in_time_is_not_asked_any_more(game: Game) -> None:
    for transfer_id in ("transfer-1", "transfer-2", "transfer-3"):
        await game.request(game.bob, transfer_id)
    game.home.clock.ahead_s = ASK_LIFETIME_S + 30
    assert await game.asks(game.ada) == []
    view = await game.api.get("/v1/transfers/transfer-1")
    assert (view["result"], view["reason"]) == ("refused", "ask_expired")

    def late(transfer_id: str) -> dict[str, Any]:
        soon = ASK_LIFETIME_S + 60
        stated: dict[str, Any] = {"allow": True, "master_rev": 1}
        proof = game.ada.proof(lifetime_s=soon, action="answer", transfer_id=transfer_id, **stated)
        return {"by": "alpha.ada", **stated, "proof": proof}

    body = late("transfer-1")
    assert await game.api.refused(409, "too_late", "POST", "/v1/transfers/transfer-1/answer", body) == "refused"
    answered = await game.api.do("POST", "/v1/transfers/transfer-2/answer", late("transfer-2"))
    assert (answered["result"], answered["reason"]) == ("refused", "ask_expired")
    proof = game.bob.proof(
        lifetime_s=ASK_LIFETIME_S + 60, action="transfer", entity=BALL, to="alpha.s2", transfer_id="transfer-3"
    )
    body = game.wish(game.bob, "transfer-3") | {"proof": proof}
    asked_again = await game.api.do("POST", f"/v1/entities/{BALL}/transfers", body)
    assert (asked_again["result"], asked_again["reason"]) == ("refused", "ask_expired")


async def test_a_master_is_asked_a_bounded_number_of_questions(game: Game) -> None:
    crowd = [await game.home.player(f"alpha.p{number}") for number in range(MAX_ASKS // MAX_ASKS_EACH)]
    for number in range(MAX_ASKS):
        await game.request(crowd[number // MAX_ASKS_EACH], f"transfer-{number}")
    body = game.wish(game.bob, "one-too-many")
    assert await game.api.refused(409, "full", "POST", f"/v1/entities/{BALL}/transfers", body) == MAX_ASKS
    assert len(await game.asks(game.ada)) == MAX_ASKS
    assert await game.api.get("/v1/players/alpha.ada/asks?limit=3") != []
    await game.answer(game.ada, "transfer-0", allow=False)
    await game.request(game.bob, "one-too-many")
    assert "one-too-many" in await game.asks(game.ada)


async def test_one_requester_cannot_fill_the_table_and_waits_its_turn(game: Game) -> None:
    eve = await game.home.player("alpha.eve")
    for number in range(MAX_ASKS_EACH):
        await game.request(game.bob, f"transfer-{number}")
    body = game.wish(game.bob, "one-too-many")
    assert await game.api.refused(409, "full", "POST", f"/v1/entities/{BALL}/transfers", body) == MAX_ASKS_EACH
    await game.request(eve, "of-eve-1")
    assert (await game.asks(game.ada))[:3] == ["transfer-0", "of-eve-1", "transfer-1"]


async def test_a_new_master_inherits_the_questions(game: Game) -> None:
    await game.request(game.bob, "transfer-1")
    eve = await game.home.player("alpha.eve")
    await game.set(game.ada, master="alpha.eve")
    assert (await game.asks(game.ada), await game.asks(eve)) == ([], ["transfer-1"])
    body = game.word(game.ada, "transfer-1", allow=True)
    assert await game.api.refused(403, "not_master", "POST", "/v1/transfers/transfer-1/answer", body) == "alpha.ada"
    stale = game.word(eve, "transfer-1", allow=True)
    assert await game.api.refused(409, "stale_revision", "POST", "/v1/transfers/transfer-1/answer", stale) == 2
    forged = stale | {"master_rev": 2}
    path = "/v1/transfers/transfer-1/answer"
    assert await game.api.refused(403, "proof_mismatch", "POST", path, forged) == "master_rev"
    await game.answer(eve, "transfer-1", allow=True, master_rev=2)
    assert (await game.home.finished("transfer-1"))["result"] == "done"


async def test_failures_row_7_a_yes_does_not_outlive_its_master_and_the_next_one_is_asked(
    game: Game, monkeypatch: pytest.MonkeyPatch
) -> None:
    eve, orders = await game.home.player("alpha.eve"), game.home.node.orders
    order, held = orders.order, list[TransferRecord]()

    async def hold(transfer: TransferRecord) -> None:
        held.append(transfer)

    await game.request(game.bob, "transfer-1")
    with monkeypatch.context() as patch:
        patch.setattr(orders, "order", hold)
        assert (await game.answer(game.ada, "transfer-1", allow=True))["phase"] == "permitted"
    await game.set(game.ada, master="alpha.eve")
    await order(held[0])
    view = await game.home.finished("transfer-1")
    assert (view["result"], view["reason"], view["successor"]) == ("refused", "master_changed", "transfer-1-anew")
    assert ((await game.record())["authority"], (await game.record())["owner"]) == ("alpha.s1", "alpha.ada")
    assert await game.is_simulated("alpha.s1", 2)

    (ask,) = await game.api.get("/v1/players/alpha.eve/asks")
    assert (ask["transfer_id"], ask["requester"], ask["master_rev"]) == ("transfer-1-anew", "alpha.bob", 2)
    await game.answer(eve, ask["transfer_id"], allow=True, master_rev=2)
    assert (await game.home.finished("transfer-1-anew"))["result"] == "done"
    assert ((await game.record())["authority"], (await game.record())["owner"]) == ("alpha.s2", "alpha.bob")


async def test_owner_and_master_need_nobodys_leave(game: Game) -> None:
    await game.set(game.ada, rule="deny", owner="alpha.bob")
    await game.request(game.bob, "transfer-1")
    assert (await game.home.finished("transfer-1"))["result"] == "done"
    record = await game.record()
    assert (record["owner"], record["owner_rev"], record["authority"]) == ("alpha.bob", 2, "alpha.s2")

    await game.request(game.ada, "transfer-2", to="alpha.s1")
    assert (await game.home.finished("transfer-2"))["result"] == "done"
    record = await game.record()
    assert (record["owner"], record["owner_rev"], record["authority"]) == ("alpha.ada", 3, "alpha.s1")


async def test_a_move_for_the_systems_own_reasons_changes_no_owner_and_asks_nobody(game: Game) -> None:
    await game.set(game.ada, rule="deny")
    view = await game.api.do("POST", f"/v1/entities/{BALL}/transfers", {"to": "alpha.s2"})
    assert (await game.home.finished(view["transfer_id"]))["result"] == "done"
    record = await game.record()
    assert (record["owner"], record["owner_rev"], record["authority"]) == ("alpha.ada", 1, "alpha.s2")


@pytest.mark.parametrize(
    ("changed", "reason"), [({"rule": "deny"}, "rule_changed"), ({"owner": "alpha.ada"}, "owner_changed")]
)
async def test_what_changes_between_permit_and_commit_takes_the_permit_away(
    game: Game, monkeypatch: pytest.MonkeyPatch, changed: dict[str, str], reason: str
) -> None:
    await game.home.player("alpha.eve")
    await game.set(game.ada, rule="allow", owner="alpha.eve")
    orders = game.home.node.orders
    order = orders.order
    held: list[TransferRecord] = []

    async def hold(transfer: TransferRecord) -> None:
        held.append(transfer)

    monkeypatch.setattr(orders, "order", hold)
    assert (await game.request(game.bob, "transfer-1"))["phase"] == "permitted"
    await game.set(game.ada, **changed)
    await order(held[0])

    view = await game.home.finished("transfer-1")
    assert (view["result"], view["reason"]) == ("refused", reason)
    record = await game.record()
    # Where it was, under a higher epoch, which no duplicate of the refused request can reach.
    assert (record["authority"], record["epoch"]) == ("alpha.s1", 2)
    assert record["owner"] != "alpha.bob"
    assert await game.is_simulated("alpha.s1", 2)


async def test_only_the_master_changes_rights(game: Game) -> None:
    record = await game.record()
    path = f"/v1/entities/{BALL}"
    body = game.change(game.bob, record, owner="alpha.bob")
    assert await game.api.refused(403, "not_master", "PATCH", path, body) == "alpha.bob"
    forged = body | {"by": "alpha.ada"}
    assert await game.api.refused(403, "wrong_signer", "PATCH", path, forged) == "alpha.ada"
    # What shall stay is signed too, as null; and true is not 1.
    signed = {"action": "rights", "entity": BALL, "rule": "allow"} | {
        name: record[name] for name in ("rule_rev", "owner_rev", "master_rev")
    }
    short = {"by": "alpha.ada", "rule": "allow", "proof": game.ada.proof(**signed)}
    assert await game.api.refused(403, "proof_mismatch", "PATCH", path, short) == "master, owner"
    true = game.ada.proof(**signed | {"owner": None, "master": None, "rule_rev": True})
    assert await game.api.refused(403, "proof_mismatch", "PATCH", path, short | {"proof": true}) == "rule_rev"
    assert await game.record() == record


# ---- proofs ----


def tampered(proof: str) -> str:
    """The proof with another signature of the same form."""
    signed, _, signature = proof.rpartition(".")
    return f"{signed}.{'B' if signature[0] == 'A' else 'A'}{signature[1:]}"


async def test_a_change_of_rights_cannot_be_sent_again(game: Game) -> None:
    allow = game.change(game.ada, await game.record(), rule="allow")
    assert (await game.api.do("PATCH", f"/v1/entities/{BALL}", allow))["rule"] == "allow"
    assert (await game.set(game.ada, rule="ask"))["rule"] == "ask"
    value = await game.api.refused(409, "stale_revision", "PATCH", f"/v1/entities/{BALL}", allow)
    assert value == (await game.record())["rule_rev"]
    # It is a proof of this change, and of no other.
    deny = allow | {"rule": "deny"}
    assert await game.api.refused(403, "proof_mismatch", "PATCH", f"/v1/entities/{BALL}", deny) == "rule, rule_rev"
    forged = allow | {"proof": tampered(allow["proof"])}
    await game.api.refused(403, "bad_proof", "PATCH", f"/v1/entities/{BALL}", forged)
    assert (await game.record())["rule"] == "ask"


async def test_failures_row_2_a_change_of_policies_cannot_be_sent_again(game: Game) -> None:
    despawn = game.change(game.ada, await game.record(), orphans="despawn", on_leave="despawn")
    assert (await game.api.do("PATCH", f"/v1/entities/{BALL}", despawn))["policies_rev"] == 2
    kept = await game.set(game.ada, orphans="adopt", on_leave="keep")
    assert (kept["policies_rev"], kept["owner_rev"], kept["rule_rev"]) == (3, 1, 1)
    assert await game.api.refused(409, "stale_revision", "PATCH", f"/v1/entities/{BALL}", despawn) == 3
    assert await game.record() == kept
    # What changes nothing has no new revision, and what names no policy need not name theirs.
    assert (await game.set(game.ada, orphans="adopt"))["policies_rev"] == 3
    assert (await game.set(game.ada, rule="allow"))["policies_rev"] == 3


async def test_a_request_that_is_sent_again_moves_nothing_again(game: Game) -> None:
    await game.set(game.ada, rule="allow")
    wish = game.wish(game.bob, "transfer-1")
    await game.api.do("POST", f"/v1/entities/{BALL}/transfers", wish)
    done = await game.home.finished("transfer-1")
    await game.request(game.ada, "transfer-2", to="alpha.s1")
    await game.home.finished("transfer-2")

    assert await game.api.do("POST", f"/v1/entities/{BALL}/transfers", wish) == done
    renamed = wish | {"transfer_id": "transfer-3"}
    await game.api.refused(403, "proof_mismatch", "POST", f"/v1/entities/{BALL}/transfers", renamed)
    assert (await game.record())["owner"] == "alpha.ada"


async def test_a_proof_is_good_for_nothing_else(game: Game) -> None:
    path = f"/v1/entities/{BALL}/transfers"
    wish = game.wish(game.bob, "transfer-1")
    good: dict[str, Any] = {"action": "transfer", "entity": BALL, "to": "alpha.s2", "transfer_id": "transfer-1"}
    stranger = Player("alpha.bob")
    cases: list[tuple[dict[str, Any], int, str, object]] = [
        (wish | {"to": "alpha.s1"}, 403, "proof_mismatch", "to"),
        (wish | {"proof": game.bob.proof(**good | {"entity": "alpha.ball-2"})}, 403, "proof_mismatch", "entity"),
        (wish | {"proof": game.bob.proof(**good | {"action": "rights"})}, 403, "proof_mismatch", "action"),
        (wish | {"proof": game.bob.proof(**good, more=1)}, 403, "proof_mismatch", "more"),
        (wish | {"proof": stranger.proof(**good)}, 403, "bad_proof", None),
        (wish | {"proof": game.ada.proof(**good)}, 403, "wrong_signer", "alpha.bob"),
        (wish | {"proof": game.ada.proof(**good, sign_as="alpha.bob")}, 403, "bad_proof", None),
        (wish | {"proof": tampered(wish["proof"])}, 403, "bad_proof", None),
        (wish | {"proof": wish["proof"].partition(".")[2]}, 403, "bad_proof", None),
        (wish | {"proof": "🦆"}, 403, "bad_proof", None),
        (wish | {"requester": "alpha.nobody"}, 404, "unknown_player", "alpha.nobody"),
        ({"to": "alpha.s2", "requester": "alpha.bob", "transfer_id": "transfer-1"}, 422, "no_proof", "alpha.bob"),
        ({"to": "alpha.s2", "requester": "alpha.bob", "proof": "x"}, 422, "no_transfer_id", "alpha.bob"),
    ]
    no_proof = await game.api.call("POST", path, wish | {"proof": "not-a-jws"})
    assert "the proof of alpha.bob is no signed statement (" in no_proof.json()["message"]
    assert "it must be a compact JWS, signed with ES256" in no_proof.json()["message"]
    for body, status, code, value in cases:
        found = await game.api.refused(status, code, "POST", path, body)
        assert value is None or found == value, code
    for lifetime_s in (-1.0, 3600.0):
        late = wish | {"proof": game.bob.proof(lifetime_s=lifetime_s, **good)}
        assert isinstance(await game.api.refused(403, "proof_expired", "POST", path, late), float)
    await game.api.refused(404, "not_found", "GET", "/v1/transfers/transfer-1")
