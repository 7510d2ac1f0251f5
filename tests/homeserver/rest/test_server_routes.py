"""What other servers call: registration, directory rows, sealed parcels, the federation."""

import json
import secrets
from pathlib import Path
from typing import Any

import pytest
import trio

from batonpass.authority.protocol_version import PROTOCOL_VERSION
from batonpass.authority.trust.key_pinning import address_claims, registration_proof, rows_proof
from batonpass.authority.wire.envelope import WAIT_HEADER
from batonpass.authority.wire.hops import REPEATED, Trace
from batonpass.authority.wire.lease import Renew, RenewReply
from batonpass.authority.wire.sealing import OpenedMessage, Sealer
from batonpass.authority.wire.transfer import (
    AdmitRequest,
    HandoffReply,
    HandoffRequest,
    Message,
    Parcel,
    Report,
    ReportReply,
    Spawned,
)
from batonpass.crypto.jose import sign
from batonpass.crypto.keys import Identity
from batonpass.homeserver.config import PeerConfig
from tests.homeserver.served import Home, homeserver_config, new_ports, served

NONCE = "n" * 16
HASH = "0" * 64


class Server:
    """A simulation server that exists on paper only: it registers and seals, and simulates nothing."""

    def __init__(self, home: Home, name: str) -> None:
        self.home = home
        self.name = name
        self.sealer = Sealer.without_log(name, Identity.generate())

    def registration(
        self, *, after: int | None = None, signer: Identity | None = None, **changes: Any
    ) -> dict[str, Any]:
        """The body with which it registers; its addresses are signed to follow on revision `after` of its row.

        By default that is the present one.
        """
        if after is None:
            standing = self.home.node.store.row(self.name)
            after = 0 if standing is None else standing.revision
        fields: dict[str, Any] = {
            "role": "simserver",
            "keys": self.sealer.identity.public.to_jwks(),
            "rest_url": "http://127.0.0.1:1",
            "link_host": "127.0.0.1",
            "link_port": 9009,
            "protocol": PROTOCOL_VERSION,
        } | changes
        claims = address_claims(
            self.name, fields["rest_url"], fields["link_host"], fields["link_port"], revision=after + 1
        )
        signed = sign(claims, sender=signer or self.sealer.identity, sender_id=self.name)
        fields = {"address_statement": signed} | fields
        join_token = (self.home.directory / "join").read_bytes()
        return fields | {"proof": registration_proof(join_token, self.name, fields)}

    async def register(self, **changes: Any) -> dict[str, Any]:
        row: dict[str, Any] = await self.home.api.do("PUT", f"/v1/servers/{self.name}", self.registration(**changes))
        return row

    def seal(self, message: Message, to: str = "", *, on_path: bool = True) -> dict[str, Any]:
        """A parcel for the homeserver, as it travels in a body."""
        node = self.home.node
        parcel = self.sealer.seal(
            message,
            Trace(getattr(message, "transfer_id", "transfer-1")),
            to=to or node.config.name,
            keys=node.sealer.identity.public,
            now_ns=node.clock.monotonic_ns(),
            now_s=node.clock.unix_s(),
            on_path=on_path,
        )
        return json.loads(json.dumps(parcel.to_data()))  # type: ignore[no-any-return]  # JSON is Any

    def open(self, data: dict[str, Any]) -> OpenedMessage:
        node = self.home.node
        return self.sealer.open_untrusted(
            Parcel.from_data_untrusted(data),
            sender=node.sealer.identity.public,
            now_ns=node.clock.monotonic_ns(),
            now_s=node.clock.unix_s(),
        )

    async def ask(self, message: Message, *, on_path: bool = True) -> Message:
        answer = await self.home.api.do("POST", "/v1/handoffs", {"parcel": self.seal(message, on_path=on_path)})
        return self.open(answer["parcel"]).message

    async def renewed(self, message: Renew) -> RenewReply:
        """The answer to a renewal, as `homeserver.failover.renewal_lane` gives it over the link."""
        node = self.home.node
        (opened,) = await node.parcels.open_untrusted(Parcel.from_data_untrusted(self.seal(message, on_path=False)))
        reply = await node.leases.renewed(opened)
        answer = self.open((await node.parcels.seal(reply, opened.trace, self.name, on_path=False)).to_data()).message
        assert isinstance(answer, RenewReply)
        return answer


def handoff(**changes: Any) -> HandoffRequest:
    fields: dict[str, Any] = {
        "transfer_id": "transfer-1",
        "entity": "alpha.ball-1",
        "epoch": 1,
        "sub": 0,
        "source": "alpha.p1",
        "target": "alpha.p2",
        "tick": 7,
        "state_hash": HASH,
    }
    return HandoffRequest(**fields | changes)


@pytest.fixture
async def paper(alpha: Home, monkeypatch: pytest.MonkeyPatch) -> Server:
    """`alpha.p1` of paper has authority over `alpha.ball-1`; `alpha.p2` of paper exists."""
    await Server(alpha, "alpha.p2").register()
    server = Server(alpha, "alpha.p1")
    await server.register()
    monkeypatch.setattr("batonpass.homeserver.transfer.creation.SPAWN_TIMEOUT_S", 0.01)
    ada = await alpha.player("alpha.ada")
    body = {"id": "alpha.ball-1", "kind": "ball", "spawner": ada.name, "server": "alpha.p1"}
    await alpha.api.refused(504, "spawn_unconfirmed", "POST", "/v1/entities", body)
    return server


# ---- registration ----


async def test_a_server_registers_again_after_every_start_with_the_same_keys(alpha: Home) -> None:
    server = Server(alpha, "alpha.p1")
    row = await server.register()
    assert (row["name"], row["role"], row["link_port"]) == ("alpha.p1", "simserver", 9009)
    moved = await server.register(link_port=9010)
    assert moved == row | {"link_port": 9010}
    other = Server(alpha, "alpha.p1").registration()
    assert await alpha.api.refused(409, "key_conflict", "PUT", "/v1/servers/alpha.p1", other) == "alpha.p1"
    assert await alpha.api.get("/v1/servers/alpha.p1") == moved


async def test_the_join_token_moves_no_address_that_the_server_has_not_signed(alpha: Home) -> None:
    server = Server(alpha, "alpha.p1")
    row = await server.register()

    async def refused(code: str, body: dict[str, Any]) -> None:
        assert await alpha.api.refused(403, code, "PUT", "/v1/servers/alpha.p1", body) == "alpha.p1"

    await refused("bad_proof", server.registration(after=1, link_port=9010, address_statement=""))
    by_another = server.registration(after=1, link_port=9010, signer=Identity.generate())
    await refused("bad_proof", by_another)
    # Every member of it counts, as the server's name does: a statement of one is none of another.
    others: list[dict[str, Any]] = [{"rest_url": "http://127.0.0.1:2"}, {"link_host": "127.0.0.2"}, {"link_port": 9010}]
    for other in others:
        borrowed = server.registration(after=1)["address_statement"]
        await refused("proof_mismatch", server.registration(after=1, **other, address_statement=borrowed))
    twin = Server(alpha, "alpha.p2")
    twin.sealer = Sealer.without_log("alpha.p2", server.sealer.identity)
    borrowed = twin.registration(after=1, link_port=9010)["address_statement"]
    await refused("wrong_signer", server.registration(after=1, link_port=9010, address_statement=borrowed))
    assert await alpha.api.get("/v1/servers/alpha.p1") == row


async def test_a_recorded_registration_moves_no_server_back(alpha: Home) -> None:
    server = Server(alpha, "alpha.p1")
    recorded = server.registration()
    await alpha.api.do("PUT", "/v1/servers/alpha.p1", recorded)
    moved = await server.register(link_port=9010)
    # Its own name and keys, its own signature, and the join token's: only the number tells.
    assert await alpha.api.refused(409, "stale_revision", "PUT", "/v1/servers/alpha.p1", recorded) == 2
    # Not later either, when the number of the row has gone on.
    await server.register(link_port=9011)
    assert await alpha.api.refused(409, "stale_revision", "PUT", "/v1/servers/alpha.p1", recorded) == 3
    assert (await alpha.api.get("/v1/servers/alpha.p1"))["link_port"] == 9011 != moved["link_port"]


async def test_a_recorded_registration_brings_no_removed_server_back(alpha: Home) -> None:
    server = Server(alpha, "alpha.p1")
    recorded = server.registration()
    await alpha.api.do("PUT", "/v1/servers/alpha.p1", recorded)
    await alpha.node.store.submit("server.drain", server="alpha.p1", drain_id="drain-1", now_s=0.0)
    await alpha.node.store.submit("server.remove", server="alpha.p1", drain_id="drain-1")
    assert await alpha.api.refused(409, "stale_revision", "PUT", "/v1/servers/alpha.p1", recorded) == 1
    await alpha.api.refused(404, "not_found", "GET", "/v1/servers/alpha.p1")
    again = await alpha.api.do("PUT", "/v1/servers/alpha.p1", server.registration(after=1))
    assert again["name"] == "alpha.p1"


async def test_registration_takes_the_join_token_over_every_field(alpha: Home) -> None:
    good = Server(alpha, "alpha.p1").registration()
    for changed in (
        {"link_port": 9010},
        {"rest_url": "http://elsewhere"},
        {"proof": ""},
        {"proof": "🦆"},
        {"keys": Server(alpha, "alpha.p1").sealer.identity.public.to_jwks()},
    ):
        value = await alpha.api.refused(403, "wrong_token", "PUT", "/v1/servers/alpha.p1", good | changed)
        assert value == "alpha.p1"
    # Nor is it good for another name.
    assert await alpha.api.refused(403, "wrong_token", "PUT", "/v1/servers/alpha.p2", good) == "alpha.p2"
    assert await alpha.api.refused(421, "wrong_home", "PUT", "/v1/servers/beta.p1", good) == "beta.p1"
    for wrong in ({"role": "homeserver"}, {"role": "player"}, {"link_port": 0}, {"link_port": 65536}, {"more": 1}):
        await alpha.api.refused(422, "invalid_field", "PUT", "/v1/servers/alpha.p1", good | wrong)
    bad_keys = Server(alpha, "alpha.p1").registration(keys={"keys": []})
    await alpha.api.refused(422, "bad_keys", "PUT", "/v1/servers/alpha.p1", bad_keys)
    await alpha.api.refused(404, "not_found", "GET", "/v1/servers/alpha.p1")


@pytest.mark.parametrize("version", [0, PROTOCOL_VERSION + 1], ids=["says none", "a later one"])
async def test_a_server_of_another_release_is_refused_at_once_with_both_numbers(
    alpha: Home, caplog: pytest.LogCaptureFixture, version: int
) -> None:
    body = Server(alpha, "alpha.p1").registration(protocol=version)
    assert await alpha.api.refused(409, "other_release", "PUT", "/v1/servers/alpha.p1", body) == PROTOCOL_VERSION
    await alpha.api.refused(404, "not_found", "GET", "/v1/servers/alpha.p1")
    (line,) = [one.getMessage() for one in caplog.records if "other_release" in one.getMessage()]
    its = f"protocol version {version}" if version else "an earlier protocol, without a version"
    assert f"alpha.p1 speaks {its}, and alpha.h1 version {PROTOCOL_VERSION}" in line


@pytest.mark.parametrize("version", [0, PROTOCOL_VERSION + 1])
async def test_no_lease_of_a_server_of_another_release_is_renewed_and_it_is_told_why(
    alpha: Home, caplog: pytest.LogCaptureFixture, version: int
) -> None:
    """The homeservers were exchanged while it ran."""
    server = Server(alpha, "alpha.p1")
    await server.register()
    for number in (1, 2):
        message = Renew(server="alpha.p1", incarnation=1, nonce="0" * 32, renewal=number, protocol=version)
        answer = await server.renewed(message)
        assert (answer.verdict, answer.protocol) == ("other_release", PROTOCOL_VERSION)
    assert alpha.node.store.lease("alpha.p1") is None
    assert caplog.text.count("other_release: the lease of alpha.p1 is not renewed") == 1, "it asks five times a second"
    good = Renew(server="alpha.p1", incarnation=1, nonce="0" * 32, renewal=3, protocol=PROTOCOL_VERSION)
    answer = await server.renewed(good)
    assert answer.verdict in ("granted", "returning")


@pytest.mark.parametrize(
    "unusable",
    [
        {"link_host": "::1"},
        {"link_host": "localhost"},
        {"link_host": "0.0.0.0"},
        {"link_host": "224.0.0.1"},
        {"link_host": "255.255.255.255"},
        {"link_port": 53},
        {"rest_url": "file:///etc/passwd"},
        {"rest_url": "http://user:secret@127.0.0.1:1"},
        {"rest_url": "http://0.0.0.0:1"},
        {"rest_url": "http://127.0.0.1:0"},
        {"rest_url": ""},
    ],
    ids=str,
)
async def test_a_server_is_not_registered_where_nobody_could_reach_it(alpha: Home, unusable: dict[str, Any]) -> None:
    """Also not where only one IP version can: a link reaches the one of the homeservers."""
    body = Server(alpha, "alpha.p1").registration(**unusable)
    assert await alpha.api.refused(422, "bad_address", "PUT", "/v1/servers/alpha.p1", body) == "alpha.p1"
    await alpha.api.refused(404, "not_found", "GET", "/v1/servers/alpha.p1")
    await Server(alpha, "alpha.p1").register()


async def test_a_player_cannot_become_a_server_nor_a_server_a_player(alpha: Home) -> None:
    await alpha.player("alpha.ada")
    body = Server(alpha, "alpha.ada").registration()
    assert await alpha.api.refused(409, "key_conflict", "PUT", "/v1/servers/alpha.ada", body) == "alpha.ada"
    keys = {"keys": Identity.generate().public.to_jwks()["keys"]}
    assert await alpha.api.refused(409, "key_conflict", "PUT", "/v1/players/alpha.h1/keys", keys) == "alpha.h1"


# ---- the directory ----


async def test_directory_rows_are_proved_with_the_join_token_over_the_callers_nonce(world: Home) -> None:
    join_token = (world.directory / "join").read_bytes()
    await world.player("alpha.ada")
    for query, names in [
        ("", ["alpha.h1", "alpha.s1", "alpha.s2"]),
        ("&role=homeserver", ["alpha.h1"]),
        ("&role=player", []),
        ("&name=alpha.s1", ["alpha.s1"]),
        ("&name=alpha.ada", ["alpha.ada"]),
        ("&name=alpha.none", []),
        ("&name=beta.s1", []),
    ]:
        answer = await world.api.get(f"/v1/directory?nonce={NONCE}{query}")
        assert [row["name"] for row in answer["rows"]] == names
        assert answer["proof"] == rows_proof(join_token, "directory", NONCE, answer["rows"])
    for query in ("", "nonce=short", f"nonce={'n' * 65}", f"nonce={NONCE}&role=king", f"nonce={NONCE}&name=alpha"):
        await world.api.refused(422, "invalid_field", "GET", f"/v1/directory?{query}")


# ---- parcels ----


async def test_what_nobody_waits_for_any_more_is_dropped_and_nothing_was_done(paper: Server) -> None:
    body = {"parcel": paper.seal(handoff())}
    late = await paper.home.api.call("POST", "/v1/handoffs", body, headers={WAIT_HEADER: "0"})
    assert (late.status_code, late.json()["code"]) == (503, "nobody_waits")
    assert (await paper.home.api.get("/v1/entities/alpha.ball-1"))["authority"] == "alpha.p1"
    for wrong in ("soon", "-1", "600001"):
        answer = await paper.home.api.call("POST", "/v1/handoffs", body, headers={WAIT_HEADER: wrong})
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_field")
    in_time = await paper.home.api.call("POST", "/v1/handoffs", body, headers={WAIT_HEADER: "60000"})
    assert in_time.status_code == 204
    assert (await paper.home.api.get("/v1/entities/alpha.ball-1"))["authority"] == "alpha.p2"


async def test_a_hand_over_is_decided_and_answered_sealed_or_by_another_way(paper: Server) -> None:
    answer = await paper.home.api.call("POST", "/v1/handoffs", {"parcel": paper.seal(handoff())})
    assert (answer.status_code, answer.content) == (204, b"")
    # Said again, as its answer may have been lost, it is answered here too.
    reply = await paper.ask(handoff())
    assert isinstance(reply, HandoffReply)
    assert (reply.outcome, reply.authority, reply.epoch) == ("committed", "alpha.p2", 2)
    record = await paper.home.api.get("/v1/entities/alpha.ball-1")
    assert (record["authority"], record["epoch"]) == ("alpha.p2", 2)


async def test_a_stranger_to_the_entity_is_told_who_holds_it(paper: Server) -> None:
    stranger = Server(paper.home, "alpha.p3")
    await stranger.register()
    reply = await stranger.ask(handoff(source="alpha.p3", transfer_id="transfer-3"))
    assert isinstance(reply, HandoffReply)
    assert (reply.outcome, reply.reason, reply.authority, reply.epoch) == ("refused", "not_holder", "alpha.p1", 1)


async def test_what_is_no_parcel_for_this_server_is_a_bad_message(paper: Server) -> None:
    good = paper.seal(handoff())
    stranger = Server(paper.home, "alpha.p1")
    header, payload, signature = good["sealed"].split(".")
    bad: list[Any] = [
        {},
        good | {"more": 1},
        {name: good[name] for name in ("trace", "kind", "sealed")},
        good | {"on_path": "yes"},
        good | {"on_path": False},
        good | {"kind": "report"},
        good | {"kind": ""},
        good | {"kind": "k" * 33},
        good | {"sealed": ""},
        good | {"sealed": "a.b.c"},
        good | {"sealed": 7},
        good | {"sealed": "\ud800"},
        good | {"sealed": f"{header}.{payload[:-8]}{'A' * 8}.{signature}"},
        good | {"sealed": f"{header}.{payload}.{'A' * len(signature)}"},
        good | {"trace": {}},
        good | {"trace": good["trace"] | {"transfer_id": "transfer-2"}},
        good | {"trace": good["trace"] | {"hops": []}},
        good | {"trace": good["trace"] | {"hops": [good["trace"]["hops"][0]] * 40}},
        good | {"trace": good["trace"] | {"marks": [["alpha.p1", "frozen", 2**70]]}},
        stranger.seal(handoff()),
        Server(paper.home, "alpha.p9").seal(handoff()),
        Server(paper.home, "beta.p1").seal(handoff(source="beta.p1")),
        paper.seal(handoff(), to="alpha.h2"),
        paper.seal(handoff(source="alpha.p2")),
        paper.seal(Spawned(entity="alpha.ball-1"), on_path=False),
        paper.seal(AdmitRequest(transfer_id="transfer-1", entity="alpha.ball-1", target="alpha.p2")),
    ]
    for number, parcel in enumerate(bad):
        content = json.dumps({"parcel": parcel}).encode()
        headers = {"content-type": "application/json"}
        answer = await paper.home.api.call("POST", "/v1/handoffs", content=content, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_message"), (number, answer.text)
    wrong_bodies: list[dict[str, Any]] = [{}, {"parcel": []}, {"parcel": good, "more": 1}]
    for body in wrong_bodies:
        await paper.home.api.refused(422, "invalid_field", "POST", "/v1/handoffs", body)
    record = await paper.home.api.get("/v1/entities/alpha.ball-1")
    assert (record["authority"], record["epoch"]) == ("alpha.p1", 1)


async def test_a_parcel_that_is_too_old_is_a_bad_message(paper: Server) -> None:
    parcel = paper.seal(handoff())
    paper.home.clock.ahead_s = 3600.0
    await paper.home.api.refused(400, "bad_message", "POST", "/v1/handoffs", {"parcel": parcel})


class Broken(Trace):
    """A trace that is written as something else."""

    def __init__(self, data: dict[str, Any]) -> None:
        super().__init__("transfer-1")
        self.data = data

    def to_data(self) -> dict[str, Any]:
        return self.data


async def test_no_report_makes_a_transfer_unreadable(paper: Server) -> None:
    await paper.home.api.call("POST", "/v1/handoffs", {"parcel": paper.seal(handoff())})
    trace = Trace("transfer-1").mark("alpha.p1", "frozen", 1)
    data = trace.to_data()
    for broken in ({}, {"hops": 7}, data | {"marks": [["alpha.p1", "frozen", -1]]}, data | {"more": 1}):
        message = Report(
            transfer_id="transfer-1",
            entity="alpha.ball-1",
            source="alpha.p1",
            trace=Broken(broken),
            off_path={"state": 1},
            counters={"requests": 1},
        )
        body = {"parcel": paper.seal(message, on_path=False)}
        await paper.home.api.refused(400, "bad_message", "POST", "/v1/handoffs", body)
        assert (await paper.home.api.get("/v1/transfers/transfer-1"))["result"] == "pending"
    report = Report(
        transfer_id="transfer-1",
        entity="alpha.ball-1",
        source="alpha.p1",
        trace=trace,
        off_path={"state": 1},
        counters={"requests": 1},
    )
    assert isinstance(await paper.ask(report, on_path=False), ReportReply)
    view = await paper.home.api.get("/v1/transfers/transfer-1")
    assert (view["result"], view["timings_ms"]) == ("done", {})


async def test_hops_of_a_transfer_that_took_a_repetition_are_not_shown_as_if_they_were_counted(paper: Server) -> None:
    await paper.home.api.call("POST", "/v1/handoffs", {"parcel": paper.seal(handoff())})
    trace = Trace("transfer-1").mark("alpha.p1", "frozen", 1_000_000)
    trace = trace.leave("alpha.p1", "handoff", 2).arrive("alpha.h1", 3).mark("alpha.h1", REPEATED, 4)
    trace = trace.mark("alpha.h1", "committed", 5).mark("alpha.p2", "activated", 3_000_000)
    report = Report(
        transfer_id="transfer-1", entity="alpha.ball-1", source="alpha.p1", trace=trace, off_path={}, counters={}
    )
    assert isinstance(await paper.ask(report, on_path=False), ReportReply)
    view = await paper.home.api.get("/v1/transfers/transfer-1")
    assert (view["result"], view["repeated"], view["hops"], view["timings_ms"]) == ("done", True, None, {"total": 2.0})
    assert view["trace"] == trace.to_data(), "what there is of it can be looked at"


# ---- the federation ----


async def test_a_query_is_answered_with_rows_proved_with_the_federation_secret(alpha: Home) -> None:
    federation = (alpha.directory / "federation").read_bytes()
    await alpha.player("alpha.ada")
    for query, names in [
        ({"query": "members"}, ["alpha.h1"]),
        ({"query": "row", "name": "alpha.ada"}, ["alpha.ada"]),
        ({"query": "row", "name": "alpha.none"}, []),
    ]:
        body = {"to_instance": "alpha", "query": query | {"nonce": NONCE}}
        answer = await alpha.api.do("POST", "/v1/federation", body)
        assert [row["name"] for row in answer["rows"]] == names
        assert answer["proof"] == rows_proof(federation, "federation:alpha", NONCE, answer["rows"])


async def test_a_federation_body_for_somebody_else_is_misdirected(alpha: Home) -> None:
    query = {"query": "members", "nonce": NONCE}
    parcel = Server(alpha, "beta.p1").seal(handoff())
    elsewhere = {"to_instance": "beta", "query": query}
    assert await alpha.api.refused(421, "wrong_home", "POST", "/v1/federation", elsewhere) == "beta"
    other_member = {"to_instance": "alpha", "to": "alpha.h2", "parcel": parcel}
    assert await alpha.api.refused(421, "misdirected", "POST", "/v1/federation", other_member) == "alpha.h2"
    unknown_sender = {"to_instance": "alpha", "to": "alpha.h1", "parcel": parcel}
    await alpha.api.refused(400, "bad_message", "POST", "/v1/federation", unknown_sender)
    not_a_parcel = {"to_instance": "alpha", "to": "alpha.h1", "parcel": {}}
    await alpha.api.refused(400, "bad_message", "POST", "/v1/federation", not_a_parcel)


async def test_a_federation_body_is_one_whole_thing(alpha: Home) -> None:
    members = {"query": "members", "nonce": NONCE}
    wrong: list[dict[str, Any]] = [
        {},
        {"parcel": {}, "query": members, "to": "alpha.h1"},
        {"parcel": {}},
        {"query": members, "to": "alpha"},
        {"query": {"query": "members"}},
        {"query": {"query": "members", "nonce": "short"}},
        {"query": {"query": "everything", "nonce": NONCE}},
        {"query": {"query": "row", "nonce": NONCE}},
        {"query": {"query": "row", "name": "alpha", "nonce": NONCE}},
        {"query": members | {"name": "alpha.ada"}},
        {"query": members | {"more": "1"}},
        *({"to_instance": name, "query": members} for name in ("", "Alpha", "alpha.h1", "a" * 17, None)),
    ]
    for fields in wrong:
        body = {"to_instance": "alpha"} | fields
        await alpha.api.refused(422, "invalid_field", "POST", "/v1/federation", body)


async def test_players_and_servers_of_another_instance_are_found_there(tmp_path: Path) -> None:
    with new_ports() as ports:
        near, far = homeserver_config(tmp_path, ports), homeserver_config(tmp_path, ports, "beta.h1")
        near = near.model_copy(update={"peers": (PeerConfig(instance="beta", urls=(far.rest.url,)),)})
        async with served(near) as alpha, served(far) as beta:
            bob = await beta.player("beta.bob")
            assert (await alpha.api.get("/v1/cluster"))["routes"] == {"beta": 1}
            found = await alpha.api.get("/v1/players/beta.bob/keys")
            assert {key["kid"] for key in found["keys"]} == {key["kid"] for key in bob.keys}
            assert (await alpha.api.get("/v1/servers/beta.h1"))["rest_url"] == far.rest.url
            assert await alpha.api.refused(404, "not_found", "GET", "/v1/players/beta.none/keys") == "beta.none"


async def test_rows_of_a_later_version_are_read_and_passed_on(tmp_path: Path) -> None:
    with new_ports() as ports:
        near, far = homeserver_config(tmp_path, ports), homeserver_config(tmp_path, ports, "beta.h1")
        near = near.model_copy(update={"peers": (PeerConfig(instance="beta", urls=(far.rest.url,)),)})
        async with served(near) as alpha, served(far) as beta:
            server = Server(beta, "beta.s1")
            await server.register()
            row = beta.node.store.row("beta.s1")
            assert row is not None
            later = row.to_data() | {"colour": "red"}
            await beta.node.store.submit("directory.register", row=later, follows=None)
            params = {"nonce": NONCE, "name": "beta.s1"}
            rows = (await alpha.api.get("/v1/directory", params=params))["rows"]
            assert rows[0]["colour"] == "red"
            view = await alpha.api.get("/v1/servers/beta.s1")
            assert "colour" not in view
            one = await alpha.simserver("alpha.s1")
            assert await one.home.keys_of("beta.s1") == server.sealer.identity.public


async def test_rows_that_are_not_proved_with_the_federation_secret_are_not_believed(tmp_path: Path) -> None:
    with new_ports() as ports:
        near, far = homeserver_config(tmp_path, ports), homeserver_config(tmp_path, ports, "beta.h1")
        other_secret = tmp_path / "other"
        other_secret.write_text(secrets.token_urlsafe(32))
        other_secret.chmod(0o600)
        near = near.model_copy(update={"peers": (PeerConfig(instance="beta", urls=(far.rest.url,)),)})
        far = far.model_copy(update={"federation_secret_file": other_secret})
        async with served(near) as alpha, served(far) as beta:
            await beta.player("beta.bob")
            await alpha.api.refused(502, "peer_unreachable", "GET", "/v1/players/beta.bob/keys")


async def test_an_instance_that_cannot_be_reached_is_a_bad_gateway_for_what_needs_it(tmp_path: Path) -> None:
    with new_ports() as ports:
        nobody = f"http://127.0.0.1:{ports.choose()}"
        config = homeserver_config(tmp_path, ports)
        config = config.model_copy(update={"peers": (PeerConfig(instance="beta", urls=(nobody,)),)})
        async with served(config) as alpha:
            server = Server(alpha, "alpha.p1")
            await server.register()
            request = {"parcel": server.seal(handoff(entity="beta.ball-1"))}
            with trio.fail_after(90):
                await alpha.api.refused(502, "peer_unreachable", "POST", "/v1/handoffs", request)
                # Nobody says that there is no such player; of an instance without a route nobody ever will.
                await alpha.api.refused(502, "peer_unreachable", "GET", "/v1/players/beta.bob/keys")
                assert await alpha.api.refused(404, "not_found", "GET", "/v1/players/gamma.g/keys") == "gamma.g"
