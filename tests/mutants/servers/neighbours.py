"""Servers whose ghosts or contacts lack a guard."""

from collections.abc import Mapping
from typing import Any, Final

from batonpass.authority.procedures import commit as transfer_procedures
from batonpass.scenarios.simulation.servers.parts import ServersParts
from batonpass.simserver.neighbours.host import HostedNeighbours
from tests.mutants.servers.groups import changed

__all__ = ["MOVES_WHATEVER_THE_RULE", "KeepsSilentPeers"]


class KeepsSilentPeers(HostedNeighbours):
    """It shows the ghosts of a server of which nothing is heard."""

    def _forget_silent(self, now_ns: int) -> None:
        pass


def _no_rule(_rows: Any, _record: Any, _args: Mapping[str, Any]) -> None:
    """A contact is asked for nothing."""


MOVES_WHATEVER_THE_RULE: Final = ServersParts(
    procedures=changed(transfer_procedures, "why_not_by_contact", _no_rule, "transfer.commit")
)
"""Homes that hand an entity over to whatever it meets."""
