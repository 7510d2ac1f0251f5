"""Khepri's conformance cases on the pure machine; the other backends run the same ones."""

from collections.abc import Callable
from typing import Any

import pytest

from batonpass.tree.data.node import NodeView
from batonpass.tree.data.path import Path
from batonpass.tree.machine.commands import Command, CommandAnswer, Machine, encode_command
from tests.tree.khepri_cases import CASES, Backend, Refused


class PureBackend:
    """A machine in this process, given commands as the log would."""

    def __init__(self) -> None:
        self.machine = Machine({})
        self._number = 0

    def run(self, procedure: str, args: Any) -> Any:
        self._number += 1
        _, encoded = self.machine.apply(encode_command(Command(procedure, args, "case", self._number)))
        answer = CommandAnswer.from_encoded(encoded)
        if answer.code is not None:
            raise Refused(answer.code, answer.details)
        return answer.value

    def view(self, path: Path) -> NodeView | None:
        return self.machine.store.view(path)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_khepri(case: Callable[[Backend], None]) -> None:
    case(PureBackend())
