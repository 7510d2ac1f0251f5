"""Where peers are: whence they were heard last, until their link is silent; then their row in the directory counts."""

from collections import Counter
from typing import Any, cast

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from batonpass.actors.link import Event, LinkExpired, PeerClosed, PeerReachable, PeerRestarted, PeerUnreachable
from batonpass.actors.net.endpoint import LinkEndpoint
from batonpass.authority.model.records import DirectoryRow, Role
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.sealing import Sealer
from batonpass.authority.wire.transfer import OwnerRequest
from batonpass.crypto.keys import Identity
from batonpass.simserver.net.home_answers import HomeUnreachable
from batonpass.simserver.net.home_client import ROW_TTL_NS, SILENT_ROW_TTL_NS, HomeClient
from batonpass.simserver.net.outbox import Outbox
from batonpass.simserver.net.peer_addresses import PeerAddresses
from tests.simserver.ports import TrioClock, clock_of

PEER, BEFORE, SINCE = "alpha.s2", ("127.0.0.1", 1), ("127.0.0.1", 2)
NEWS = (PeerRestarted(), PeerUnreachable(), PeerReachable(), PeerClosed(), LinkExpired(0))


@given(steps=st.lists(st.one_of(st.sampled_from(NEWS), st.sampled_from([BEFORE, SINCE, "doubt"])), max_size=12))
def test_a_server_is_where_it_was_heard_last_unless_it_has_fallen_silent_since(
    steps: list[Event | tuple[str, int] | str],
) -> None:
    peer_addresses, heard, silent = PeerAddresses(), None, False
    for step in steps:
        if isinstance(step, tuple):
            peer_addresses.heard_from(PEER, step)
            heard, silent = step, False
        elif isinstance(step, str):
            peer_addresses.doubt(PEER)
            silent = True
        else:
            peer_addresses.on_news(PEER, step)
            silent = {PeerUnreachable: True, PeerReachable: False, LinkExpired: False}.get(type(step), silent)
        assert peer_addresses.of_server(PEER) == (None if silent else heard)
        assert peer_addresses.last_of(PEER) == heard, "no directory knows where a player is"
        assert peer_addresses.is_silent(PEER) == silent


def test_what_an_earlier_endpoint_said_of_silence_does_not_count_for_the_next() -> None:
    peer_addresses, listeners = PeerAddresses(), list[Any]()

    class Endpoint:
        def listen(self, listener: Any) -> None:
            listeners.append(listener)

    peer_addresses.watching(cast(LinkEndpoint, Endpoint()))
    listeners[0](PEER, PeerUnreachable())
    assert peer_addresses.is_silent(PEER)
    peer_addresses.watching(cast(LinkEndpoint, Endpoint()))
    assert not peer_addresses.is_silent(PEER)


@pytest.mark.parametrize("is_home_away", [False, True])
async def test_what_is_sent_to_a_silent_server_goes_to_where_the_directory_has_it_if_that_can_be_asked(
    autojump_clock: trio.testing.MockClock, is_home_away: bool
) -> None:
    there, went = Identity.generate().public, list[tuple[str, int]]()

    class Around:
        """The way home, and the link."""

        def keys_at_hand(self, _name: str) -> Any:
            return there

        async def keys_of(self, _name: str) -> Any:
            return there

        async def row(self, _name: str) -> DirectoryRow:
            if is_home_away:
                raise HomeUnreachable("nobody answers")
            return row_at(SINCE)

        def post(self, _to: str, where: tuple[str, int], _data: bytes, *, channel: int = 0) -> None:
            went.append(where)

    peer_addresses, around = PeerAddresses(), cast(Any, Around())
    here = Sealer.without_log("alpha.s1", Identity.generate())
    outbox = Outbox(here, around, around, TrioClock(), Counter(), peer_addresses)
    async with trio.open_nursery() as nursery:
        await nursery.start(outbox.serve)
        peer_addresses.heard_from(PEER, BEFORE)
        for news in (None, PeerUnreachable(), PeerReachable()):
            if news is not None:
                peer_addresses.on_news(PEER, news)
            outbox.send(OwnerRequest(entity="alpha.ball"), Trace("t"), PEER, on_path=False)
            await trio.sleep(1.0)
        nursery.cancel_scope.cancel()
    assert went == [BEFORE, BEFORE if is_home_away else SINCE, BEFORE]


@pytest.mark.parametrize(("is_silent", "asked_every_ns"), [(False, ROW_TTL_NS), (True, SILENT_ROW_TTL_NS)])
async def test_the_row_of_a_silent_server_is_asked_for_sooner_but_not_each_time(
    autojump_clock: trio.testing.MockClock, is_silent: bool, asked_every_ns: int
) -> None:
    asked = list[dict[str, str]]()

    class Asked(HomeClient):
        async def _directory(self, params: dict[str, str]) -> list[DirectoryRow]:
            asked.append(params)
            return [row_at(SINCE)]

    sealer, nobody = Sealer.without_log("alpha.s1", Identity.generate()), cast(Any, None)
    home = Asked(sealer, "alpha", (), b"", nobody, clock_of(TrioClock()), lambda name: is_silent and name == PEER)
    began_s = trio.current_time()
    while trio.current_time() - began_s < 60.0:
        assert await home.row(PEER) is not None
        await trio.sleep(0.25)
    assert len(asked) == 60_000_000_000 // asked_every_ns
    assert all(("fresh" in params) == is_silent for params in asked), "from its own instance, where that is another"


def row_at(where: tuple[str, int]) -> DirectoryRow:
    keys = Identity.generate().public.to_jwks()
    return DirectoryRow(name=PEER, role=Role.SIMSERVER, link_host=where[0], link_port=where[1], keys=keys)
