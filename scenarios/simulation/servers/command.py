"""`baton simulate servers`: read the flags, run the campaign, show what it survived."""

from typing import Any, Final

import click

from batonpass.scenarios.simulation.kernel.campaign import CampaignKind
from batonpass.scenarios.simulation.kernel.show import campaign_options, run_from_command
from batonpass.scenarios.simulation.servers.mixes import MIXES

__all__ = ["SERVERS", "command"]

SERVERS: Final = CampaignKind(
    command="baton simulate servers",
    run="batonpass.scenarios.simulation.servers.run:simulate_seed",
    mixes=tuple(MIXES),
    columns={
        "moves": "moves",
        "inputs": "inputs",
        "ticks": "ticks",
        "messages": "messages",
        "deaths": "deaths",
        "takeovers": "take-overs",
        "lost": "lost",
        "virtual_s": "virtual s",
    },
    counted="moves",
    title="transfers",
)


@click.command(name="servers", short_help="Whole clusters of servers under faults, on virtual time.")
@campaign_options(SERVERS.mixes)
def command(**flags: Any) -> int:
    """Move entities between real servers on virtual time, with faults drawn from seeds, and judge what becomes of them.

    Each seed is eight seconds of faults in a cluster of two home instances, five simulation servers, eight entities and
    two players, a healing, and a verdict. There may never be two authorities, or a state that goes backwards. Every
    input is applied once and in order, and everything is at rest in the end. The same seed is the same run, everywhere.
    The exit status is 1 if anything was violated; the command that replays it is printed.

    \b
    Examples:
      baton simulate --seeds 1000
      baton simulate servers --mix pauses --seeds 5000 --from 1000
      baton simulate servers --mix cuts --from 1123 --seeds 1 --trace
    """
    return run_from_command(SERVERS, flags)
