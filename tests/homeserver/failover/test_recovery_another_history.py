"""What servers say about what another history of the log gave, and whom home believes."""

from typing import Any

import pytest

from batonpass.authority.model.standing import CopySource
from batonpass.authority.wire.recovery import FoundItem
from batonpass.authority.wire.transfer import Collect, Collected
from tests.authority.log import BALL, HOMESERVER, S1, S3
from tests.homeserver.failover.test_recovery_again import Play


class TwoHistories(Play):
    """Servers that have several copies, and say which is the best of those that count, and what they handed on."""

    def __init__(self) -> None:
        super().__init__()
        self.have: dict[str, list[FoundItem]] = {}
        self.handed_on: dict[str, list[int]] = {}
        self.to: dict[str, str] = {}

    async def post(self, message: Any, _trace: object, server: str, **_: object) -> None:
        if not isinstance(message, Collect):
            await super().post(message, _trace, server)
            return
        (item,) = message.items
        known = [one for one in self.have.get(server, []) if one.fence < item.counts_below]
        best = max(known, key=lambda one: (one.fence, one.tick), default=None)
        handed_on = [BALL] if item.own_epoch in self.handed_on.get(server, ()) else []
        answer = Collected(
            number=message.number,
            incarnation=self.store.lease(server).incarnation,
            items=[best] if best else [],
            handed_on=handed_on,
            handed_to={BALL: self.to[server]} if handed_on and server in self.to else {},
        )
        self.takeovers.collected(answer, server)


def copy(epoch: int, tick: int, sub: int = 0) -> FoundItem:
    return FoundItem(
        entity=BALL,
        epoch=epoch,
        sub=sub,
        tick=tick,
        state_hash=f"{epoch:032x}{tick:032x}",
        source=CopySource.OWN,
        holds=True,
    )


@pytest.mark.parametrize("says", [False, True])
async def test_failures_row_42_who_simulates_it_until_now_has_not_handed_it_on_whatever_others_say(says: bool) -> None:
    """Another one of its delegation says that it was passed it, and that it has handed it on since."""
    play = TwoHistories()
    log = play.store.log
    log.run("entity.delegate", entity=BALL, group=[S1, S3])
    lowest = log.run("log.parted", office=1)
    assert log.run("recovery.contest", entity=BALL, by=S3, epoch=1, sub=1, transfers=[])
    play.handed_on[S3] = [1] if says else []
    play.have = {S1: [copy(1, 10)], S3: [copy(1, 10**6, sub=1), copy(lowest - 1, 10**6)]}
    await play.look()
    assert (play.record.authority, play.record.epoch) == (S1, lowest + 1)
    assert play.store.takeovers() == []


async def test_failures_row_42_what_somebody_was_passed_and_handed_on_goes_on_with_whoever_has_it() -> None:
    """The one whose it was by this log has passed it on, so that it does not simulate it any more."""
    play = TwoHistories()
    log = play.store.log
    log.run("entity.delegate", entity=BALL, group=[S1, S3])
    lowest = log.run("log.parted", office=1)
    assert log.run("recovery.contest", entity=BALL, by=S3, epoch=1, sub=1, transfers=[])
    play.handed_on[S3] = [1]
    play.have = {S1: [copy(1, 10).model_copy(update={"holds": False})], S3: [copy(2, 20)]}
    await play.look()
    assert (play.record.authority, play.record.epoch) == (S3, lowest + 1)


async def handed_on_by_the_lost_log(*, later_is_here: bool) -> tuple[TwoHistories, int]:
    """By the log that is left S1 had it; S1, which came back, says that it went to S3, which is away or not."""
    play = TwoHistories()
    log = play.store.log
    if not later_is_here:
        log.run("lease.expire", server=S3, incarnation=1, office=1)
        log.swept(S3)
    await play.dies(S1)
    lowest: int = log.run("log.parted", office=1)
    log.run("lease.take_office", by=HOMESERVER, after=2)
    play.handed_on[S1] = [1]
    play.to[S1] = S3
    play.have = {S1: [copy(1, 10).model_copy(update={"holds": False})], S3: [copy(2, 20)]}
    await play.returns(S1)
    await play.look()
    return play, lowest


async def test_failures_row_42_what_was_handed_on_within_the_instance_goes_on_from_the_later_stay() -> None:
    play, lowest = await handed_on_by_the_lost_log(later_is_here=True)
    assert (play.record.authority, play.record.epoch) == (S3, lowest + 1)


async def test_failures_row_42_what_was_handed_on_waits_for_whoever_may_have_it_and_is_silent() -> None:
    """There is a copy of before, under the very stay that this log gave: it would undo what came of that."""
    play, lowest = await handed_on_by_the_lost_log(later_is_here=False)
    assert (play.record.authority, play.record.epoch) == ("", lowest)
    (waiting,) = play.takeovers.to_data()["waiting"]
    assert waiting["waits_for"] == [S3]
    await play.returns(S3)
    await play.look()
    assert (play.record.authority, play.record.epoch) == (S3, lowest + 1)
