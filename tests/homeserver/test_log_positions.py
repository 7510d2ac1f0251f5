"""What a homeserver takes as a proof that its log was restored from an older copy, and what it does then."""

from typing import Any

import pytest

from authority.errors import MessageError
from authority.lease_messages import Renew, RenewReply
from authority.log_positions import LogPosition
from crypto import jose
from homeserver.log_positions import LogPositions
from tests.fuzz.world import IDENTITIES
from tests.homeserver.served import Home
from tests.homeserver.test_server_routes import Server

NONCE = "0" * 32


def signed(home: Home, **changes: Any) -> str:
    """A position by this homeserver, of a log that has gone on."""
    claims = LogPosition(instance="alpha", office=1, mark="0f" * 16, revision=10**6).to_claims() | changes
    return jose.sign(claims, sender=home.node.sealer.identity, sender_id="alpha.h1")


async def renewed(home: Home, number: int, position: str | None, server: str = "alpha.p1") -> RenewReply:
    message = Renew(server=server, incarnation=1, nonce=NONCE, renewal=number, position=position)
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
    positions = LogPositions(alpha.node.sealer, alpha.node.store, alpha.node.clock)
    for number, token in enumerate(untrue, 1):
        with pytest.raises(MessageError):
            positions.read_untrusted(token)
        assert (await renewed(alpha, number, token)).verdict in ("granted", "returning"), token
    await alpha.api.get("/healthz")
