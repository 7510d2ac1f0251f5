"""One process of node that answers for a module that is for browsers."""

import json
import subprocess
from pathlib import Path
from typing import Any, Final

from tests.chromium import installed

__all__ = ["Node", "NodeRefused"]

ANSWERS: Final = Path(__file__).parent / "answers.mjs"


class NodeRefused(Exception):
    """The module refused, with this sentence."""


class Node:
    """The process. `close` ends it."""

    def __init__(self, answers: Path = ANSWERS) -> None:
        command = [installed("node", "nodejs"), str(answers)]
        self._process: Final = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, what: str, of: Any = None) -> Any:
        """What the module answers. Raises NodeRefused: it refused by name."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"ask": what, "of": of}) + "\n")
        self._process.stdin.flush()
        reply = json.loads(self._process.stdout.readline())
        if "refused" not in reply:
            return reply.get("answer")
        assert reply["expected"], reply["refused"]
        raise NodeRefused(reply["refused"])

    def close(self) -> None:
        """End the process."""
        self._process.communicate()
