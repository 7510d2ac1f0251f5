"""What an order says of how far the log was: nothing that it cannot stand for (FAILURES row 2)."""

from types import SimpleNamespace
from typing import Any

import pytest

from batonpass.authority.fence import Fence
from batonpass.authority.model.records import EntityRecord, Phase, TransferRecord
from batonpass.authority.wire.transfer import Order
from batonpass.homeserver.transfer.order import order_of

RECORD = EntityRecord(
    id="alpha.e", kind="ball", master="alpha.ada", owner="alpha.ada", authority="alpha.s1", epoch=3, sub=2
)
TRANSFER = TransferRecord(id="transfer-1", entity="alpha.e", target="alpha.s2", phase=Phase.PERMITTED, direct=True)


def order(known: TransferRecord | None, record: EntityRecord | None = RECORD, *, direct: bool = True) -> Order:
    """Given by whoever has seen the transfer permitted, to which this member's copy of the log says `known` now."""
    store: Any = SimpleNamespace(transfer=lambda _id: known)
    return order_of(TRANSFER.changed(direct=direct), record, store)


def said(message: Order) -> Fence:
    return Fence(message.epoch, message.sub)


def test_what_has_no_result_had_none_at_the_fence_of_the_record() -> None:
    assert said(order(TRANSFER)) == Fence(3, 2)


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.PERMITTED])
def test_of_what_the_log_has_decided_meanwhile_nothing_is_said(phase: Phase) -> None:
    assert said(order(TRANSFER.changed(phase=phase))) == Fence(0)


def test_of_what_is_not_there_yet_or_any_more_nothing_is_said() -> None:
    assert said(order(None)) == Fence(0)
    assert said(order(TRANSFER, record=None)) == Fence(0)


def test_what_goes_through_the_log_needs_no_proof() -> None:
    message = order(TRANSFER, direct=False)
    assert (said(message), message.direct) == (Fence(0), False)
