"""The recorded lines, and the cases that answer them: each says the line it is about, and returns what happened here.

What a case returns is written as Elixir's `inspect` would write it, and then has to be the recorded text.
"""

import re
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

from batonpass.actors import BadReturnValue, CallingSelf, Exit, Ignored, Ref, StartError, System
from batonpass.actors.core.exits import is_shutdown

Case = Callable[[System], Awaitable[Any]]

RECORDED = Path(__file__).with_name("otp_oracle.txt")
CASES: dict[str, list[Case]] = {}
"""By line. Exactly one case for each recorded line: `test_oracle.py` sees to that."""

HERE: dict[str, str] = {}
"""By line, what happens here, where that is something else: docs/reference/actors-for-otp.md says why."""


def recorded_lines() -> list[str]:
    """Every line of the recording, in order; the numbers of Erlang's processes mean nothing, and are left out."""
    text = "".join(line for line in RECORDED.read_text().splitlines(keepends=True) if not line.startswith("#"))
    return _without_pids(re.sub(r"\n +", " ", text)).splitlines()


def _without_pids(text: str) -> str:
    return re.sub(r"#PID<[\d.]+>", "#PID<>", text)


def oracle(what: str, expected: str) -> Callable[[Case], Case]:
    """The decorated function does `what`, and returns what Elixir's answer `expected` describes."""

    def add(case: Case) -> Case:
        CASES.setdefault(_without_pids(f"{what}: {expected}"), []).append(case)
        return case

    return add


def otherwise(what: str, expected: str, here: str) -> Callable[[Case], Case]:
    """The same where another thing happens here, on purpose: the decorated function returns what `here` describes."""
    HERE[_without_pids(f"{what}: {expected}")] = here
    return oracle(what, expected)


class Transcript:
    """A recording whose lines follow from each other: what happens here is said line by line.

    `otherwise` has, by what was done, what happens here on purpose where that is something else.
    """

    def __init__(self, path: Path, begins: str = "", otherwise: dict[str, str] | None = None) -> None:
        lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
        self._unsaid = [line.removeprefix(begins) for line in lines if line.startswith(begins)]
        self._otherwise = {} if otherwise is None else otherwise

    def say(self, what: str, outcome: Any) -> None:
        """Here `what` has this outcome, which has to be the recorded one."""
        [line] = [line for line in self._unsaid if line.startswith(f"{what}: ")]
        self._unsaid.remove(line)
        there, here = line.removeprefix(f"{what}: "), inspect(outcome)
        if what in self._otherwise:
            assert here == self._otherwise[what] != there, what
        else:
            assert here == there, what

    def all_said(self) -> bool:
        """Whether nothing is left."""
        return not self._unsaid


class Raw(str):
    """Elixir text that stands for itself."""

    __slots__ = ()


def inspect(value: Any) -> str:
    """`value` as Elixir would show it: strings are atoms, tuples in braces, lists of pairs are keywords."""
    if isinstance(value, Raw):
        return value
    if isinstance(value, str):
        return f":{value}"
    if isinstance(value, tuple):
        return f"{{{_joined(value)}}}"
    if isinstance(value, list):
        if value and all(isinstance(item, tuple) and len(item) == 2 and type(item[0]) is str for item in value):
            return f"[{', '.join(f'{key}: {inspect(item)}' for key, item in value)}]"
        return f"[{_joined(value)}]"
    if isinstance(value, Ref):
        return "#PID<>"
    return {type(None): "nil", bool: str(value).lower(), int: str(value)}[type(value)]


def _joined(values: Iterable[Any]) -> str:
    return ", ".join(inspect(value) for value in values)


def reason_in_elixir(reason: object) -> Any:
    """An exit reason of ours in Elixir's terms, for those that differ: exceptions, and what a supervisor adds."""
    match reason:
        case BadReturnValue():
            return "bad_return_value", reason.value
        case CallingSelf():
            return Raw("{:calling_self, {GenServer, :call, [#PID<>, :get, 5000]}}")
        case Exit():
            return reason.reason, "stacktrace"
        case BaseException():
            return Raw(f'%{type(reason).__name__}{{message: "{reason}"}}'), "stacktrace"
        case ("shutdown", BaseException()) if is_shutdown(reason):
            return "shutdown"
        case _:
            return reason


async def called(call: Awaitable[Any]) -> Any:
    """The outcome of a call: `("ret", answer)`, or `("exit", (reason, "call"))`."""
    try:
        return "ret", await call
    except Exit as error:
        return "exit", (reason_in_elixir(error.reason), "call")


async def started(start: Awaitable[Any]) -> Any:
    """The outcome of a start: `("error", reason)`, `"ignore"`, or `"ok"`."""
    try:
        await start
    except Ignored:
        return "ignore"
    except StartError as error:
        return "error", reason_in_elixir(error.reason)
    return "ok"
