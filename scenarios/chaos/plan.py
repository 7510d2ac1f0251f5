"""Which faults a run meets, in which order and how long each lasts: a function of the seed, and of nothing else.

A planned fault says "the leader, for 0.8 s", not "h1": who leads is the instance's business at that moment. So two runs
of one seed do the same things in the same order to members in the same roles. They may not do so at the same
microsecond.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

__all__ = ["KINDS", "FaultKind", "KernelNeed", "KindFacts", "PlannedFault", "draw_plan", "parse_kinds"]

# Half of the faults are over before a follower would stand for election (0.6-1.2 s), half last through several.
_SHORT_S: Final = (0.05, 0.6)
_LONG_S: Final = (1.0, 3.0)


class KernelNeed(StrEnum):
    """What the kernel must permit for a kind of fault."""

    NETWORK = "network namespaces"
    IMAGES = "loop devices"


class FaultKind(StrEnum):
    """A kind of fault, by the name that `--kinds` takes."""

    KILL_LEADER = "kill-leader"
    KILL_FOLLOWER = "kill-follower"
    KILL_MAJORITY = "kill-majority"
    KILL_ALL = "kill-all"
    STOP_LEADER = "stop-leader"
    STOP_FOLLOWER = "stop-follower"
    ISOLATE_LEADER = "isolate-leader"
    ISOLATE_FOLLOWER = "isolate-follower"
    SPLIT = "split"
    CUT_PAIR = "cut-pair"
    CUT_ONE_WAY = "cut-one-way"
    TEAR_JOURNAL = "tear-journal"
    CORRUPT_JOURNAL = "corrupt-journal"
    POWER_CUT = "power-cut"
    POWER_CUT_ALL = "power-cut-all"
    DISK_FULL = "disk-full"
    TRANSFER_LEADERSHIP = "transfer-leadership"
    REPLACE_MEMBER = "replace-member"
    REPLACE_AND_KILL = "replace-and-kill"
    ADD_AND_REMOVE = "add-and-remove"


@dataclass(frozen=True)
class KindFacts:
    """What a kind of fault is, in a sentence for the report, and what it needs."""

    sentence: str
    needs: frozenset[KernelNeed] = frozenset()
    lasts: bool = True
    """Whether the fault is held for a while before it is healed."""


_NETWORK: Final = frozenset({KernelNeed.NETWORK})
_IMAGES: Final = frozenset({KernelNeed.IMAGES})

KINDS: Final = {
    FaultKind.KILL_LEADER: KindFacts("SIGKILL of the leader; started again after a while"),
    FaultKind.KILL_FOLLOWER: KindFacts("SIGKILL of a follower; started again after a while"),
    FaultKind.KILL_MAJORITY: KindFacts("SIGKILL of the leader and of as many others as make a majority"),
    FaultKind.KILL_ALL: KindFacts("SIGKILL of all members at once; all started again at once", lasts=False),
    FaultKind.STOP_LEADER: KindFacts("SIGSTOP of the leader, SIGCONT after a while"),
    FaultKind.STOP_FOLLOWER: KindFacts("SIGSTOP of a follower, SIGCONT after a while"),
    FaultKind.ISOLATE_LEADER: KindFacts("the leader's network link is down", _NETWORK),
    FaultKind.ISOLATE_FOLLOWER: KindFacts("a follower's network link is down", _NETWORK),
    FaultKind.SPLIT: KindFacts("two halves without a way between them, the leader in either", _NETWORK),
    FaultKind.CUT_PAIR: KindFacts("the leader and one follower cannot reach each other; all others can", _NETWORK),
    FaultKind.CUT_ONE_WAY: KindFacts("what one member sends to another one is lost; the way back is open", _NETWORK),
    FaultKind.TEAR_JOURNAL: KindFacts("killed between write and fdatasync, and the unsynced bytes torn: must recover"),
    FaultKind.CORRUPT_JOURNAL: KindFacts("a synced byte of a killed member flipped: must refuse to start; replaced"),
    FaultKind.POWER_CUT: KindFacts("a member loses power: its disk is what had reached the device", _IMAGES),
    FaultKind.POWER_CUT_ALL: KindFacts("all members lose power at once", _IMAGES, lasts=False),
    FaultKind.DISK_FULL: KindFacts(
        "a member's disk is full: must stop with a sentence, or go on; then room again", _IMAGES
    ),
    FaultKind.TRANSFER_LEADERSHIP: KindFacts(
        "the leadership is handed over, to a named member or the best one", lasts=False
    ),
    FaultKind.REPLACE_MEMBER: KindFacts("a member, dead with its disk or alive, is replaced by a new one", lasts=False),
    FaultKind.REPLACE_AND_KILL: KindFacts("the same while the leader is killed; the leader returns after a while"),
    FaultKind.ADD_AND_REMOVE: KindFacts("a new member is added, and then one removed, perhaps the leader", lasts=False),
}


@dataclass(frozen=True)
class PlannedFault:
    """One fault of a run: its place (from 1), its kind, how long it is held, and the seed of its own dice."""

    number: int
    kind: FaultKind
    hold_s: float
    dice_seed: int

    def dice(self) -> random.Random:
        """The dice for everything that the fault still has to choose."""
        return random.Random(self.dice_seed)


def draw_plan(seed: int, faults: int, kinds: Sequence[FaultKind]) -> tuple[PlannedFault, ...]:
    """The faults of a run. Every kind comes up equally often, give or take one, in an order that the seed shuffles.

    Raises:
        ValueError: there are faults to draw and no kinds to draw from.
    """
    if faults and not kinds:
        raise ValueError("there is no kind of fault to draw from")
    dice = random.Random(seed)
    order = _shuffled_rounds(dice, sorted(set(kinds)))
    return tuple(_drawn(dice, number, next(order)) for number in range(1, faults + 1))


def _shuffled_rounds(dice: random.Random, kinds: list[FaultKind]) -> Iterator[FaultKind]:
    while True:
        yield from dice.sample(kinds, len(kinds))


def _drawn(dice: random.Random, number: int, kind: FaultKind) -> PlannedFault:
    hold_s = dice.uniform(*dice.choice((_SHORT_S, _LONG_S)))
    return PlannedFault(number, kind, hold_s if KINDS[kind].lasts else 0.0, dice.getrandbits(64))


def parse_kinds(text: str) -> tuple[FaultKind, ...]:
    """The kinds named in a comma-separated list; a name that ends in `*` stands for all that begin so.

    Raises:
        ValueError: a name fits no kind; the sentence lists those there are.
    """
    chosen: list[FaultKind] = []
    for word in filter(None, (word.strip() for word in text.split(","))):
        fitting = list(_fitting(word))
        if not fitting:
            raise ValueError(f"{word!r} is no kind of fault; there are: {', '.join(KINDS)}")
        chosen += [kind for kind in fitting if kind not in chosen]
    if not chosen:
        raise ValueError(f"no kind of fault is named; there are: {', '.join(KINDS)}")
    return tuple(chosen)


def _fitting(word: str) -> Iterable[FaultKind]:
    if word.endswith("*"):
        return (kind for kind in KINDS if kind.startswith(word[:-1]))
    return (kind for kind in KINDS if kind == word)
