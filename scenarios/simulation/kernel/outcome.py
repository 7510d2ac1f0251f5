"""What came of a run, whatever was run, and what was violated in it."""

from dataclasses import dataclass, fields
from typing import Any

__all__ = ["RunOutcome", "Violation"]


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken promise: `kind` is a stable word, `sentence` says which server, where and what."""

    kind: str
    sentence: str

    def __str__(self) -> str:
        """A line for a report."""
        return f"{self.kind}: {self.sentence}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """Extended by each kind of run by its own figures.

    `trace` is a hash of everything that happened, `lines` the end of it, if something was violated.
    """

    seed: int
    mix: str
    violations: tuple[Violation, ...]
    crashes: int
    events: int
    virtual_s: float
    trace: str
    lines: tuple[str, ...] = ()

    def to_data(self) -> dict[str, Any]:
        """As plain data, without the lines."""
        left_out = {"violations", "lines"}
        data = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in left_out}
        data["violations"] = [[violation.kind, violation.sentence] for violation in self.violations]
        return data
