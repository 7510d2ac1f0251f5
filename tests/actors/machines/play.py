"""Plays the scripts of `script.py` on a `StateMachine`, and writes the transcript."""

from __future__ import annotations

from typing import Any

import trio
from trio.testing import wait_all_tasks_blocked

from batonpass.actors import HIBERNATE, Exit, Ref, Stop, System
from batonpass.actors.machines import (
    POSTPONE,
    Action,
    CallbackMode,
    CallEvent,
    CancelTimeout,
    CastEvent,
    EnterEvent,
    EventTimeout,
    FirstState,
    InfoEvent,
    InternalEvent,
    KeepState,
    MachineEvent,
    NamedTimeout,
    NextEvent,
    NextState,
    RepeatState,
    ReplyTo,
    StartTimeout,
    StateMachine,
    StateTimeout,
    UpdateTimeout,
)
from tests.actors.machines.script import EXTRA_S, UNIT_S, Program

Data = tuple[int, ...]
"""How often each rule may still be used."""


class Played(StateMachine[str, Data]):
    """Does what a program says, and notes what it is told."""

    def __init__(self, program: Program, notes: list[str]) -> None:
        self._program = program
        self._notes = notes

    def init(self, arg: None) -> FirstState[str, Data]:
        program = self._program
        actions = [_action(action, None) for action in program.actions]
        return FirstState(program.first, tuple(rule.uses for rule in program.rules), actions)

    def handle_event(self, event: MachineEvent, state: str, data: Data) -> Any:
        name, text = _named(event)
        self._notes.append(f"{state}<{text}")
        for place, rule in enumerate(self._program.rules):
            if (rule.state, rule.event) == (state, name) and data[place]:
                data = (*data[:place], data[place] - 1, *data[place + 1 :])
                return self._result(rule.result, [_action(action, event) for action in rule.actions], data)
        return None

    def _result(self, result: str, actions: list[Action], data: Data) -> Any:
        if result == "=":
            return KeepState(data, actions)
        if result == "=!":
            return RepeatState(data, actions)
        if result.startswith("->"):
            return NextState(result[2:], data, actions)
        return Stop(result[1:], data, "ok") if actions else Stop(result[1:], data)

    def terminate(self, reason: object, state: tuple[str, Data]) -> None:
        self._notes.append(f"{state[0]}!{reason if isinstance(reason, str) else 'error'}")


class PlayedByFunctions(Played):
    """The same, by a function for each state."""

    callback_mode = CallbackMode.STATE_FUNCTIONS

    def a(self, event: MachineEvent, data: Data) -> Any:
        return self.handle_event(event, "a", data)

    def b(self, event: MachineEvent, data: Data) -> Any:
        return self.handle_event(event, "b", data)

    def c(self, event: MachineEvent, data: Data) -> Any:
        return self.handle_event(event, "c", data)


class PlayedSlowly(Played):
    """The same, by a callback that takes a moment."""

    async def handle_event(self, event: MachineEvent, state: str, data: Data) -> Any:
        await trio.lowlevel.checkpoint()
        return super().handle_event(event, state, data)


def _named(event: MachineEvent) -> tuple[str, str]:
    match event:
        case EnterEvent(old):
            return ">", f">{old}"
        case StateTimeout(content):
            return "st", f"st:{content}"
        case EventTimeout(content):
            return "et", f"et:{content}"
        case NamedTimeout(name, content):
            return str(name), f"{name}:{content}"
        case CallEvent(text, _) | CastEvent(text) | InfoEvent(text) | InternalEvent(text):
            return text, text


def _action(text: str, event: MachineEvent | None) -> Action:
    match text[:2]:
        case "p":
            return POSTPONE
        case "h":
            return HIBERNATE
        case "r":
            assert isinstance(event, CallEvent)
            return ReplyTo(event.from_, "ok")
        case "e:":
            kind = {"n": InternalEvent, "c": CastEvent, "i": InfoEvent}[text[2]]
            return NextEvent(kind(text[2:]))
        case _:
            return _timeout_action(text)


def _timeout_action(text: str) -> Action:
    name, rest = text[:2], text[2:]
    if rest == "-":
        match name:
            case "st":
                return CancelTimeout(StateTimeout)
            case "et":
                return CancelTimeout(EventTimeout)
            case _:
                return CancelTimeout(NamedTimeout(name))
    if rest.startswith("~"):
        return UpdateTimeout(_timeout(name, rest[1:]))
    units, _, content = rest[1:].partition(":")
    delay_s = 0.0 if units == "0" else int(units) * UNIT_S + EXTRA_S[name]
    return StartTimeout(delay_s, _timeout(name, content))


def _timeout(name: str, content: str) -> StateTimeout | EventTimeout | NamedTimeout:
    if name == "st":
        return StateTimeout(content)
    return EventTimeout(content) if name == "et" else NamedTimeout(name, content)


async def played(system: System, program: Program, steps: list[str], *, slowly: bool = False) -> str:
    """The transcript of a script."""
    notes: list[str] = []
    kind = PlayedByFunctions if program.by_function else PlayedSlowly if slowly else Played
    enters: type[Played] = type(kind.__name__, (kind,), {"state_enter": program.enter})
    ref = await system.start(lambda: enters(program, notes))
    calls: dict[int, tuple[str, str]] = {}
    segments = [await _seen(notes, calls)]
    async with trio.open_nursery() as nursery:
        for number, step in enumerate(steps):
            if not ref.alive:
                break
            if step.startswith("w"):
                await trio.sleep(int(step[1:]) * UNIT_S)
            elif step.startswith("q"):
                calls[number] = (step, "")
                nursery.start_soon(_ask, ref, step, number, calls)
            else:
                (ref.send if step.startswith("i") else ref.cast)(step)
            segments.append(await _seen(notes, calls))
        ref.kill()
    return " | ".join(segments)


async def _ask(ref: Ref, call: str, number: int, calls: dict[int, tuple[str, str]]) -> None:
    try:
        calls[number] = (call, await ref.call(call, None))
    except Exit:
        calls[number] = (call, "x")


async def _seen(notes: list[str], calls: dict[int, tuple[str, str]]) -> str:
    await wait_all_tasks_blocked()
    seen = list(notes)
    notes.clear()
    for number, (call, answer) in list(calls.items()):
        if answer:
            seen.append(f"{call}={answer}")
            del calls[number]
    return " ".join(seen)
