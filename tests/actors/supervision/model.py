"""A model of supervisors that is too dumb to be wrong: lists, loops and OTP's rules, no processes and no messages.

Whatever happens is over before the next thing happens, so a restart that fails is simply tried again on the spot. The
recorded transcripts of OTP judge the model (`test_supervision_recorded.py`), the model judges the supervisors.
"""

from __future__ import annotations

from collections.abc import Iterator

from batonpass.actors import AutoShutdown, Restart, Strategy
from tests.actors.supervision.script import Ask, Branch, End, Leaf, Step, Wait

WINDOW_S = 5.0


class Failed(Exception):
    """A start has failed."""


class Ignored(Exception):
    """A start was ignored."""


class World:
    """What all supervisors of one script share: the time, the transcript, and how often each leaf was started."""

    def __init__(self, top: Branch) -> None:
        self.now_s = 0.0
        self.log: list[str] = []
        self.starts: dict[str, int] = {}
        self.top: Supervisor | None = None
        try:
            self.top = Supervisor(self, top)
        except Failed:
            self.log.append("=failed")

    def start(self, spec: Leaf | Branch) -> Leaf | Supervisor:
        """One life of a child. Raises `Failed`, `Ignored`."""
        if isinstance(spec, Branch):
            return Supervisor(self, spec)
        turn = self.starts.get(spec.name, 0)
        self.starts[spec.name] = turn + 1
        outcome = spec.starts[turn] if turn < len(spec.starts) else "."
        self.log.append({".": "+", "x": "x", "i": "i"}[outcome] + spec.name)
        if outcome == "x":
            raise Failed
        if outcome == "i":
            raise Ignored
        return spec

    def do(self, step: Step) -> list[str]:
        """What happens then."""
        self.log = []
        assert self.top is not None
        match step:
            case Wait(seconds):
                self.now_s += seconds
            case End(name, reason):
                for supervisor in self.supervisors():
                    for kid in supervisor.kids:
                        if kid.spec.name == name and kid.life is not None:
                            self._end(supervisor, kid, reason)
                            return self.log
            case Ask(name, verb, child):
                for supervisor in self.supervisors():
                    if supervisor.spec.name == name:
                        self.log.append("=" + supervisor.answer(verb, child))
                        break
        return self.log

    def _end(self, supervisor: Supervisor, kid: Kid, reason: object) -> None:
        if isinstance(kid.life, Supervisor) and reason != "kill":
            kid.life.stop_all()
        elif isinstance(kid.life, Supervisor):
            # Its children end with it; only those that are supervisors have time to ask theirs.
            for below in kid.life.kids:
                if isinstance(below.life, Supervisor):
                    below.life.stop_all()
        supervisor.ended(kid, reason)

    def supervisors(self) -> Iterator[Supervisor]:
        """All that run, from the top."""
        found = [self.top] if self.top is not None and self.top.alive else []
        while found:
            supervisor = found.pop(0)
            yield supervisor
            found += [kid.life for kid in supervisor.kids if isinstance(kid.life, Supervisor)]

    def seen(self) -> list[str]:
        """Who is there: everybody under the top, `-` for those that do not run."""
        assert self.top is not None
        return self.top.seen()


class Kid:
    """A child of a supervisor, and its life, if it has one."""

    def __init__(self, spec: Leaf | Branch) -> None:
        self.spec = spec
        self.life: Leaf | Supervisor | None = None


class Supervisor:
    """One life of a supervisor. Raises `Failed` if a child does not start."""

    def __init__(self, world: World, spec: Branch) -> None:
        self.world = world
        self.spec = spec
        self.alive = True
        self.restarts_s: list[float] = []
        self.kids: list[Kid] = []
        if any(self.refuses(kid) for kid in spec.kids):
            raise Failed
        self.kids = [Kid(kid) for kid in spec.kids]
        try:
            self.start_in_order(list(self.kids))
        except Failed:
            self.stop_all()
            raise

    # Lives

    def start_in_order(self, kids: list[Kid]) -> None:
        for kid in kids:
            self.failed_kid = kid
            try:
                kid.life = self.world.start(kid.spec)
            except Ignored:
                kid.life = None
                self.forget_if_temporary(kid)

    def stop(self, kid: Kid) -> None:
        if isinstance(kid.life, Supervisor):
            kid.life.stop_all()
        elif kid.life is not None:
            self.world.log.append("-" + kid.spec.name)
        kid.life = None

    def stop_all(self) -> None:
        self.alive = False
        for kid in reversed(self.kids):
            self.stop(kid)

    def forget_if_temporary(self, kid: Kid) -> None:
        if kid.spec.restart is Restart.TEMPORARY or self.spec.strategy is None:
            self.kids.remove(kid)

    # The end of a child

    def ended(self, kid: Kid, reason: object) -> None:
        kid.life = None
        orderly = reason in ("normal", "shutdown") or isinstance(reason, tuple)
        if kid.spec.restart is Restart.PERMANENT or (kid.spec.restart is Restart.TRANSIENT and not orderly):
            self.restart(kid)
        else:
            self.forget_if_temporary(kid)
            left = [other for other in self.kids if other.spec.significant and other.life is not None]
            auto = self.spec.auto_shutdown
            if kid.spec.significant and (
                auto is AutoShutdown.ANY_SIGNIFICANT or (auto is AutoShutdown.ALL_SIGNIFICANT and not left)
            ):
                self.give_up()

    def restart(self, kid: Kid) -> None:
        self.restarts_s.append(self.world.now_s)
        if sum(at_s >= self.world.now_s - WINDOW_S for at_s in self.restarts_s) > self.spec.max_restarts:
            self.give_up()
            return
        at = self.kids.index(kid)
        group = {
            None: [kid],
            Strategy.ONE_FOR_ONE: [kid],
            Strategy.REST_FOR_ONE: self.kids[at:],
            Strategy.ONE_FOR_ALL: list(self.kids),
        }[self.spec.strategy]
        for other in reversed(group):
            if other is not kid:
                self.stop(other)
                if other.spec.restart is Restart.TEMPORARY:
                    self.kids.remove(other)
        try:
            self.start_in_order([other for other in group if other in self.kids])
        except Failed:
            self.restart(self.failed_kid)

    def give_up(self) -> None:
        self.stop_all()
        above = next((s for s in self.world.supervisors() for kid in s.kids if kid.life is self), None)
        if above is None:
            self.world.log.append("dead")
        else:
            above.ended(next(kid for kid in above.kids if kid.life is self), "shutdown")

    # The functions

    def answer(self, verb: str, child: str | Leaf | Branch) -> str:
        if not isinstance(child, str):
            return self.add(child)
        kid = next((kid for kid in self.kids if kid.spec.name == child), None)
        if self.spec.strategy is None and verb != "stop":
            return "refused"
        if kid is None or (verb != "stop" and kid.life is not None):
            return "refused"
        if verb == "stop":
            self.stop(kid)
            self.forget_if_temporary(kid)
        elif verb == "delete":
            self.kids.remove(kid)
        else:
            try:
                self.start_in_order([kid])
            except Failed:
                return "failed"
            return "none" if kid.life is None else "ok"
        return "ok"

    def add(self, spec: Leaf | Branch) -> str:
        taken = self.spec.strategy is not None and any(kid.spec.name == spec.name for kid in self.kids)
        if taken or self.refuses(spec):
            return "refused"
        kid = Kid(spec)
        try:
            self.kids.append(kid)
            self.start_in_order([kid])
        except Failed:
            self.kids.remove(kid)
            return "failed"
        return "none" if kid.life is None else "ok"

    def refuses(self, spec: Leaf | Branch) -> bool:
        never = self.spec.auto_shutdown is AutoShutdown.NEVER or spec.restart is Restart.PERMANENT
        return spec.significant and never

    def seen(self) -> list[str]:
        rows: list[str] = []
        for kid in self.kids:
            rows.append(kid.spec.name + ("" if kid.life is not None else "-"))
            if isinstance(kid.life, Supervisor):
                rows += kid.life.seen()
        return rows
