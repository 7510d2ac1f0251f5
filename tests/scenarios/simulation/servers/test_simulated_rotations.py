"""Identity keys that are replaced in the midst of a hand-over, at every step of it: whole servers on virtual time.

A rotation is no revocation: what was signed with the former keys is good until the overlap ends, and what comes after
is signed with the next ones. Nobody begins anew, and nothing is refused. Simulated mail is not sealed: what is signed
here are the certificates of direct passes.
"""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, Final

import pytest

from batonpass.authority.fence import Fence
from batonpass.authority.model.records import Phase
from batonpass.authority.node.breakpoints import Breakpoint
from batonpass.scenarios.simulation.servers.cluster import ServersCluster
from batonpass.scenarios.simulation.servers.mixes import MIXES
from batonpass.simserver.entity.table import Holding

ENTITY, SOURCE, HOME = "alpha.e0", "alpha.s1", "alpha.h1"
TARGETS: Final = {"direct": "alpha.s2"}
MIX: Final = replace(MIXES["calm"], servers=("alpha.s1", "alpha.s2", "beta.s1"), move=0.0)


class World:
    """A calm cluster in which one entity is handed over; somebody's keys may be replaced as a step is reached."""

    def __init__(self, case: str) -> None:
        self.cluster = ServersCluster(MIX, Random(f"rotations {case}"))
        self.cluster.worlds_wander = False
        self.case, self.target = case, TARGETS[case]
        self.steps: list[tuple[str, Breakpoint]] = []
        self.rotations = 0
        self._at: tuple[str, Breakpoint] | None = None
        self._who = ""
        for name in (SOURCE, self.target):
            node = self.cluster.servers[name].node
            for part in (node.departures, node.arrivals):
                self._watch(name, part)
        self.passing(1.0)
        home = self.cluster.homes[HOME]
        if case == "direct":
            home.process.start_soon(home.delegate, ENTITY, (SOURCE, self.target))
            self.until(lambda: bool(self.held(SOURCE).group))

    def _watch(self, name: str, part: Any) -> None:
        def reached(step: Breakpoint, transfer_id: str) -> None:
            if transfer_id != "transfer-1":
                return
            self.steps.append((name, step))
            if (name, step) == self._at:
                self._at = None
                self.rotations += 1
                self.cluster.rotate(self._who)

        part._reached = reached

    def passing(self, seconds: float) -> None:
        self.cluster.schedule.run_until(self.cluster.schedule.now_s + seconds)

    def until(self, done: Callable[[], bool]) -> None:
        assert self.cluster.schedule.run_until(self.cluster.schedule.now_s + 60.0, done), "it does not come about"

    def held(self, server: str) -> Holding:
        holding = self.cluster.servers[server].holding(ENTITY)
        assert holding is not None
        return holding

    def move(self, who: str = "", at: tuple[str, Breakpoint] | None = None) -> None:
        """Hand it over, and look that it ends as it ought to, whoever's keys are replaced at whichever step."""
        self._who, self._at = who, at
        home, target = self.cluster.homes[HOME], self.cluster.servers[self.target]
        how = {"direct": self.case == "direct", "transport": "link", "mode": "eager", "requester": ""}
        home.process.start_soon(home.move, "transfer-1", ENTITY, self.target, how)
        self.until(lambda: target.holding(ENTITY) is not None)
        self.until(lambda: (one := home.store.transfer("transfer-1")) is not None and one.phase is Phase.DONE)
        self.passing(1.0)
        assert self.held(self.target).fence == (Fence(1, 1) if self.case == "direct" else Fence(2)), "and only once"
        for player in self.cluster.players:
            player.resting = True
        self.until(lambda: self.cluster.schedule.happened % 64 == 0 and not self.cluster.unsettled())
        assert self.cluster.judge.violations == []
        counts = self.counts()
        assert [name for name in counts if name.startswith("refused") or name == "dropped"] == [], counts

    def counts(self) -> dict[str, int]:
        return dict(self.cluster.servers[SOURCE].counts + self.cluster.servers[self.target].counts)


def steps_of(case: str) -> list[tuple[str, Breakpoint]]:
    """What servers pass in such a hand-over when nothing else happens, each once."""
    world = World(case)
    world.move()
    return list(dict.fromkeys(world.steps))


@pytest.mark.parametrize("who", ["source", "target"])
@pytest.mark.parametrize("case", TARGETS)
def test_failures_row_19_identity_keys_are_replaced_at_any_step_and_the_hand_over_goes_through(
    case: str, who: str
) -> None:
    name = SOURCE if who == "source" else TARGETS[case]
    steps = steps_of(case)
    assert len(steps) >= 6, steps
    for at in steps:
        world = World(case)
        before = world.cluster.servers[name].node.sealer.identity.public.signing_kid
        world.move(name, at)
        assert world.rotations == 1, at
        after = world.cluster.servers[name].node.sealer.identity.public
        assert after.signing_kid != before
        assert after.knows(before), "the former keys are good for an overlap"
