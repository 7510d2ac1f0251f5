"""Inputs that are here before their entity: kept for a moment, within bounds, and the first that it gets."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from batonpass.actors import System
from batonpass.authority.fence import Fence
from batonpass.authority.model.ownership import Ownership
from batonpass.authority.trust.certificates import CommitCertificate
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.sealing import OpenedMessage, Sealer
from batonpass.authority.wire.transfer import InputItem, StateTransfer
from batonpass.simserver.entity.snapshot import EntitySnapshot, state_hash
from batonpass.simserver.entity.table import Holdings
from batonpass.simserver.transfer.target.arrivals import Arrivals
from batonpass.simserver.transfer.target.early_inputs import (
    EXPECTED_NS,
    MAX_EARLY,
    MAX_EARLY_BYTES,
    MAX_ENTITIES,
    EarlyInputs,
)
from batonpass.simserver.transfer.target.offers import Context
from tests.simserver.entity.test_table import Written
from tests.simserver.ports import held_lease, ports_of
from tests.simserver.stage import ADA, BALL, Stage
from tests.simserver.transfer.source.test_departures import HERE, IDENTITY, THERE, TRANSFER

pytestmark = pytest.mark.usefixtures("either_kind")


def item(seq: int, size_bytes: int = 0) -> InputItem:
    return InputItem(source=ADA, owner_rev=1, seq=seq, data=bytes(size_bytes))


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([0, 4096]), st.integers(0, EXPECTED_NS)), max_size=80)
)
def test_failures_row_30_what_comes_before_the_entity_is_kept_for_it_within_bounds(
    steps: list[tuple[str, int, int]],
) -> None:
    early, now_ns = EarlyInputs(), 0
    expected: dict[str, tuple[int, list[InputItem]]] = {}
    for number, (entity, size_bytes, waited_ns) in enumerate(steps, 1):
        now_ns += waited_ns // 8
        expected = {name: row for name, row in expected.items() if now_ns - row[0] < EXPECTED_NS}
        _, items = expected.setdefault(entity, (now_ns, []))
        has_room = sum(len(one.data) for one in items) + size_bytes <= MAX_EARLY_BYTES
        assert early.keep(entity, item(number, size_bytes), now_ns) == has_room
        if has_room:
            items.append(item(number, size_bytes))
    for entity in "abc":
        assert early.take(entity, now_ns) == (expected[entity][1] if entity in expected else [])
    assert len(early) == 0


def test_what_finds_no_room_is_not_kept() -> None:
    early = EarlyInputs()
    assert all(early.keep(BALL, item(seq), 0) for seq in range(1, MAX_EARLY + 1))
    assert not early.keep(BALL, item(MAX_EARLY + 1), 0)
    assert all(early.keep(f"alpha.e{number}", item(1), 0) for number in range(MAX_ENTITIES - 1))
    assert not early.keep("alpha.other", item(1), 0)
    assert early.keep("alpha.other", item(1), EXPECTED_NS), "those have not come"


async def test_failures_row_30_an_entity_begins_with_the_inputs_that_were_here_before_it(
    system: System, autojump_clock: MockClock
) -> None:
    holdings, counts = Holdings(Stage(system).environment, Written()), Counter[str]()
    part: Any = SimpleNamespace(get=lambda _: None, used=lambda _: None, arrived=lambda _: None)
    part.superseded, part.send = lambda *_, **__: None, lambda *_, **__: True
    ports = ports_of(Sealer.without_log(HERE, IDENTITY), home=part, outbox=part, counts=counts)
    arrivals = Arrivals(ports, held_lease(), holdings, part, part, part)
    assert not arrivals.keep_early(BALL, item(1)), "nobody has spoken of it"

    origin = Holdings(Stage(system).environment, Written()).spawn(BALL, "ball", {}, Fence(1), Ownership(ADA, 1)).life
    state = EntitySnapshot.encode(origin.snapshot())
    fields: dict[str, Any] = {"transfer_id": TRANSFER, "entity": BALL, "tick": 0, "state_hash": state_hash(state)}
    message = StateTransfer(**fields, epoch=1, sub=0, kind="ball", state=state)
    for waited_s in (0.0, 2.0):
        await trio.sleep(waited_s)
        await arrivals.state(message, OpenedMessage(message, THERE, Trace(TRANSFER)))
        assert all(arrivals.keep_early(BALL, item(seq)) for seq in (1, 2))
    await trio.sleep(0.5)
    certificate = CommitCertificate(**fields, epoch=2, sub=0, source=THERE, target=HERE, owner=ADA, owner_rev=1)
    arrivals._permit(certificate, Context(Trace(TRANSFER), True, [], ownership=certificate.ownership))
    holding = holdings.get(BALL)
    assert holding is not None
    assert [one.seq for one in holding.life.inbox.pending] == [1, 2], "and not what has come too early"
    assert counts["input_early"] == 4

    await arrivals.state(message.model_copy(update={"epoch": 2}), OpenedMessage(message, THERE, Trace(TRANSFER)))
    await trio.sleep(2)
    assert not arrivals.keep_early(BALL, item(3)), "it was expected too long ago"
