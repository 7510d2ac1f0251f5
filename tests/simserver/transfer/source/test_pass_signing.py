"""Passes that leave together share a signature; nobody waits who is alone, and who is done is not signed."""

from types import SimpleNamespace
from typing import Any, cast

import trio
import trio.testing

from batonpass.authority.fence import Fence
from batonpass.authority.trust.certificates import DelegationGrant, PassCertificate, token_hash
from batonpass.authority.wire.sealing import Sealer
from batonpass.crypto import jose
from batonpass.crypto.keys import Identity
from batonpass.simserver.transfer.source import pass_signing as module
from batonpass.simserver.transfer.source.departure import Departure, DeparturePlan
from batonpass.simserver.transfer.source.pass_signing import PassSigning
from tests.simserver.ports import TrioClock

HERE = Sealer.without_log("alpha.s1", Identity.generate())
GRANT = DelegationGrant(entity="alpha.e", epoch=1, sub=0, holder="alpha.s1", group=("alpha.s1", "alpha.s2"))
TOKEN = jose.sign(GRANT.to_claims(), sender=HERE.identity, sender_id="alpha.h1")


def departure(name: str, *, over: bool = False, freeze_budget_ms: int = 0) -> Departure:
    parts: Any = SimpleNamespace(
        holding=SimpleNamespace(chain=(TOKEN,)),
        frozen=SimpleNamespace(fence=Fence(1), tick=3, state_hash="a" * 64),
        machine=SimpleNamespace(over=over),
    )
    plan = DeparturePlan(
        f"transfer-{name}", f"alpha.{name}", "alpha.s2", direct=True, freeze_budget_ms=freeze_budget_ms
    )
    return Departure(plan, "alpha.s1", parts.holding, parts.frozen, parts.machine, cast(Any, None), cast(Any, None))


class Desk:
    def __init__(self, nursery: trio.Nursery | None) -> None:
        self.sent: list[tuple[str, int]] = []
        self.alone: list[str] = []
        self.nursery = nursery
        self.passes = PassSigning(HERE, TrioClock(), self._spawn, self._send, lambda *_: None)

    def _spawn(self, function: Any, *args: Any) -> bool:
        if self.nursery is not None:
            self.nursery.start_soon(function, *args)
        return self.nursery is not None

    def _send(self, one: Departure, attempt: int, is_alone: bool) -> None:
        first, last = one.chain
        said = PassCertificate.from_claims_untrusted(jose.verify_untrusted(last, sender=HERE.identity.public))
        assert (first, said.entity, said.parent) == (TOKEN, one.plan.entity, token_hash(TOKEN))
        self.sent.append((one.plan.entity, attempt))
        self.alone += [one.plan.entity] if is_alone else []


def signatures(*departures: Departure) -> int:
    return len({one.chain[-1].partition("~")[0] for one in departures})


async def test_the_first_is_signed_at_once_and_the_others_together(autojump_clock: trio.testing.MockClock) -> None:
    async with trio.open_nursery() as nursery:
        desk, leaving = Desk(nursery), [departure(name) for name in "abcd"]
        for number, one in enumerate(leaving):
            desk.passes.sign(one, number)
        assert desk.sent == [("alpha.a", 0)]
        await trio.testing.wait_all_tasks_blocked()
        assert desk.sent == [("alpha.a", 0), ("alpha.b", 1), ("alpha.c", 2), ("alpha.d", 3)]
        assert (signatures(*leaving), signatures(*leaving[1:])) == (2, 1)
        await trio.sleep(module._LATELY_NS / 1e9)
        late = departure("e")
        desk.passes.sign(late, 1)
        assert desk.sent[-1] == ("alpha.e", 1)
        assert desk.alone == ["alpha.a", "alpha.e"]


async def test_who_left_together_leaves_together_with_the_next_tick_however_many_turns_that_takes(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        desk = Desk(nursery)
        for name in "abc":
            desk.passes.sign(departure(name), 1)
        await trio.testing.wait_all_tasks_blocked()
        await trio.sleep(module._LATELY_NS / 4e9)
        leaving = [departure(name) for name in "defg"]
        for one in leaving:
            assert len(desk.sent) == 3
            desk.passes.sign(one, 1)
            # The scheduler of actors gives everybody else a turn.
            await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked()
        assert [entity for entity, _ in desk.sent[3:]] == ["alpha.d", "alpha.e", "alpha.f", "alpha.g"]
        assert signatures(*leaving) == 1
        assert desk.alone == ["alpha.a"]


async def test_nobody_waits_long_for_others_that_come_one_by_one(autojump_clock: trio.testing.MockClock) -> None:
    async with trio.open_nursery() as nursery:
        desk = Desk(nursery)
        for name in "abc":
            desk.passes.sign(departure(name), 1)
        await trio.testing.wait_all_tasks_blocked()
        first = departure("first")
        desk.passes.sign(first, 1)
        autojump_clock.jump(module._GATHER_NS / 1e9)
        desk.passes.sign(departure("second"), 1)
        for _ in range(3):
            await trio.lowlevel.checkpoint()
        assert len(first.chain) == 2
        nursery.cancel_scope.cancel()


async def test_who_comes_alone_after_a_company_waits_a_turn_and_leaves_alone(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        desk = Desk(nursery)
        for name in "abc":
            desk.passes.sign(departure(name), 1)
        await trio.testing.wait_all_tasks_blocked()
        desk.passes.sign(departure("d"), 1)
        await trio.testing.wait_all_tasks_blocked()
        assert desk.sent[-1] == ("alpha.d", 1)
        assert desk.alone == ["alpha.a", "alpha.d"]


async def test_who_is_done_meanwhile_is_not_signed(autojump_clock: trio.testing.MockClock) -> None:
    async with trio.open_nursery() as nursery:
        desk = Desk(nursery)
        desk.passes.sign(departure("a"), 1)
        gone = departure("b", over=True)
        for one in (gone, departure("c")):
            desk.passes.sign(one, 1)
        await trio.testing.wait_all_tasks_blocked()
        assert [entity for entity, _ in desk.sent] == ["alpha.a", "alpha.c"]
        assert gone.chain == ()


async def test_without_anybody_who_serves_each_is_signed_by_itself(autojump_clock: trio.testing.MockClock) -> None:
    desk = Desk(None)
    for name in "abc":
        desk.passes.sign(departure(name), 1)
    assert [entity for entity, _ in desk.sent] == ["alpha.a", "alpha.b", "alpha.c"]


async def test_who_has_a_freeze_budget_waits_for_nobody_and_takes_along_who_does(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        desk = Desk(nursery)
        for name in "abc":
            desk.passes.sign(departure(name), 1)
        desk.passes.sign(departure("d", freeze_budget_ms=50), 1)
        assert [entity for entity, _ in desk.sent] == ["alpha.a", "alpha.b", "alpha.c", "alpha.d"]
        await trio.testing.wait_all_tasks_blocked()
        assert len(desk.sent) == 4
