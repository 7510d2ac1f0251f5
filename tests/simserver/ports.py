"""The ports and the lease of a simulation server, as far as a test has a use for them."""

import secrets
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import trio

from batonpass.actors.base.breakpoints import nowhere
from batonpass.actors.base.clock import Clock, InstanceClock
from batonpass.authority.node.spans import SILENT, Spans
from batonpass.authority.wire.sealing import Sealer
from batonpass.crypto.keys import Identity
from batonpass.simserver.net.ports import SimserverPorts, certificate_reader
from batonpass.simserver.sync.hosting.whereabouts import HomeWhereabouts

_IDENTITY = Identity.generate()


class TrioClock(Clock):
    """The test's own clock."""

    def monotonic_ns(self) -> int:
        return round(trio.current_time() * 1e9)


def clock_of(clock: Clock, server: str = "alpha.s1") -> InstanceClock:
    """The clock as a server has it."""
    return InstanceClock(clock, server)


def never(_name: str) -> bool:
    """Of no peer."""
    return False


def ports_of(
    sealer: Sealer | str = "alpha.s1",
    *,
    home: Any = None,
    renew: Any = None,
    link: Any = None,
    outbox: Any = None,
    clock: Any = None,
    counts: Counter[str] | None = None,
    spans: Spans = SILENT,
) -> SimserverPorts:
    """Ports, most of which lead nowhere: a test gives those that it has a use for."""
    sealer = Sealer.without_log(sealer, _IDENTITY) if isinstance(sealer, str) else sealer
    return SimserverPorts(
        sealer=sealer,
        home=home,
        renew=renew,
        link=link,
        outbox=outbox,
        certificates=certificate_reader(home),
        clock=clock_of(TrioClock()) if clock is None else clock_of(clock) if isinstance(clock, Clock) else clock,
        counts=Counter() if counts is None else counts,
        spans=spans,
        reached=nowhere,
        new_id=partial(secrets.token_hex, 12),
        whereabouts=HomeWhereabouts(home, cast(Any, None), TrioClock()),
    )


class HeldLease:
    """A lease that lasts, of a server whose home answers; tests say when it is otherwise."""

    def __init__(self, incarnation: int = 0) -> None:
        self.incarnation = incarnation
        self.told_incarnation: int | None = incarnation
        self.lasts = True
        self.answers = True
        self.is_drained = False
        self.knows = 0
        self.shown: list[tuple[str, str]] = []

    def may_act(self, _now_ns: int) -> bool:
        return self.lasts

    def home_answers(self, _now_ns: int) -> bool:
        return self.answers

    def why_not_asked(self) -> str:
        return "" if self.lasts else "there is no lease"

    def once_renewed(self, then: Callable[[], None]) -> None:
        then()

    def heard_log(self, sender: str, log: str) -> None:
        pass

    def shown_abroad(self, sender: str, token: str) -> None:
        self.shown.append((sender, token))


def held_lease(incarnation: int = 0) -> Any:
    """One, for tests that want the real one."""
    return cast(Any, HeldLease(incarnation))
