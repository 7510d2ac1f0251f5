"""Of what simulated clusters of machines are made: the real parts, of which a mutant exchanges one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from batonpass.authority.machines.lease import Granter
from batonpass.authority.machines.source import Outgoing
from batonpass.authority.machines.target import Incoming
from batonpass.authority.procedures.table import PROCEDURES
from batonpass.scenarios.simulation.machines.keeping import Keeping
from batonpass.scenarios.simulation.machines.rows import MachineRows

__all__ = ["MachineParts"]


@dataclass(frozen=True)
class MachineParts:
    """The machines, the procedures of the log, and the rows that these are run on."""

    outgoing: type[Outgoing] = Outgoing
    incoming: type[Incoming] = Incoming
    procedures: Mapping[str, Callable[..., Any]] = field(default_factory=lambda: PROCEDURES)
    rows: type[MachineRows] = MachineRows
    granter: type[Granter] = Granter
    keeping: type[Keeping] = Keeping
    freezes: bool = True
    """Whether an entity that is on its way is frozen."""
    keeps_cursors: bool = True
    """Whether it is known on arrival how far inputs have come."""
