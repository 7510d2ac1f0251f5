"""Asking every server that is alive what copies there are, and what else each has done with what it had.

A question is repeated, ever more seldom, until each has answered, or is dead too, or it cannot be found out whether it
is.
"""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from batonpass.actors.base.clock import Bell, Clock
from batonpass.authority.errors import MessageError, Refused
from batonpass.authority.machines.replica_choice import all_answered
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.recovery import MAX_RECOVERED, FoundItem, RaisedItem
from batonpass.authority.wire.transfer import Collect, Collected, Message
from batonpass.homeserver.backoff import Due
from batonpass.homeserver.names.federation import InstanceUnreachable
from batonpass.tree.raft.submissions import NoQuorum, OutcomeUnknown

__all__ = ["REPEAT_S", "UNDECIDED", "Collecting", "Everybody", "HeardCopies", "Post", "WhoIsThere", "again", "in_parts"]

_log = logging.getLogger("batonpass.homeserver.failover.takeover")

# A server that does not answer, or does not simulate it, is asked and told again after this. Then after twice the time,
# and so on: it may have too much to do.
REPEAT_S: Final = 0.5
SELDOM_S: Final = 4.0
UNDECIDED: Final = (Refused, InstanceUnreachable, NoQuorum, OutcomeUnknown)

Post = Callable[..., Awaitable[None]]


@dataclass(frozen=True, slots=True)
class WhoIsThere:
    """The servers that may have copies now: those that are alive, by incarnation, and instances that do not say.

    `away` are servers that are not alive and were not removed, as far as their instances say so: they may return.
    """

    alive: dict[str, int]
    silent: frozenset[str] = frozenset()
    away: frozenset[str] = frozenset()


Everybody = Callable[[], Awaitable[WhoIsThere]]
"""The servers that may have copies at this moment."""


@dataclass
class _TakeoverRound:
    """One question to every server that is alive: which copies are there of these?"""

    number: int
    asked: dict[str, int]
    news: Bell
    answers: dict[str, tuple[FoundItem, ...]] = field(default_factory=dict)
    deaths: dict[str, Mapping[str, Sequence[int]]] = field(default_factory=dict)
    handed_on: dict[str, Collection[str]] = field(default_factory=dict)
    handed_to: dict[str, Mapping[str, str]] = field(default_factory=dict)


class HeardCopies(NamedTuple):
    """What servers have of what they were asked about, and under which epochs each has died of which entity.

    And which instances could not be asked; and what each has handed on since this log gave it, and to which server.
    """

    answers: Mapping[str, tuple[FoundItem, ...]]
    silent: frozenset[str]
    deaths: Mapping[str, Mapping[str, Sequence[int]]]
    handed_on: Mapping[str, Collection[str]]
    handed_to: Mapping[str, Mapping[str, str]]


class Collecting:
    """One member's questions.

    Args:
        post: sends a sealed message to a simulation server (`Post.post`).
        in_office: whether this member grants leases now.
        counts: what is counted, for people.
    """

    def __init__(self, post: Post, clock: Clock, in_office: Callable[[], bool], counts: Counter[str]) -> None:
        self._post: Final = post
        self._clock: Final = clock
        self._in_office: Final = in_office
        self._counts: Final = counts
        self._rounds: Final[dict[int, _TakeoverRound]] = {}
        self._last_number = 0

    async def ask(
        self, asks: Callable[[str], Sequence[RaisedItem]], there: WhoIsThere, everybody: Everybody
    ) -> HeardCopies:
        """What every server that is there has of what each is asked about, and which instances were silent.

        Waits for each until it has answered, or is dead too, or it cannot be found out whether it is.
        """
        number = max(self._clock.monotonic_ns(), self._last_number + 1)
        self._last_number = number
        asking = self._rounds[number] = _TakeoverRound(number, dict(there.alive), self._clock.bell())
        now, telling = there, Due(self._clock.monotonic_ns(), round(REPEAT_S * 1e9))
        try:
            while not all_answered(asking.asked, asking.answers.keys(), now.alive):
                if not self._in_office():
                    raise NoQuorum("another member grants leases now")
                if self._clock.monotonic_ns() >= telling.at_ns:
                    telling = again(telling, self._clock.monotonic_ns())
                    for server in sorted(asking.asked.keys() - asking.answers.keys()):
                        await self.tell(Collect(number=number, items=list(asks(server))), server)
                # Each answer wakes it; until all have come, or it is time to see which are alive still.
                repeat_ns = self._clock.monotonic_ns() + round(REPEAT_S * 1e9)
                while not all_answered(asking.asked, asking.answers.keys(), now.alive):
                    left_ns = repeat_ns - self._clock.monotonic_ns()
                    if left_ns <= 0 or not await asking.news.wait(left_ns / 1e9):
                        break
                if not all_answered(asking.asked, asking.answers.keys(), now.alive):
                    now = await everybody()
        finally:
            del self._rounds[number]
        silent = there.silent | now.silent
        return HeardCopies(asking.answers, silent, asking.deaths, asking.handed_on, asking.handed_to)

    async def tell(self, message: Message, server: str) -> None:
        """Tell a server something that is told again if it cannot be told now."""
        try:
            await self._post(message, Trace(f"recover-{server}"[:64]), server, on_path=False)
        except (Refused, InstanceUnreachable, NoQuorum) as error:
            _log.info("%s was not told now: %s", server, error)

    def collected(self, message: Collected, sender: str) -> None:
        """A server has said what it has. Raises `MessageError`: it was not asked that."""
        asking = self._rounds.get(message.number)
        if asking is None:
            self._counts["late_answers"] += 1
            return
        if asking.asked.get(sender) != message.incarnation:
            raise MessageError(f"{sender} answers what its incarnation {message.incarnation} was not asked")
        asking.deaths[sender] = message.deaths
        asking.handed_on[sender], asking.handed_to[sender] = message.handed_on, message.handed_to
        asking.answers[sender] = tuple(message.items)
        asking.news.ring()


def again(due: Due, now_ns: int) -> Due:
    """When to say something again that is said now, and how long to wait after that."""
    return Due(now_ns + due.wait_ns, min(2 * due.wait_ns, round(SELDOM_S * 1e9)))


def in_parts(rows: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """At most as many at a time as one message takes."""
    for first in range(0, len(rows), MAX_RECOVERED):
        yield rows[first : first + MAX_RECOVERED]
