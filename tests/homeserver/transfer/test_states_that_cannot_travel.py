"""On real servers: whose world gives a state that cannot travel stands still, and the others go on."""

from batonpass.simserver.entity.state import Life
from batonpass.simserver.server.dispatch import SimserverNode
from tests.homeserver.served import Home, until
from tests.simserver.entity.test_states_that_cannot_travel import LARGE_POISON

WORLD = "tests.simserver.entity.test_states_that_cannot_travel:Chat"
BAD, GOOD, ADA = "alpha.bad", "alpha.good", "alpha.ada"


def life_at(node: SimserverNode, entity: str) -> Life:
    holding = node.holdings.get(entity)
    assert holding is not None
    return holding.life


async def moved(home: Home, entity: str, to: str, transfer_id: str) -> tuple[str, str]:
    body = {"to": to, "transfer_id": transfer_id, "transport": "link"}
    await home.api.do("POST", f"/v1/entities/{entity}/transfers", body)
    view = await home.finished(transfer_id)
    return view["result"], view["reason"]


async def test_failures_row_41_a_state_that_cannot_travel_stops_its_entity_alone(alpha: Home) -> None:
    one, two = [await alpha.simserver(f"alpha.s{n}", world=WORLD, copy_interval_s=0.1) for n in (1, 2)]
    ada = await alpha.player(ADA)
    for entity in (BAD, GOOD):
        await alpha.entity(entity, ada, "alpha.s1", kind="chat", params={})
    life_at(one, BAD).take_input(ADA, 1, 1, rb'"\ud800"')
    await until(lambda: life_at(one, BAD).quarantine_reason)
    assert life_at(one, BAD).world == {"said": []}
    assert await moved(alpha, BAD, "alpha.s2", "transfer-1") == ("done", ""), "with its state of before"
    assert "cannot travel" in life_at(two, BAD).quarantine_reason
    assert len(life_at(two, BAD).inbox.pending) == 1

    # What is too large to be looked at with every tick is found with the next copy, or when it is to leave.
    assert life_at(two, BAD).release(discard_inputs=True)
    life_at(two, BAD).world = LARGE_POISON
    life_at(two, BAD)._encoder.__init__()  # type: ignore[misc]  # as after another tick
    assert await moved(alpha, BAD, "alpha.s1", "transfer-2") == ("refused", "incompatible")
    assert "cannot travel" in life_at(two, BAD).quarantine_reason
    assert await moved(alpha, GOOD, "alpha.s2", "transfer-3") == ("done", "")
    copied = two.counts["copies_sent"]
    await until(lambda: two.counts["copies_sent"] > copied + 3)
    assert two.counts["state_not_portable"] >= 1
    for node in (one, two):
        assert (node.counts["internal_error"], node.counts["bad_message"]) == (0, 0)
