"""Scripts: a state machine as a list of rules, what is sent to it, and the transcript of what it was told and did.

As text, which is what was recorded from gen_statem, a script with its transcript is one line:

    h + a st=1:x e:n1 ; a c1 2 ->b p ; b > 1 = st=0:y | c1 w2 q1: a<>a a<n1 | a<c1 b<>a b<c1 b<st:y |  | b<q1

that is: `h` (one function for all events) or `f` (one for each state), `+` with or `-` without enter calls, the first
state and the first actions; then rules, `state event uses result actions`; after the bar what is sent; and, after the
colon, what happened at the start and at each step. A rule counts until it was used as often as it says, and the first
that counts decides; where none does, the machine stays. So every script ends.

Events are `c1` (a cast), `q1` (a call), `i1` (a message), `n1` (internal), `st`, `et` and `t1` (the timeouts of the
state, of events, and one with a name) and `>` (the state has begun). Results are `=` (stay), `=!` (begin again), `->b`
and `.reason` (end). Actions are `p` (postpone), `h` (hibernate), `r` (answer this call), `e:n1` (insert an event),
`st=2:x` (in two units of time, with content x), `st~x` (update) and `st-` (cancel). Steps are events, and `w2`: wait.

In a transcript `a<c1` is a callback for `c1` in state `a`, `b<>a` an enter call of `b` from `a`, `b!boom` a terminate,
and `q1=ok` or `q1=x` an answer, or the end of the hope for one.
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass
from pathlib import Path

RECORDED = Path(__file__).with_name("otp_machines.txt")
UNIT_S = 0.150
EXTRA_S = {"st": 0.020, "et": 0.029, "t1": 0.038, "t2": 0.047}
"""A timeout takes so much longer, so that no two things are due at once, whatever the jitter of a real clock."""


@dataclass(frozen=True)
class Rule:
    """What one event does in one state, `uses` times."""

    state: str
    event: str
    uses: int
    result: str
    actions: tuple[str, ...]


@dataclass(frozen=True)
class Program:
    """One machine."""

    by_function: bool
    enter: bool
    first: str
    actions: tuple[str, ...]
    rules: tuple[Rule, ...]


def read_script(text: str) -> tuple[Program, list[str]]:
    """The machine and the steps of a script."""
    program, _, steps = text.partition(" | ")
    header, *rules = program.split(" ; ")
    mode, enter, first, *actions = header.split()
    return Program(mode == "f", enter == "+", first, tuple(actions), tuple(map(_read_rule, rules))), steps.split()


def _read_rule(text: str) -> Rule:
    state, event, uses, result, *actions = text.split()
    return Rule(state, event, int(uses), result, tuple(actions))


def recorded() -> dict[str, str]:
    """To each script its transcript."""
    lines = [line for line in RECORDED.read_text().splitlines() if not line.startswith("#")]
    return {script: transcript for script, _, transcript in (line.partition(": ") for line in lines)}


# New scripts


def write_script(dice: random.Random) -> str:
    """One at random. A timeout of one kind always has no time, or always some: docs/reference/actors-for-otp.md."""
    timeless = {name: dice.random() < 0.4 for name in EXTRA_S}
    enter = dice.random() < 0.6
    header = [dice.choice("hf"), "+" if enter else "-", dice.choice("abc"), *_actions(dice, timeless, "start")]
    rules = [_rule(dice, timeless, enter=enter) for _ in range(dice.randint(4, 14))]
    steps = [dice.choice(("c1", "c2", "q1", "q2", "i1", "w1", "w2")) for _ in range(dice.randint(3, 9))]
    return f"{' '.join(header)} ; {' ; '.join(rules)} | {' '.join(steps)}"


def _rule(dice: random.Random, timeless: dict[str, bool], *, enter: bool) -> str:
    events = ["c1", "c2", "c1", "q1", "q2", "i1", "n1", "n2", "st", "et", "t1", "t2"]
    event = ">" if enter and dice.random() < 0.25 else dice.choice(events)
    results = ["=", "=", "->a", "->b", "->c", "->a", "->b", "->c", "=!"]
    if event == ">":
        results = ["=", "=", "=", "=", "=!"] if dice.random() < 0.93 else ["->a", "->b", ".boom"]
    elif dice.random() < 0.04:
        results = [".normal", ".normal", ".boom", ".shutdown"]
    result = dice.choice(results)
    if result.startswith("."):
        actions = ["r"] if event.startswith("q") and dice.random() < 0.5 else []
    else:
        actions = _actions(dice, timeless, event)
    return " ".join([dice.choice("abc"), event, str(dice.randint(1, 3)), result, *actions])


def _actions(dice: random.Random, timeless: dict[str, bool], event: str) -> list[str]:
    choices = ["timeout", "timeout", "timeout", "cancel", "update", "h"]
    if event != ">" or dice.random() < 0.05:
        choices += ["p", "p", "p", "e", "e"]
    if event.startswith("q"):
        choices += ["r", "r", "r", "r"]
    actions = [dice.choice(choices) for _ in range(dice.choice((0, 0, 1, 1, 1, 2, 3)))]
    if event == "start":
        actions = [action for action in actions if action != "p"]
    return [_action(dice, timeless, action) for action in actions]


def _action(dice: random.Random, timeless: dict[str, bool], kind: str) -> str:
    name = dice.choice(list(EXTRA_S))
    match kind:
        case "timeout":
            return f"{name}={0 if timeless[name] else dice.randint(1, 2)}:{dice.choice('xyz')}"
        case "cancel":
            return f"{name}-"
        case "update":
            return f"{name}~{dice.choice('uvw')}"
        case "e":
            return f"e:{dice.choice(('n1', 'n2', 'c1', 'i1'))}"
        case _:
            return kind


if __name__ == "__main__":
    seeded = random.Random(47)
    sys.stdout.writelines(f"{script}\n" for script in dict.fromkeys(write_script(seeded) for _ in range(1000)))
