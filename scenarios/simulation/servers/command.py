"""`baton simulate servers`: read the flags, run the campaign, show what it survived."""

import os
from collections.abc import Mapping
from typing import Any, Final

import click

from batonpass.scenarios.simulation.campaign import Campaign
from batonpass.scenarios.simulation.pace import Pace
from batonpass.scenarios.simulation.servers.mixes import MIXES
from batonpass.scenarios.simulation.show import campaign_options, listed_weaknesses, run_and_show

__all__ = ["COLUMNS", "command", "servers_campaign"]

COLUMNS: Final = {
    "moves": "moves",
    "inputs": "inputs",
    "ticks": "ticks",
    "messages": "messages",
    "deaths": "deaths",
    "takeovers": "take-overs",
    "lost": "lost",
    "virtual_s": "virtual s",
}


def servers_campaign(mixes: tuple[str, ...], seeds: int, *, weakness: str = "", **how: Any) -> Campaign:
    """So many seeds of each mix; `how` as of `Campaign`."""

    def replay(outcome: Mapping[str, Any]) -> str:
        what = f" --weakness {weakness}" if weakness else ""
        return f"baton simulate servers --mix {outcome['mix']} --from {outcome['seed']} --seeds 1{what} --trace"

    flags = {"weakness": weakness} if weakness else {}
    return Campaign(
        "batonpass.scenarios.simulation.servers.worker", tuple(COLUMNS), replay, mixes, seeds, flags=flags, **how
    )


@click.command(name="servers", short_help="Whole clusters of servers under faults, on virtual time.")
@campaign_options(MIXES)
def command(**flags: Any) -> int:
    """Move entities between real servers on virtual time, with faults drawn from seeds, and judge what becomes of them.

    Each seed is eight seconds of faults in a cluster of two home instances, five simulation servers, eight entities and
    two players, a healing, and a verdict: never two authorities, never a state that goes backwards, every input applied
    once and in order, and everything at rest in the end. The same seed is the same run, everywhere. The exit status is
    1 if anything was violated; the command that replays it is printed.

    \b
    Examples:
      baton simulate --seeds 1000
      baton simulate servers --mix pauses --seeds 5000 --from 1000
      baton simulate servers --mix cuts --from 1123 --seeds 1 --trace
    """
    if flags["weakness"]:
        from batonpass.scenarios.simulation.servers.weaknesses import WEAKNESSES

        if (status := listed_weaknesses(flags["weakness"], WEAKNESSES)) is not None:
            return status
    campaign = servers_campaign(
        flags["mixes"] or tuple(MIXES),
        flags["seeds"],
        first=flags["first"],
        weakness=flags["weakness"],
        workers=flags["jobs"] or os.cpu_count() or 1,
    )
    pace = Pace(campaign, "moves", "transfers")
    return run_and_show(campaign, COLUMNS, pace, trace=flags["trace"], json_file=flags["json_file"])
