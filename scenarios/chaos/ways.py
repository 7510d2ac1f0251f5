"""The ways that a hand-over can go when it is held still at named steps, and which steps each of them passes."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from batonpass.authority.machines.source import Mode
from batonpass.authority.node.breakpoints import Breakpoint

__all__ = ["STEPS", "WAYS", "WITHOUT_TRIAL", "Lapse", "Victim", "Way"]


class Victim(StrEnum):
    """To whom it happens: the old authority, the new one, or the leader of the entity's home instance."""

    OLD = "old"
    NEW = "new"
    LEADER = "leader"


@dataclass(frozen=True)
class Lapse:
    """What has to happen before a way is taken at all: at `step` one of the ends is stopped until its lease is over."""

    step: Breakpoint
    victim: Victim


@dataclass(frozen=True)
class Way:
    """One way of a hand-over from `alpha.s1`: how it is ordered, what happens first, and which steps it passes then.

    `misses` are the results of a transfer with which it has gone another way.
    """

    target: str
    steps: tuple[Breakpoint, ...]
    mode: Mode = Mode.EAGER
    path: str = "home"
    freeze_budget_ms: int = 0
    first: Lapse | None = None
    misses: tuple[str, ...] = ("refused",)


def _steps(text: str) -> tuple[Breakpoint, ...]:
    return tuple(Breakpoint(name) for name in text.split())


_STAGE: Final = "frozen send_stage staging kept staged"
_EAGER: Final = "frozen ask_home send_state offered"
_ABROAD: Final = "committed send_activate permitted"
_END: Final = "activated answered peer_active forward_journal retire report reporting reported"

WAYS: Final[Mapping[str, Way]] = MappingProxyType(
    {
        "1": Way("beta.s1", _steps(f"{_EAGER} deciding decided {_ABROAD} {_END}")),
        "2": Way("alpha.s2", _steps(f"{_EAGER} deciding decided permitted {_END}")),
        "3": Way("alpha.s2", _steps(f"frozen send_direct offered {_END}"), path="direct"),
        "1-staged": Way("beta.s1", _steps(f"{_STAGE} ask_home deciding decided {_ABROAD} {_END}"), Mode.STAGED),
        "2-staged": Way("alpha.s2", _steps(f"{_STAGE} ask_home deciding decided permitted {_END}"), Mode.STAGED),
        "3-staged": Way("alpha.s2", _steps(f"{_STAGE} send_direct {_END}"), Mode.STAGED, "direct"),
        # The budget is over long before a disk has written anything: it is given up, and continues where it was.
        "2-given-up": Way(
            "alpha.s2",
            _steps("frozen ask_abort giving_up given_up refusal resume send_discard"),
            Mode.STAGED,
            freeze_budget_ms=1,
            misses=("done",),
        ),
        # Others were given the entity while the old authority was held; it hears of that when it asks.
        "2-lost": Way("alpha.s2", _steps("lost step_down"), first=Lapse(Breakpoint.FROZEN, Victim.OLD), misses=()),
        # The new authority is held after the commit until the log has given the entity back. The old authority has its
        # frozen copy still.
        "2-superseded": Way("alpha.s2", _steps("superseded"), first=Lapse(Breakpoint.PERMITTED, Victim.NEW), misses=()),
    }
)
STEPS: Final[Mapping[str, tuple[Breakpoint, ...]]] = MappingProxyType({name: way.steps for name, way in WAYS.items()})
"""The steps that a hand-over passes on each way, about in this order."""

WITHOUT_TRIAL: Final[Mapping[Breakpoint, str]] = MappingProxyType(
    {
        Breakpoint.STAGE_REFUSED: "a target has promised a place before the entity is frozen, and says no afterwards"
        " only if 16,384 states or 1 GiB were staged there meanwhile",
        Breakpoint.OVER_BUDGET: "the machine of the old authority finds by itself that time is up; `ask_abort` is the"
        " step after it",
    }
)
"""Steps at which no server is killed between real processes, and why."""
