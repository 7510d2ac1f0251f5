"""Whose renewal a homeserver grants: that of the incarnation and of the secret that its log has at the end of it."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from batonpass.authority.errors import MessageError
from batonpass.authority.wire.lease import Renew
from tests.homeserver.rest.test_server_routes import Server
from tests.homeserver.served import Home

P1 = "alpha.p1"
FIRST, SECOND = "0" * 32, "1" * 32


async def verdict(home: Home, renewal: int, sender: str = P1, **said: Any) -> tuple[str, int]:
    """The verdict, and which incarnation the log knows."""
    fields: dict[str, Any] = {"server": P1, "incarnation": 1, "nonce": FIRST, "renewal": renewal}
    reply = await home.node.leases.renew(Renew(**fields | said), sender)
    # One that comes back is renewed likewise, and is given nothing until it was looked what its earlier lives had.
    return "granted" if reply.verdict == "returning" else reply.verdict, reply.known


@pytest.fixture
async def home(alpha: Home) -> Home:
    """Where alpha.p1 has the lease of its first incarnation."""
    await Server(alpha, P1).register()
    assert await verdict(alpha, 1) == ("granted", 1)
    return alpha


async def test_only_who_has_the_secret_of_the_incarnation_renews_its_lease(home: Home) -> None:
    assert await verdict(home, 2, nonce=SECOND) == ("over", 1), "a copy of the server"
    assert await verdict(home, 3, incarnation=3) == ("over", 1), "one that never was"
    assert await verdict(home, 4, incarnation=2, nonce=SECOND, previous_nonce=SECOND) == ("held", 1), "another process"
    with pytest.raises(MessageError, match=r"does not speak for alpha\.p1"):
        await verdict(home, 5, "alpha.p2")
    assert await verdict(home, 1) == ("elsewhere", 0), "a recording"
    assert await verdict(home, 6) == ("granted", 1)
    assert await verdict(home, 1, incarnation=2, nonce=SECOND, previous_nonce=FIRST) == ("granted", 2)
    assert await verdict(home, 7) == ("over", 2)


async def _next_life(home: Home) -> None:
    said = {"incarnation": 2, "nonce": SECOND, "previous_nonce": FIRST, "addresses": []}
    await home.node.store.submit("lease.claim", server=P1, **said)


async def _end(home: Home) -> None:
    office = home.node.leases.granter.office
    await home.node.store.submit("lease.expire", server=P1, incarnation=1, office=office)


@pytest.mark.parametrize(("happens", "known"), [(_next_life, 2), (_end, 1)], ids=["next-life", "end"])
async def test_what_the_log_learns_while_a_renewal_is_confirmed_counts(
    home: Home, monkeypatch: pytest.MonkeyPatch, happens: Callable[[Home], Awaitable[None]], known: int
) -> None:
    confirmed = home.node.store.confirmed

    async def meanwhile() -> None:
        await happens(home)
        await confirmed()

    monkeypatch.setattr(home.node.store, "confirmed", meanwhile)
    assert await verdict(home, 2) == ("over", known)
