"""Of what simulated servers are made: the real parts, of which a weakened variant exchanges one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from batonpass.authority.node.spans import SILENT, Spans
from batonpass.homeserver.failover.leases import Leases
from batonpass.homeserver.failover.takeover import Recoveries
from batonpass.homeserver.transfer.certificates import Certification
from batonpass.homeserver.transfer.deletion_notices import Farewells
from batonpass.homeserver.transfer.group_commit import Company
from batonpass.scenarios.players.input_stream import InputStream
from batonpass.simserver.server.build import PartTypes

__all__ = ["Parts"]


def _silent(server: str, now_ns: Callable[[], int]) -> Spans:
    """Nobody listens."""
    return SILENT


@dataclass(frozen=True, kw_only=True)
class Parts(PartTypes):
    """The classes of which servers, and players, are made; those of simulation servers as `PartTypes` has them."""

    leases: type[Leases] = Leases
    recoveries: type[Recoveries] = Recoveries
    stream: type[InputStream] = InputStream
    farewells: type[Farewells] = Farewells
    company: type[Company] = Company
    certification: type[Certification] = Certification
    spans: Callable[[str, Callable[[], int]], Spans] = _silent
    """What a server tells of hand-overs, by its name and its monotonic nanoseconds; once for each of its lives."""
    procedures: Mapping[str, Any] = field(default_factory=dict)
    """Procedures of the log that are other than the real ones."""
