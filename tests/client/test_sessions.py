"""A client proves its key once; then it comes in everywhere by a session, and by its key where that is refused."""

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import hypothesis.strategies as st
import pytest
import trio
from hypothesis import given, settings

from batonpass.authority.wire.door import DoorChallenge, DoorHello
from batonpass.client.client import PlayerClient, connect
from batonpass.client.player_key import PlayerKey, PlayerSession
from tests.budget import examples
from tests.homeserver.served import Home, homeserver_config, new_ports, served, until


@pytest.fixture
async def alpha(tmp_path: Path) -> AsyncIterator[Home]:
    with new_ports() as ports:
        async with served(homeserver_config(tmp_path, ports)) as home:
            node = await home.simserver("alpha.s1")
            await until(lambda: node.player_url)
            yield home


class CountingKey(PlayerKey):
    """Counts how often it was asked for a proof, and how often a session was enough."""

    proofs = 0
    shown = 0

    def prove(self, challenge: DoorChallenge, session: bytes = b"") -> DoorHello:
        hello = super().prove(challenge, session)
        self.proofs += bool(hello.proof)
        self.shown += bool(hello.token)
        return hello


async def lose_all(client: PlayerClient) -> None:
    """End the connections to home and to the door, and wait until home is back and the loss of the door was noticed."""
    home, door = client.home.link.reconnections, client.reconnections
    await client.home.link.break_off()
    await client.break_off()
    with trio.fail_after(120.0):
        while client.home.link.reconnections == home or not client.home.link.server:  # noqa: ASYNC110
            await trio.sleep(0.01)
        while client.reconnections == door:  # noqa: ASYNC110
            await trio.sleep(0.01)


async def test_the_key_is_proved_once_and_again_where_a_session_is_not_good(alpha: Home) -> None:
    ada = await alpha.player("alpha.ada")
    await alpha.entity("alpha.ball-1", ada, "alpha.s1", kind="ball", params={"p": [0, 0, 0]})
    key = CountingKey(ada.name, ada.identity)
    async with connect(alpha.api.url, key) as client:
        steering = await client.steer("alpha.ball-1")
        for _ in range(5):
            await lose_all(client)
            await steering.applied(await steering.give(bytes(12)))
        assert (key.proofs, key.shown >= 11) == (1, True)
        # Neither of them takes it; each then has the proof, and home gives another session with that.
        client.home.link.session.given(b"made up", 100.0, anyio.current_time())
        await lose_all(client)
        await steering.applied(await steering.give(bytes(12)))
        assert key.proofs in (2, 3)
        proofs = key.proofs
        await lose_all(client)
        await steering.applied(await steering.give(bytes(12)))
        assert key.proofs == proofs


async def test_an_observer_has_no_session(alpha: Home) -> None:
    async with connect(alpha.api.url) as client:
        assert client.home.link.session.at(anyio.current_time()) == b""


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1e6))
@settings(max_examples=examples(100))
def test_a_session_is_shown_while_it_lasts_and_a_little_less(begun_s: float, lasts_s: float, after_s: float) -> None:
    session = PlayerSession()
    assert session.at(begun_s) == b""
    session.given(b"token", lasts_s, begun_s)
    shown = session.at(begun_s + after_s)
    assert not shown or after_s < max(lasts_s, 1e-6)
    assert shown or after_s >= 0.89 * lasts_s - 1e-6
    session.given(b"", lasts_s, begun_s)
    assert session.at(begun_s) == b""
    session.given(b"token", lasts_s, begun_s)
    session.forget()
    assert session.at(begun_s) == b""
