"""`baton simulate machines`: read the flags, run the campaign, show what it survived."""

import os
from collections.abc import Mapping
from typing import Any, Final

import click

from batonpass.scenarios.simulation.campaign import Campaign
from batonpass.scenarios.simulation.machines.mixes import MIXES
from batonpass.scenarios.simulation.pace import Pace
from batonpass.scenarios.simulation.show import campaign_options, listed_weaknesses, run_and_show

__all__ = ["COLUMNS", "command", "machines_campaign"]

COLUMNS: Final = {
    "moves": "transfers",
    "case_1": "case 1",
    "case_2": "case 2",
    "case_3": "case 3",
    "inputs": "inputs",
    "crashes": "deaths",
    "takeovers": "take-overs",
    "lost": "lost",
}


def machines_campaign(mixes: tuple[str, ...], seeds: int, *, weakness: str = "", **how: Any) -> Campaign:
    """So many seeds of each mix; `how` as of `Campaign`."""

    def replay(outcome: Mapping[str, Any]) -> str:
        what = f" --weakness {weakness}" if weakness else ""
        return f"baton simulate machines --mix {outcome['mix']} --from {outcome['seed']} --seeds 1{what} --trace"

    flags = {"weakness": weakness} if weakness else {}
    return Campaign(
        "batonpass.scenarios.simulation.machines.worker", tuple(COLUMNS), replay, mixes, seeds, flags=flags, **how
    )


@click.command(name="machines", short_help="Whole clusters of the pure machines, thousands of transfers a second.")
@campaign_options(MIXES)
def command(**flags: Any) -> int:
    """Hand entities over between the pure machines of whole clusters on virtual time, with faults drawn from seeds.

    Each seed is some seconds of faults in a cluster of two home instances, ten simulation servers and 120 entities, a
    healing, and a verdict: never two authorities, never a state that goes backwards or is nobody's, every input applied
    once and in order, and everything at rest in the end. The machines and the procedures of the log are the real ones;
    what is around them is as thin as can be. The exit status is 1 if anything was violated; the command that replays it
    is printed.

    \b
    Examples:
      baton simulate machines --seeds 1000
      baton simulate machines --mix pauses --seeds 5000 --from 1000
      baton simulate machines --mix cuts --from 1123 --seeds 1 --trace
    """
    if flags["weakness"]:
        from batonpass.scenarios.simulation.machines.weaknesses import WEAKNESSES

        if (status := listed_weaknesses(flags["weakness"], WEAKNESSES)) is not None:
            return status
    campaign = machines_campaign(
        flags["mixes"] or tuple(MIXES),
        flags["seeds"],
        first=flags["first"],
        weakness=flags["weakness"],
        workers=flags["jobs"] or os.cpu_count() or 1,
    )
    pace = Pace(campaign, "moves", "transfers")
    return run_and_show(campaign, COLUMNS, pace, trace=flags["trace"], json_file=flags["json_file"])
