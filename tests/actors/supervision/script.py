"""Scripts: a family of children, what happens to it, and the transcript of what its supervisors did.

As text, which is what was recorded from OTP, a script with its transcript is one line:

    rest_for_one 5 never | a:permanent b:permanent(.x) c:temporary | b!boom stop:a: +a +b +c | -c xb +b | -a =ok | a- b

that is: strategy, max_restarts and auto_shutdown; the children in order; what is done to them; and, after the colon,
what happened at the start and at each step, and who is there in the end. A child is `name:restart`, with `*` if it is
significant, and in brackets what becomes of its starts: `.` it starts, `x` it fails, `i` it ignores (after the last it
starts). Steps are `name!reason` (the child ends by itself; `kill` is done to it), `stop:name`, `restart:name`,
`delete:name` and `start:child`.

In a transcript `+a` is a start, `xa` a failed one, `ia` an ignored one, `-a` an end that the supervisor asked for;
`=ok`, `=none`, `=failed` and `=refused` are the answers of functions, `dead` is the end of the supervisor, and in the
end `a-` is a child that does not run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from batonpass.actors import AutoShutdown, Restart, Strategy

RECORDED = Path(__file__).with_name("otp_supervision.txt")


@dataclass(frozen=True)
class Leaf:
    """A child that does nothing but start and end. `waits`: its start and its end take a while."""

    name: str
    restart: Restart = Restart.PERMANENT
    significant: bool = False
    starts: str = ""
    waits: bool = False


@dataclass(frozen=True)
class Branch:
    """A supervisor, with `strategy` None a dynamic one."""

    name: str
    kids: tuple[Leaf | Branch, ...]
    restart: Restart = Restart.PERMANENT
    significant: bool = False
    strategy: Strategy | None = Strategy.ONE_FOR_ONE
    max_restarts: int = 3
    auto_shutdown: AutoShutdown = AutoShutdown.NEVER


@dataclass(frozen=True)
class End:
    """A child ends by itself, for this reason; `"kill"` is done to it."""

    name: str
    reason: object


@dataclass(frozen=True)
class Ask:
    """One of the supervisor's functions: "stop", "restart", "delete" or "start"."""

    supervisor: str
    verb: str
    child: str | Leaf | Branch


@dataclass(frozen=True)
class Wait:
    """Time passes."""

    seconds: float


Step = End | Ask | Wait

CHILD = re.compile(r"(\w+):(permanent|transient|temporary)(\*?)(?:\(([.xi]*)\))?")
REASONS: dict[str, object] = {"shutdownx": ("shutdown", "x")}


def recorded() -> dict[str, str]:
    """Each script that was recorded, and its transcript."""
    lines = RECORDED.read_text().splitlines()
    return dict(line.split(": ", 1) for line in lines if not line.startswith("#"))


def read_script(text: str) -> tuple[Branch, list[Step]]:
    """The script in one line of text. Its supervisor has the name "top"."""
    flags, children, steps = text.split(" | ")
    strategy, max_restarts, auto_shutdown = flags.split()
    top = Branch(
        "top",
        tuple(_read_child(child) for child in children.split()),
        Restart.TEMPORARY,
        strategy=Strategy(strategy),
        max_restarts=int(max_restarts),
        auto_shutdown=AutoShutdown(auto_shutdown),
    )
    return top, [_read_step(step) for step in steps.split()]


def _read_child(text: str) -> Leaf:
    match = CHILD.fullmatch(text)
    assert match is not None, text
    name, restart, significant, starts = match.groups()
    return Leaf(name, Restart(restart), bool(significant), starts or "")


def _read_step(text: str) -> Step:
    if "!" in text:
        name, reason = text.split("!")
        return End(name, REASONS.get(reason, reason))
    verb, child = text.split(":", 1)
    return Ask("top", verb, _read_child(child) if verb == "start" else child)
