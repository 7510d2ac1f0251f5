"""`baton simulate machines`: read the flags, run the campaign, show what it survived."""

from typing import Any, Final

import click

from batonpass.scenarios.simulation.kernel.campaign import CampaignKind
from batonpass.scenarios.simulation.kernel.show import campaign_options, run_from_command
from batonpass.scenarios.simulation.machines.mixes import MIXES

__all__ = ["MACHINES", "command"]

MACHINES: Final = CampaignKind(
    command="baton simulate machines",
    run="batonpass.scenarios.simulation.machines.run:simulate_seed",
    mixes=tuple(MIXES),
    columns={
        "moves": "transfers",
        "case_1": "case 1",
        "case_2": "case 2",
        "case_3": "case 3",
        "inputs": "inputs",
        "crashes": "deaths",
        "takeovers": "take-overs",
        "lost": "lost",
    },
    counted="moves",
    title="transfers",
)


@click.command(name="machines", short_help="Whole clusters of the pure machines, thousands of transfers a second.")
@campaign_options(MACHINES.mixes)
def command(**flags: Any) -> int:
    """Hand entities over between the pure machines of whole clusters on virtual time, with faults drawn from seeds.

    Each seed is some seconds of faults in a cluster of two home instances, ten simulation servers and 120 entities, a
    healing, and a verdict. There may never be two authorities, or a state that goes backwards or has no authority.
    Every input is applied once and in order, and everything is at rest in the end. The machines and the procedures of
    the log are the real ones; what is around them is as thin as can be. The exit status is 1 if anything was violated;
    the command that replays it is printed.

    \b
    Examples:
      baton simulate machines --seeds 1000
      baton simulate machines --mix pauses --seeds 5000 --from 1000
      baton simulate machines --mix cuts --from 1123 --seeds 1 --trace
    """
    return run_from_command(MACHINES, flags)
