"""On real servers: an entity that was passivated moves, is looked at and takes inputs as any other."""

from typing import Any

import cbor2
import httpx

from batonpass.actors.http.client import trusted_authorities
from batonpass.authority.wire.transfer import Input
from batonpass.simserver.entity.actor_keeper import entity_name
from batonpass.simserver.entity.state import Life
from batonpass.simserver.server.dispatch import SimserverNode
from tests.homeserver.served import Home, until

WORLD = "tests.simserver.entity.test_sleep:Naps"
CRATE, ADA = "alpha.crate", "alpha.ada"
SOON_S = 0.2


async def server(home: Home, name: str) -> SimserverNode:
    return await home.simserver(name, world=WORLD, passivate_after_s=SOON_S, copy_interval_s=0.1)


def life_at(node: SimserverNode) -> Life:
    holding = node.holdings.get(CRATE)
    assert holding is not None
    return holding.life


def is_passive(node: SimserverNode) -> bool:
    return node.holdings.get(CRATE) is not None and life_at(node).passive is not None


async def looked_at(node: SimserverNode) -> dict[str, Any]:
    """What its server shows of it, and of all that are like it."""
    row = await node.home.row(node.config.name)
    assert row is not None
    async with httpx.AsyncClient(
        trust_env=False, verify=trusted_authorities(), base_url=f"{row.rest_url}/v1/local"
    ) as client:
        seen: dict[str, Any] = (await client.get(f"/entities/{CRATE}", params={"state": "true"})).json()
        stats = (await client.get("/stats")).json()
    assert stats["passivated"] == stats["passive"] == seen["passivated"] == seen["passive"], "the former name, too"
    return seen


async def test_who_is_passivated_is_looked_at_moves_asleep_and_takes_its_inputs_with_the_next_tick(alpha: Home) -> None:
    one, two = await server(alpha, "alpha.s1"), await server(alpha, "alpha.s2")
    ada = await alpha.player(ADA)
    await alpha.entity(CRATE, ada, "alpha.s1")
    await until(lambda: is_passive(one))
    assert one.system is not None
    assert one.system.whereis(entity_name(CRATE)) is None
    seen = await looked_at(one)
    state = cbor2.loads(bytes.fromhex(seen["state"]))
    assert (seen["passivated"], seen["asleep"], state) == (True, True, {"busy": 0, "seen": []})
    assert is_passive(one), "who looks brings nobody back"
    for number, (here, there, mode) in enumerate(((one, two, "eager"), (two, one, "staged"))):
        brought_back = here.counts["brought_back"]
        body = {"to": there.config.name, "transfer_id": f"transfer-{number}", "transport": "link", "mode": mode}
        await alpha.api.do("POST", f"/v1/entities/{CRATE}/transfers", body)
        assert (await alpha.finished(f"transfer-{number}"))["result"] == "done"
        assert here.counts["brought_back"] == brought_back, "it left as it was"
        begun, ended = there.custody.to_data()[-1], here.custody.to_data()[-1]
        assert (begun["started_hash"], begun["started_tick"]) == (ended["ended_hash"], ended["ended_tick"])
        await until(lambda there=there: is_passive(there))
    tick = life_at(one).tick
    for seq in (1, 2):
        one._input(Input(entity=CRATE, seq=seq, owner_rev=1, data=b"0"), ADA)
    assert life_at(one).passive is None
    await until(lambda: life_at(one).heard == ((ADA, 2, 2),))
    assert life_at(one).look()["seen"] == [[tick + 1, ADA, 1], [tick + 1, ADA, 2]]
    await until(lambda: is_passive(one))
    assert one.counts["internal_error"] == two.counts["internal_error"] == 0
