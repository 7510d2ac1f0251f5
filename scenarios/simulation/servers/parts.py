"""Of what simulated servers are made: the real parts, of which a mutant exchanges one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from batonpass.authority.node.spans import SILENT, Spans
from batonpass.client.input_stream import InputStream
from batonpass.homeserver.node.composition import RENEW_AFTER, Kinds
from batonpass.simserver.server.build import PartTypes

__all__ = ["ServersParts"]


def _silent(server: str, now_ns: Callable[[], int]) -> Spans:
    """No spans are kept."""
    return SILENT


@dataclass(frozen=True, kw_only=True)
class ServersParts(PartTypes):
    """The classes of which servers, and players, are made; those of simulation servers as `PartTypes` has them."""

    home: Kinds = field(default_factory=Kinds)
    renew_after: int = RENEW_AFTER
    stream: type[InputStream] = InputStream
    spans: Callable[[str, Callable[[], int]], Spans] = _silent
    """What a server tells of hand-overs, by its name and its monotonic nanoseconds; once for each of its lives."""
    procedures: Mapping[str, Any] = field(default_factory=dict)
    """Procedures of the log that are other than the real ones."""
