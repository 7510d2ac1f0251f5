"""Named steps at which a test can hold a server still, to kill it or another exactly there. Never on by default.

A server whose environment names a socket in `BATON_TEST_BREAKPOINTS` tells that socket of every named step that it
reaches, and does nothing at all until the answer has come: no other task runs meanwhile, no message is taken or sent.
So what a test does then, it does between two instructions of the server, not after a sleep of about the right length.
"""

import json
import logging
import os
import socket
from collections.abc import Callable, Mapping
from typing import Final

__all__ = ["ENVIRONMENT", "Breakpoints", "Reached", "breakpoints_of", "nowhere"]

_log = logging.getLogger("batonpass.actors.base.breakpoints")

ENVIRONMENT: Final = "BATON_TEST_BREAKPOINTS"

Reached = Callable[[str, str], None]
"""Told of a step and of what it is about (a transfer, say)."""


def nowhere(step: str, subject: str) -> None:
    """There are no breakpoints."""


class Breakpoints:
    """The way to the test that holds this server.

    Raises:
        OSError: no program listens there.
    """

    def __init__(self, server: str, path: str) -> None:
        self._server = server
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.connect(path)
        except OSError:
            self._socket.close()
            raise
        self._answers = self._socket.makefile("rb")
        _log.warning("%s stops at named steps until %s lets it go on: this is for tests only", server, path)

    def close(self) -> None:
        """Stop telling."""
        self._answers.close()
        self._socket.close()

    def reached(self, step: str, subject: str) -> None:
        """Tell that a step has been reached, and wait. When no program listens any more, there are no more
        breakpoints.
        """
        try:
            self._socket.sendall(json.dumps([self._server, step, subject]).encode() + b"\n")
            self._answers.readline()
        except OSError:
            _log.info("nobody listens to the breakpoints of %s any more", self._server)


def breakpoints_of(server: str, environment: Mapping[str, str] = os.environ) -> Reached | None:
    """What to tell of steps, if the environment says that a program wants to know. Raises as `Breakpoints`."""
    path = environment.get(ENVIRONMENT)
    return Breakpoints(server, path).reached if path else None
