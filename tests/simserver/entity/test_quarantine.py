"""What stands still because it fails does so wherever it goes, and whoever goes on with it, until it is released."""

from typing import Any

import cbor2
import pytest

from batonpass.authority.fence import MAX_EPOCH, Fence
from batonpass.authority.machines.replica_choice import CopyTable
from batonpass.authority.model.ownership import Ownership
from batonpass.authority.model.standing import CopySource
from batonpass.simserver.durability.replication import new_copy
from batonpass.simserver.entity.snapshot import MAX_BROKEN_CHARS, EntitySnapshot
from batonpass.simserver.entity.state import Life
from tests.simserver.stage import ADA, BALL, Stage, Tally

pytestmark = pytest.mark.usefixtures("either_kind")

WHY = "ZeroDivisionError: poison"


def begun(snapshot: EntitySnapshot | None = None, epoch: int = 1) -> Life:
    nobody: Any = None
    stage = Stage(nobody, world=Tally())
    return stage.life(Fence(epoch), snapshot or stage.fresh("tally"))


def gone_on_with(state: bytes, epoch: int = 2) -> Life:
    return begun(EntitySnapshot.decode(state), epoch)


def test_failures_row_41_it_stands_still_after_every_hand_over_until_it_is_released() -> None:
    life = begun()
    life.take_input(ADA, 1, 1, b"")
    life.enter_quarantine(WHY)
    for epoch in (2, 3):
        frozen = life.freeze()
        assert frozen is not None
        life = gone_on_with(frozen.state, epoch)
        assert (life.quarantine_reason, len(life.inbox.pending), life.can_be_told) == (WHY, 1, False)
        assert life.at_rest().state_hash == frozen.state_hash
    assert life.release()
    frozen = life.freeze()
    assert frozen is not None
    assert not gone_on_with(frozen.state, 4).quarantine_reason


def test_failures_row_41_whoever_goes_on_from_a_copy_or_a_checkpoint_takes_that_of_after_it_stood_still() -> None:
    life, copies = begun(), CopyTable(10**6, 10)
    before = new_copy(life.fence, life.tick, life.encoded(), CopySource.BACKUP_REPLICA)
    life.enter_quarantine(WHY)
    after = new_copy(life.fence, life.tick, life.encoded(), CopySource.BACKUP_REPLICA)
    for copy in (before, after, before):
        copies.keep(BALL, copy, 0)
    kept = copies.get(BALL)
    assert kept is not None
    assert gone_on_with(kept.state).quarantine_reason == WHY


def test_failures_row_40_what_stands_still_for_its_owner_left_does_wherever_it_goes_until_a_later_word() -> None:
    life = begun()
    rev = life.ownership.rev + 1
    life.owned(Ownership("", rev))
    assert life.ownership.is_half_told, "a certificate does not say whether it is suspended"
    life.owned(Ownership("", rev, suspended=True))
    frozen = life.freeze()
    assert frozen is not None
    life = gone_on_with(frozen.state)
    for late in (Ownership("", rev), Ownership("", rev, suspended=False), Ownership(ADA, rev - 1)):
        life.owned(late)
        assert (life.ownership.suspended, life.can_be_told) == (True, False)
    life.owned(Ownership(ADA, rev + 1))
    life.owned(Ownership("", rev, suspended=True))
    assert life.ownership == Ownership(ADA, rev + 1)


def test_what_stood_still_before_it_was_written_down_is_read_as_it_was() -> None:
    life = begun()
    old = life.encoded()
    assert "broken" not in cbor2.loads(old)
    assert "released" not in cbor2.loads(old)
    assert (EntitySnapshot.decode(old).broken, EntitySnapshot.decode(old).released_epoch) == ("", 0)


def test_a_frozen_one_is_named_already() -> None:
    life = begun()
    frozen = life.freeze()
    assert frozen is not None
    life.enter_quarantine(WHY)
    assert life.tick == frozen.tick


@pytest.mark.parametrize("broken", [7, None, "x" * (MAX_BROKEN_CHARS + 1)])
def test_anything_else_is_no_reason(broken: object) -> None:
    fields = cbor2.loads(begun().encoded()) | {"broken": broken}
    with pytest.raises(ValueError, match="why it is quarantined"):
        EntitySnapshot.decode(cbor2.dumps(fields, canonical=True))


@pytest.mark.parametrize("released", ["7", None, -1, MAX_EPOCH + 1])
def test_anything_else_is_no_epoch_of_a_release(released: object) -> None:
    fields = cbor2.loads(begun().encoded()) | {"released": released}
    with pytest.raises(ValueError, match="is no epoch"):
        EntitySnapshot.decode(cbor2.dumps(fields, canonical=True))


def test_a_reason_of_any_length_and_alphabet_can_be_carried() -> None:
    life = begun()
    life.enter_quarantine("\ud800" + "x" * 10**5)
    assert gone_on_with(life.encoded()).quarantine_reason == life.quarantine_reason
    assert len(life.quarantine_reason) == MAX_BROKEN_CHARS
