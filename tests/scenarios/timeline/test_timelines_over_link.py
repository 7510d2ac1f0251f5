"""Peers of one hosted history by all ways: the link, polls and WebSocket; handed over, and its server killed."""

import secrets
from collections import Counter
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any

import httpx
import trio

from batonpass.actors.http.client import HttpClient
from batonpass.actors.link import Address
from batonpass.actors.net.datagrams import DatagramSocket, Outbound
from batonpass.actors.net.endpoint import LinkEndpoint
from batonpass.crypto.keys import Identity
from batonpass.simserver.sync.door.ports import PROVED
from batonpass.simserver.sync.hosting.world import EVENT_STREAMS
from batonpass.simserver.sync.play.over_link import door_over_link, link_transport
from batonpass.simserver.sync.play.session import follow_stream
from batonpass.simserver.sync.timeline.ids import fiat_id, id_of
from batonpass.simserver.sync.timeline.times import parts_of
from tests.scenarios.asked import LIMIT_S, come, limited
from tests.scenarios.cluster.test_failover import world
from tests.scenarios.lockstep.test_hosted_streams import door_of
from tests.scenarios.timeline.test_hosted_timelines import END, HISTORY, Given, Villager, all_have, take_part
from tests.simserver.sync.timeline.village import Come, Leave, Pay

pytestmark = limited

SERVERS = ("alpha.s1", "alpha.s2", "alpha.s3")
LOST = 0.1
DICE = Random(39)
LOSSES = Counter[str]()


class LossySocket(DatagramSocket):
    """Loses a tenth of the datagrams that leave."""

    def send(self, datagrams: Sequence[Outbound]) -> int:
        kept = [one for one in datagrams if DICE.random() >= LOST]
        LOSSES["lost"] += len(datagrams) - len(kept)
        return len(datagrams) if not kept or super().send(kept) == len(kept) else 0

    def send_one(self, datagram: bytes, address: Address) -> bool:
        if DICE.random() < LOST:
            LOSSES["lost"] += 1
            return True
        return super().send_one(datagram, address)


class LossyLink(LinkEndpoint):
    socket_class = LossySocket


async def follow_over_link(peer: Villager, name: str, identity: Identity, home: list[str]) -> None:
    doors = [door_over_link(server) for server in SERVERS]
    async with (
        link_transport(name, identity, home, link_class=LossyLink) as transport,
        HttpClient(transport=transport) as http,
    ):
        await follow_stream(peer.follower, doors, http, long_poll=True, on_frame=peer._frame)


async def hear_of_more(*peers: Villager) -> None:
    """Wait until each has been told a tick that nobody knows yet."""
    newest = max(peer.follower.known for peer in peers)

    async def known() -> list[int]:
        return [peer.follower.known for peer in peers]

    await come(known, lambda seen: min(seen) > newest, what="a later tick, at each peer")


async def test_a_peer_of_the_link_and_one_of_websockets_end_equal_over_losses_a_hand_over_and_a_kill() -> None:
    options: dict[str, Any] = {"simservers": 3, "world": EVENT_STREAMS}
    async with world(**options) as running, httpx.AsyncClient(trust_env=False, timeout=LIMIT_S) as http:
        doors = [await door_of(running, server) for server in SERVERS]
        home = running.cluster.homeserver_urls()["alpha"]
        params = {"incarnation": secrets.token_hex(16)}
        await running.create(
            {"id": HISTORY, "kind": "stream", "spawner": "alpha.ada", "server": "alpha.s1", "params": params}
        )
        anna, bert, identity = Villager(PROVED), Villager("bert"), Identity.generate()
        keys = {"keys": identity.public.to_jwks()["keys"]}
        await running.client.call("alpha", "PUT", "/v1/players/alpha.anna/keys", keys)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow_over_link, anna, "alpha.anna", identity, home)
            nursery.start_soon(partial(bert.follow, doors[::-1], push=True))
            await take_part(anna, bert)
            me = anna.follower.public_id
            anna.game.act(10, Come(1))
            bert.game.act(12, Pay(2))
            given: list[Given] = [(10, Come(1)), (12, Pay(2))]
            await all_have(given, anna, bert)
            # The identity of his input is that of who the link proves, of his first input and of its kind.
            for peer in (anna, bert):
                (first,) = [parts_of(one.time) for one in peer.game.steward.history() if one.event == Come(1)]
                assert first.id == fiat_id(id_of("fiat", me, 1, Come.type_id))

            # Nobody speaks for him who does not have his keys.
            for name in ("peer%20of%20the%20link%20alpha.anna", PROVED):
                answer = await http.post(f"{doors[0]}/history/{name}/0", json={"Leave": True})
                assert answer.status_code == 404 or answer.json()["ProxyId"] != me, answer.text

            await running.hand_over("alpha.s2", HISTORY)
            anna.game.act(8, Come(4))
            given.insert(0, (8, Come(4)))
            await all_have(given, anna, bert)

            before = await running.record(HISTORY)
            await running.copied("alpha.s2", HISTORY)
            await running.cluster.kill("alpha.s2")
            after = await running.record(HISTORY, lambda record: record["authority"] not in ("", "alpha.s2"))
            assert after["epoch"] > before["epoch"]
            # Who was silent for too long takes part again first; by then each has heard of the new authority.
            await hear_of_more(anna, bert)
            await take_part(anna, bert)
            bert.game.act(14, Leave())
            anna.game.act(16, Pay(1))
            given += [(14, Leave()), (16, Pay(1))]
            await all_have(given, anna, bert)
            anna.promises = bert.promises = END

            async def settled() -> list[int]:
                return [peer.game.peer.settled for peer in (anna, bert)]

            await come(settled, lambda seen: min(seen) >= END, what="the end, settled")
            assert anna.inputs == bert.inputs == given
            assert anna.state == bert.state
            assert anna.follower.public_id == me
            assert anna.follower.pushed == 0 < bert.follower.pushed
            assert LOSSES["lost"] > 0
            for peer in (anna, bert):
                assert peer.game.peer.divergence is None
                assert peer.follower.desync is None
                assert list(peer.game.refused) == []
            nursery.cancel_scope.cancel()
