"""What can be wrong with a world before it has simulated anything, said when its server starts."""

import inspect
from collections.abc import Collection, Mapping
from typing import Any, Final

from batonpass.authority.wire.transfer import MAX_SCHEMA_VERSION
from batonpass.simserver.world.participants import MAX_PART_NAME, MAX_PARTS

__all__ = ["flaw"]

_NEEDED_OF_BATCH: Final = ("enter", "leave", "encode")
_METHODS: Final = (
    *("spawn", "step", "advance", "destination", "position", "takers_changed"),
    *("may_sleep", "migrate", "affinity", "immovable"),
    *("step_all", "enter", "leave", "encode", "encode_all", "undo", "positions"),
)
_OF_A_PART: Final = ("dehydrate", "rehydrate", "release")


def flaw(world: Any) -> str:
    """What is wrong with it and what to do, in one line; empty if nothing is seen.

    Raises:
        Exception: whatever the world raises when it is looked at.
    """
    if not hasattr(world, "spawn"):
        return "it has no `spawn`: give it one"
    if hasattr(world, "step_all"):
        missing = next((name for name in _NEEDED_OF_BATCH if not hasattr(world, name)), "")
        if missing:
            return f"it has no `{missing}`: give it one"
    elif not hasattr(world, "destination") and not hasattr(world, "position"):
        return "it has neither `destination` nor `position`: give it one of them"
    elif not hasattr(world, "step") and not hasattr(world, "advance"):
        return "it has neither `step` nor `advance`: give it one of them"
    wrong = (_flaw_of_method(f"`{name}`", getattr(world, name)) for name in _METHODS if hasattr(world, name))
    return next(filter(None, wrong), "") or _flaw_of_values(world) or _flaw_of_participants(world)


def _flaw_of_values(world: Any) -> str:
    takes = getattr(world, "takes_messages", False)
    if type(takes) is not bool:
        return f"`takes_messages` is {takes!r:.40}: say True, or leave it out"
    if takes and not (hasattr(world, "advance") or hasattr(world, "step_all")):
        return "it takes messages, and has no `advance`, whose `step` has them: give it one"
    version, kinds = getattr(world, "schema_version", 1), getattr(world, "kinds", None)
    if type(version) is not int or not 0 <= version <= MAX_SCHEMA_VERSION:
        return f"`schema_version` is {version!r:.40}: give a whole number from 0 to {MAX_SCHEMA_VERSION}"
    if kinds is None:
        return ""
    if isinstance(kinds, str) or not isinstance(kinds, Collection):
        return f"`kinds` is {kinds!r:.40}: give a collection of texts"
    wrong = next((kind for kind in kinds if not isinstance(kind, str)), None)
    return "" if wrong is None else f"one of its `kinds` is {wrong!r:.40}: give texts"


def _flaw_of_method(name: str, method: Any) -> str:
    if not callable(method):
        return f"{name} is {method!r:.40}: make it a plain method, or leave it out"
    looked_at = (method, type(method).__call__)
    if any(inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each) for each in looked_at):
        return f"{name} is `async def`, which is never awaited: make it a plain method"
    if any(map(inspect.isgeneratorfunction, looked_at)):
        return f"{name} is a generator, which is never run: let it return and not yield"
    return ""


def _flaw_of_participants(world: Any) -> str:
    participants = getattr(world, "participants", None)
    if participants is None:
        return ""
    if not isinstance(participants, Mapping):
        return "`participants` is no mapping: give a dict of names to participants"
    if len(participants) > MAX_PARTS:
        return f"it has {len(participants)} participants: give at most {MAX_PARTS}"
    for name, participant in participants.items():
        if not isinstance(name, str) or not 1 <= len(name) <= MAX_PART_NAME:
            return f"a participant is named {name!r:.80}: give a text of 1 to {MAX_PART_NAME} characters"
        for method in _OF_A_PART:
            called = f"`{method}` of its participant {name!r}"
            if not hasattr(participant, method):
                return f"{called} is missing: give it one"
            if wrong := _flaw_of_method(called, getattr(participant, method)):
                return wrong
    return ""
