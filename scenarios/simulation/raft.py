"""Campaigns of the replicated log: which worker runs them, what is counted, how a run is seen again."""

from collections.abc import Mapping
from typing import Any, Final

from batonpass.scenarios.simulation.campaign import Campaign

__all__ = ["FIGURES", "raft_campaign"]

FIGURES: Final = (
    "acknowledged",
    "unknown",
    "reads",
    "elections",
    "snapshots",
    "crashes",
    "changes",
    "events",
    "virtual_s",
)


def raft_campaign(
    mixes: tuple[str, ...],
    seeds: int,
    *,
    nodes: int | None = None,
    weakness: str = "",
    **how: Any,
) -> Campaign:
    """So many seeds of each mix. `nodes` is 3, 5, or None for both by turns; `how` as of `Campaign`."""
    flags = {"weakness": weakness} if weakness else {}
    if nodes:
        flags["nodes"] = str(nodes)

    def replay(outcome: Mapping[str, Any]) -> str:
        what = f" --weakness {weakness}" if weakness else ""
        run = f"--mix {outcome['mix']} --from {outcome['seed']} --seeds 1 --nodes {outcome['size']}"
        return f"baton simulate raft {run}{what} --trace"

    return Campaign("batonpass.scenarios.simulation.worker", FIGURES, replay, mixes, seeds, flags=flags, **how)
