"""What a homeserver takes as a proof that its log was restored from an older copy, and what it does then."""

from typing import Any

import pytest

from batonpass.authority.errors import MessageError
from batonpass.authority.procedures.log_rollback import alarm_of
from batonpass.authority.trust.signed_positions import LogPlace, LogPosition
from batonpass.authority.wire.lease import Renew, RenewReply
from batonpass.crypto import jose
from batonpass.homeserver.log.log_positions import LogPositions
from batonpass.tree.raft.submissions import NoQuorum
from tests.fuzz.world import IDENTITIES
from tests.homeserver.rest.test_server_routes import Server
from tests.homeserver.served import Home, until

NONCE = "0" * 32


def signed(home: Home, **changes: Any) -> str:
    """A position by this homeserver, of a log that has gone on."""
    claims = LogPosition(instance="alpha", office=1, mark="0f" * 16, revision=10**6).to_claims() | changes
    return jose.sign(claims, sender=home.node.sealer.identity, sender_id="alpha.h1")


async def renewed(
    home: Home, number: int, position: str | None, server: str = "alpha.p1", heard: str = ""
) -> RenewReply:
    message = Renew(server=server, incarnation=1, nonce=NONCE, renewal=number, position=position, heard=heard)
    return await home.node.leases.renew(message, server)


async def test_a_server_is_told_where_the_log_is_and_what_it_shows_then_is_believed(alpha: Home) -> None:
    await Server(alpha, "alpha.p1").register()
    first = await renewed(alpha, 1, "")
    assert first.verdict in ("granted", "returning")
    assert first.position
    again = await renewed(alpha, 2, first.position)
    assert again.verdict in ("granted", "returning")
    assert (await renewed(alpha, 3, None)).position is None, "it knows of no positions"
    await alpha.api.get("/healthz")


async def test_failures_row_42_a_position_where_the_log_has_never_been_stops_the_homeserver(alpha: Home) -> None:
    await Server(alpha, "alpha.p1").register()
    await Server(alpha, "alpha.p2").register()
    assert (await renewed(alpha, 1, "", "alpha.p2")).verdict in ("granted", "returning")
    assert (await renewed(alpha, 1, signed(alpha))).verdict == "went_back"
    assert (await renewed(alpha, 2, None, "alpha.p2")).verdict == "went_back", "nobody is granted anything"
    assert alpha.node.leases.granter.office == 0
    await alpha.api.refused(503, "log_went_back", "GET", "/healthz")


async def test_failures_row_42_what_would_be_taken_back_with_the_log_is_refused_until_an_operator_accepts_the_loss(
    alpha: Home,
) -> None:
    sim = await alpha.simserver("alpha.s1")
    ada = await alpha.player("alpha.ada")
    await alpha.entity("alpha.ball-1", ada, "alpha.s1")
    headers = {"authorization": f"Bearer {(alpha.directory / 'operator').read_text()}"}
    assert (await alpha.api.do("DELETE", "/v1/cluster/log-alarm", headers=headers))["why"] == ""
    await Server(alpha, "alpha.p1").register()
    assert (await renewed(alpha, 1, signed(alpha))).verdict == "went_back"
    await until(lambda: alarm_of(alpha.node.store.tree))
    await until(lambda: sim.lease.log_went_back)
    writes: list[tuple[str, str, Any]] = [
        ("PUT", "/v1/tree/jobs/1", {"data": {}}),
        ("POST", "/v1/entities/alpha.ball-1/transfers", {"to": "alpha.s2"}),
        ("PATCH", "/v1/entities/alpha.ball-1", {}),
        ("PUT", "/v1/players/alpha.bob/keys", {"keys": ada.keys}),
    ]
    for method, path, body in writes:
        await alpha.api.refused(503, "log_went_back", method, path, body)
    assert (await alpha.api.get("/v1/entities/alpha.ball-1"))["authority"] == "alpha.s1"
    await Server(alpha, "alpha.p3").register()
    await alpha.api.refused(403, "missing_right", "DELETE", "/v1/cluster/log-alarm")
    assert sim.log_watermark.position == "", "what it was told by this log proves nothing of the other"
    assert "proves" in (await alpha.api.do("DELETE", "/v1/cluster/log-alarm", headers=headers))["why"]
    await until(lambda: sim.lease.is_alive and not sim.lease.log_went_back)
    await alpha.api.do("PUT", "/v1/tree/jobs/1", {"data": {}})
    # Whoever has the proof may show it for as long as he lives.
    other = signed(alpha, mark="ab" * 16, office=alpha.node.store.lease_office().number - 2)
    assert (await renewed(alpha, 2, other)).verdict in ("granted", "returning")
    assert not alpha.node.leases.went_back


async def test_who_grants_no_leases_is_no_judge(alpha: Home) -> None:
    """Its own log may be the one that is wrong: whoever asks is sent to the one that grants them."""
    await Server(alpha, "alpha.p1").register()
    alpha.node.leases.granter.left_office()
    answer = await alpha.node.leases._verdict_by_the_log(
        Renew(server="alpha.p1", incarnation=1, nonce=NONCE, renewal=1, position=signed(alpha))
    )
    assert answer is not None
    assert answer.verdict == "elsewhere"
    missing = LogPlace(9, 10**6, "0f0f0f0f")
    await alpha.node.leases.prove_went_back("alpha.p1", missing)
    assert not alpha.node.leases.went_back


async def test_an_alarm_that_cannot_be_written_down_counts_here_until_another_grants_leases(
    alpha: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    leases, store = alpha.node.leases, alpha.node.store
    await until(lambda: leases.granter.office)

    async def nobody(*_args: Any, **_more: Any) -> Any:
        raise NoQuorum("no majority")

    with monkeypatch.context() as patched:
        patched.setattr(store, "submit", nobody)
        await leases.prove_went_back("alpha.p1", LogPlace(9, 10**6, "0f0f0f0f"))
        assert leases.went_back
        assert not alarm_of(store.tree)
    # As soon as it can be, or somebody else is to be shown it.
    await until(lambda: alarm_of(store.tree))
    await store.submit("log.accept")
    await until(lambda: not leases.went_back and leases.granter.office)
    with monkeypatch.context() as patched:
        patched.setattr(store, "submit", nobody)
        await leases.prove_went_back("alpha.p1", LogPlace(9, 10**6, "0f0f0f0f"))
    await store.submit("lease.take_office", by="alpha.h9", after=store.lease_office().number, mark="9" * 32)
    await until(lambda: not leases.went_back)


async def test_who_merely_says_that_the_log_was_elsewhere_stops_nobody(alpha: Home) -> None:
    server = Server(alpha, "alpha.p1")
    await server.register()
    claims = LogPosition(instance="alpha", office=1, mark="0f" * 16, revision=10**6).to_claims()
    mallory = IDENTITIES["alpha.mallory"]
    untrue = [
        "not a token",
        jose.sign(claims, sender=mallory, sender_id="alpha.p1"),
        jose.sign(claims, sender=mallory, sender_id="alpha.h1"),
        jose.sign(claims, sender=mallory, sender_id="alpha.nobody"),
        signed(alpha, instance="beta"),
        signed(alpha, kind="commit"),
    ]
    positions = LogPositions(alpha.node.sealer, alpha.node.store, alpha.node.directory.parse, alpha.node.clock)
    for number, token in enumerate(untrue, 1):
        with pytest.raises(MessageError):
            positions.read_untrusted(token)
        assert (await renewed(alpha, number, token)).verdict in ("granted", "returning"), token
    await alpha.api.get("/healthz")


async def test_failures_row_42_who_was_told_of_another_log_is_granted_nothing_and_nobody_else_stands_still(
    alpha: Home, caplog: pytest.LogCaptureFixture
) -> None:
    """What a homeserver said is no proof for others: who says so may have made it up."""
    for name in ("alpha.p1", "alpha.p2"):
        await Server(alpha, name).register()
    here = alpha.node.sealer.log_for("alpha.p1")
    assert here
    assert alpha.node.sealer.log_for("beta.p1") == "", "it is nothing to others"
    office, mark, revision = here.split(".")
    for number, missing in enumerate(
        (f"{office}.{mark}.{10**6}", f"{office}.{int(mark, 16) ^ 1:08x}.{revision}", f"{int(office) + 1}.{mark}.1"), 1
    ):
        answer = await renewed(alpha, number, "", heard=f"{here} {missing}")
        assert (answer.verdict, answer.missing) == ("went_back", missing)
    assert (await renewed(alpha, 1, "", "alpha.p2", heard=here)).verdict in ("granted", "returning")
    assert not alpha.node.leases.went_back
    await alpha.api.get("/healthz")
    assert sum("log_went_back: alpha.p1" in record.message for record in caplog.records) == 1
    answer = await renewed(alpha, 9, "", heard=here)
    assert answer.verdict in ("granted", "returning")
    assert answer.missing == ""


async def test_a_server_shows_where_the_log_was_by_what_was_sealed_for_it(alpha: Home) -> None:
    one = await alpha.simserver("alpha.s1")
    ada = await alpha.player("alpha.ada")
    await alpha.entity("alpha.ball-1", ada, "alpha.s1")
    (place,) = map(LogPlace.read, one.log_watermark.places.split())
    assert place is not None
    assert place.office == alpha.node.store.lease_office().number
    # The word to spawn it came after its creation, and before the log knew that it lives.
    assert 1 < place.revision < alpha.node.store.tree.revision
    two, heard = await alpha.simserver("alpha.s2"), list[str]()
    assert two.lease._log_watermark is two.log_watermark
    two.log_watermark.heard = lambda place: heard.append(str(place))  # type: ignore[method-assign]
    await alpha.api.do("POST", "/v1/entities/alpha.ball-1/transfers", {"to": "alpha.s2", "transfer_id": "transfer-1"})
    assert (await alpha.finished("transfer-1"))["result"] == "done"
    record = alpha.node.store.entity("alpha.ball-1")
    assert record is not None
    assert record.authority == "alpha.s2"
    assert heard, "with the certificate of the commit, which does not come from home, came where the log stood then"
    other = LogPlace(place.office + 5, 10**9, place.mark)
    one.lease.heard_log("alpha.s9", str(other))
    one.lease.heard_log("beta.h1", str(other))
    assert str(other) not in one.log_watermark.places, "they are no homeservers of this instance"
