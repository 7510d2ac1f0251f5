"""What a killed supervisor leaves behind has ended before it is started again: nothing ever lives twice at a time."""

import logging

import pytest
import trio
import trio.testing

from batonpass.actors import (
    DynamicSupervisor,
    DynamicSupervisorSpec,
    Exit,
    RestartLimitReached,
    ServiceSpec,
    SupervisorSpec,
    System,
)
from batonpass.actors.core.children import ChildSpec
from batonpass.actors.core.shutdown import REMAINS_S


class Socket:
    """What only one can have, and takes a moment to let go of."""

    def __init__(self, closes_in_s: float = 0.5) -> None:
        self.closes_in_s = closes_in_s
        self.taken = 0
        self.is_taken = False

    async def serve(self, *, task_status: trio.TaskStatus[None]) -> None:
        assert not self.is_taken, "somebody else has it still"
        self.is_taken = True
        self.taken += 1
        task_status.started()
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(self.closes_in_s)
            self.is_taken = False


def nested(spec: ChildSpec, levels: int) -> SupervisorSpec:
    for level in range(levels):
        spec = SupervisorSpec(f"level-{level}", (spec,), name=f"level-{level}", shutdown_s=0)
    assert isinstance(spec, SupervisorSpec)
    return spec


@pytest.mark.parametrize("victim", ["level-0", "level-1", "level-2"])
async def test_a_supervisor_that_was_killed_comes_back_when_all_below_it_has_ended(
    autojump_clock: trio.testing.MockClock, victim: str
) -> None:
    udp = Socket()
    async with System.open("test", [nested(ServiceSpec("udp", udp.serve), 3)]) as system:
        ref = system.whereis(victim)
        assert ref is not None
        ref.kill()
        await ref.exited()
        assert (udp.is_taken, udp.taken) == (True, 1), "dead at once, and the service not yet"
        await trio.sleep(1.0)
        assert (udp.is_taken, udp.taken) == (True, 2)
        assert system.whereis(victim) is not ref


async def test_that_holds_for_children_that_come_and_go_too(autojump_clock: trio.testing.MockClock) -> None:
    udp = Socket()
    async with System.open("test", [DynamicSupervisorSpec("pool", name="pool")]) as system:
        spec = SupervisorSpec("above", (ServiceSpec("udp", udp.serve),), name="above")
        ref = await DynamicSupervisor.start_child(system.named("pool"), spec)
        assert ref is not None
        ref.kill()
        await trio.sleep(1.0)
        assert (udp.is_taken, udp.taken) == (True, 2)


async def test_who_does_not_end_is_reported_and_does_not_hold_up_the_restart_for_ever(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    udp = Socket(closes_in_s=60.0)
    began_s = trio.current_time()

    async def kill_and_wait() -> None:
        async with System.open("test", [nested(ServiceSpec("udp", udp.serve), 1)]) as system:
            ref = system.whereis("level-0")
            assert ref is not None
            ref.kill()
            await trio.sleep_forever()

    with caplog.at_level(logging.ERROR), pytest.raises(RestartLimitReached, match="somebody else has it still"):
        await kill_and_wait()
    assert trio.current_time() - began_s > REMAINS_S
    assert "ignores its cancellation" in caplog.text


async def test_a_system_whose_root_was_killed_ends_what_was_below_it(autojump_clock: trio.testing.MockClock) -> None:
    udp = Socket()

    async def kill_and_wait() -> None:
        async with System.open("test", [nested(ServiceSpec("udp", udp.serve), 2)]) as system:
            system.root.kill()
            await trio.sleep_forever()

    with trio.fail_after(90), pytest.raises(Exit, match="killed"):
        await kill_and_wait()
    assert not udp.is_taken
