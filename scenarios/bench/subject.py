"""What can be measured: three members of something replicated, ours or etcd's."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import Final, Protocol

from batonpass.scenarios.bench.workloads import BenchWorkload, Sample
from batonpass.scenarios.cluster.processes import RunningChild
from batonpass.scenarios.common.errors import EnvironmentFailed

__all__ = ["GRACE_S", "MEMBER_COUNT", "LeaderFault", "LeaderMoved", "MeasurementFailed", "Subject", "Tell", "harmed"]

MEMBER_COUNT: Final = 3
# Nothing that they hold is wanted afterwards, and etcd takes seconds to hand over its leadership.
GRACE_S: Final = 0.2

Tell = Callable[[str], None]
"""Takes a sentence about the progress, for people."""


class LeaderFault(StrEnum):
    """What happens to the leader."""

    KILL = "SIGKILL"
    """Its process ends at once: its connections break, which the others can see."""
    STOP = "SIGSTOP"
    """It hangs, with all connections open, as under a frozen disk: only its silence tells. Resumed afterwards."""


class MeasurementFailed(EnvironmentFailed):
    """A measurement would be wrong: operations failed, or a cluster did not come up. The sentence says which."""


class LeaderMoved(MeasurementFailed):
    """Another member led at the end of a measurement than at its beginning; measure again."""


@asynccontextmanager
async def harmed(child: RunningChild, fault: LeaderFault, restart: Callable[[], object]) -> AsyncIterator[None]:
    """A process with `fault`; afterwards it continues, or `restart` starts it again."""
    if fault is LeaderFault.KILL:
        child.kill()
    else:
        await child.pause()
    try:
        yield
    finally:
        if fault is LeaderFault.KILL:
            await child.wait()
            restart()
        else:
            child.resume()


class Subject(Protocol):
    """Three members on loopback."""

    @property
    def name(self) -> str:
        """For people: `batonpass` or `etcd`."""

    async def measure(self, workload: BenchWorkload, seconds: float) -> Sample:
        """Run a workload for about so long.

        Raises:
            LeaderMoved: repeat it.
            MeasurementFailed: an operation failed.
        """

    async def outage_ms(self, fault: LeaderFault) -> float:
        """Harm the leader, and return how long it took until a write was accepted; afterwards all three run again.

        Raises:
            MeasurementFailed: no write was accepted for a long time, or the cluster did not heal.
        """
