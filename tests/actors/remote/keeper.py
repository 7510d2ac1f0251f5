"""Actors that tests link, unlink and end through calls, from any node."""

from __future__ import annotations

from typing import Any

from batonpass.actors import From, Reply, Stop
from tests.actors.servers import Recorder


class Keeper(Recorder):
    """A recorder that also takes calls of the form ("do", function name, arguments) to use its own abilities."""

    trap_exit = True

    def handle_call(self, request: Any, from_: From, state: list[Any]) -> Any:
        match request:
            case ("link", ref):
                self.link(ref)
            case ("unlink", ref):
                self.unlink(ref)
            case ("links",):
                return Reply(self.ref.process.links)
            case ("exit", ref, reason):
                self.exit(ref, reason)
            case ("me",):
                return Reply(self.ref)
            case ("end", reason):
                return Stop(reason, reply="ending")
            case _:
                return Reply(list(state))
        return Reply("done")


class Mortal(Keeper):
    """The same, not trapping exits."""

    trap_exit = False
