"""Check mode: at each tick a game is saved, loaded into a second one, and both are compared after the next tick.

It finds on one machine what would make clients differ: state that is kept outside of entities, and calls that machines
do not agree on (`rules`). Source: Factorio's heavy mode, and the sync test of GGRS.
"""

from collections.abc import Callable, Iterable

from batonpass.simserver.sync.lockstep.desync import DesyncReport, dump_of, explain
from batonpass.simserver.sync.lockstep.driver import SimDriver, SimEvent
from batonpass.simserver.sync.lockstep.rules import only_exact

__all__ = ["check"]


def check(make: Callable[..., SimDriver], ticks: Iterable[Iterable[SimEvent]]) -> DesyncReport | None:
    """Compute ticks with a game and with one that is loaded anew for each of them.

    Args:
        make: the game's class, or what makes one and takes `trace`.
        ticks: the events of each tick.

    Returns:
        What differs at the first tick that does; *here* is the game that ran, *there* the one that was loaded.

    Raises:
        NotDeterministic: the game does what machines do not agree on.
        OutsideOfTick: it changed something between two ticks.
    """
    here = make(trace=True)
    for events in ticks:
        happened, there = tuple(events), make(trace=True)
        there.restore(here.snapshot())
        with only_exact():
            here.step(happened)
        there.step(happened)
        if here.state_hash() != there.state_hash():
            return explain(dump_of(here, here.tick) or "", dump_of(there, there.tick) or "")
    return None
