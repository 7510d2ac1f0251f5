"""What home says of states that were staged: kept until nothing can come of them any more."""

from typing import Any, cast

import pytest

from batonpass.authority.errors import Reason, Refused
from batonpass.authority.fence import Fence
from batonpass.authority.model.records import EntityRecord, Phase, RecoveryRow, TransferRecord
from batonpass.authority.wire.transfer import StageInquiry, Stranded
from batonpass.homeserver.failover.outcome_queries import OutcomeQueries
from tests.authority.log import BALL, S1, S2, new_log


class Asked:
    """A store of one member, as far as the question goes."""

    def __init__(self, record: EntityRecord, row: RecoveryRow | None) -> None:
        self._record = record
        self._row = row

    async def fresh(self) -> None:
        """It is."""

    def entity(self, _: str) -> EntityRecord:
        return self._record

    def transfer(self, _: str) -> None:
        return None

    def recovery(self, _: str) -> RecoveryRow | None:
        return self._row


def inquiries(record: EntityRecord, row: RecoveryRow | None) -> OutcomeQueries:
    nothing: Any = None
    return OutcomeQueries(cast(Any, Asked(record, row)), nothing, nothing, nothing, nothing, nothing, nothing, "alpha")


@pytest.mark.parametrize(
    ("fence", "is_recovered", "word"),
    [(Fence(1), False, "open"), (Fence(3), False, "void"), (Fence(3), True, "open")],
)
async def test_a_staged_state_is_kept_while_the_entity_is_nobodys(fence: Fence, is_recovered: bool, word: str) -> None:
    """It may be the only one that is left: the recovery asks for it, and may have to wait for others first."""
    record = new_log().rows.entity(BALL).changed(epoch=fence.epoch, sub=fence.sub, authority="" if is_recovered else S1)
    row = RecoveryRow(entity=BALL, last=S2, epoch=fence.epoch) if is_recovered else None
    asked = StageInquiry(transfer_id="transfer-1", entity=BALL, epoch=1, sub=0, target=S2)
    assert (await inquiries(record, row).stage_word(asked, S2)).word == word


async def test_a_transfer_that_was_asked_for_while_nobody_had_the_entity_has_no_source_to_be_asked_about() -> None:
    """It cannot be how anybody was given it, and the log says so; home has nobody to ask before."""
    store: Any = Asked(new_log().rows.entity(BALL), None)
    proposed = TransferRecord(id="transfer-1", entity=BALL, target=S2, source="", phase=Phase.PERMITTED)
    store.transfer = lambda _: proposed
    submitted: list[dict[str, Any]] = []

    async def submit(procedure: str, **args: Any) -> None:
        submitted.append(args)
        raise Refused(Reason.TOO_LATE, "it is not how it came")

    store.submit = submit
    nothing: Any = None
    message = Stranded(transfer_id="transfer-1", entity=BALL, epoch=2, sub=0, target=S2, incarnation=1)
    word = await OutcomeQueries(store, nothing, nothing, nothing, nothing, nothing, nothing, "alpha").stranded(
        message, S2
    )
    assert (word.word, submitted[0]["source_over"]) == ("void", False)
