"""A world whose entities count to each other, and notice what is missing, comes again or comes out of order."""

from collections.abc import Sequence
from typing import Any

from batonpass.simserver.world.pending_input import PendingInput
from batonpass.simserver.world.step import Step


class Chatter:
    """From its first input on, an entity sends each of `to` the numbers from 1 to `upto`, one with each tick."""

    takes_messages = True

    def spawn(self, kind: str, params: dict[str, Any]) -> Any:
        return {"to": list(params["to"]), "upto": int(params["upto"]), "said": 0, "had": {}, "wrong": [], "refused": {}}

    def step(self, state: Any, inputs: Sequence[PendingInput], dt_s: float) -> Any:
        raise NotImplementedError

    def advance(self, state: Any, inputs: Sequence[PendingInput], dt_s: float, step: Step) -> Any:
        had, wrong, refused, said = dict(state["had"]), list(state["wrong"]), dict(state["refused"]), state["said"]
        for message in step.messages:
            number = int(message.data)
            if number != had.get(message.sender, 0) + 1:
                wrong.append([message.sender, number, had.get(message.sender, 0)])
            had[message.sender] = number
        for one in step.refused:
            refused[one.to] = one.reason.value
        if (said or inputs) and said < state["upto"]:
            said += 1
            for to in state["to"]:
                step.send(to, b"%d" % said)
        return state | {"said": said, "had": had, "wrong": wrong, "refused": refused}

    def destination(self, state: Any, here: str, ticks_here: int) -> str | None:
        return None
