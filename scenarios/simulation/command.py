"""`baton simulate raft`: read the flags, run the campaign, show what it found."""

import os
from typing import Any, Final

import click

from batonpass.scenarios.simulation.mixes import MIXES
from batonpass.scenarios.simulation.pace import Pace
from batonpass.scenarios.simulation.raft import raft_campaign
from batonpass.scenarios.simulation.show import campaign_options, listed_weaknesses, run_and_show

__all__ = ["command"]

_COLUMNS: Final = {
    "acknowledged": "acknowledged",
    "unknown": "unknown",
    "reads": "reads",
    "elections": "terms",
    "snapshots": "snapshots",
    "crashes": "crashes",
    "changes": "changes",
    "virtual_s": "virtual s",
}


@click.command(name="raft", short_help="The replicated log under faults, thousands of virtual seconds a minute.")
@campaign_options(MIXES)
@click.option("--nodes", type=click.Choice(["3", "5"]), help="Members. [default: 3 for even seeds, 5 for odd ones]")
def command(**flags: Any) -> int:
    """Run real replicas on a virtual clock, network and disk, with faults drawn from seeds, and judge what they did.

    Each seed is a run of some seconds of faults, a healing, and a verdict: state-machine safety, one leader per term,
    no acknowledged write lost, exactly once, linearizable histories, progress afterwards. The same seed is the same
    run, everywhere. The exit status is 1 if anything was violated; the command that replays it is printed.

    \b
    Examples:
      baton simulate raft --seeds 300
      baton simulate raft --mix slow --nodes 5 --seeds 2000 --from 5000
      baton simulate raft --mix slow --from 5123 --seeds 1 --nodes 5 --trace
    """
    if flags["weakness"]:
        from batonpass.scenarios.simulation.weaknesses import WEAKNESSES

        if (status := listed_weaknesses(flags["weakness"], WEAKNESSES)) is not None:
            return status
    campaign = raft_campaign(
        flags["mixes"] or tuple(MIXES),
        flags["seeds"],
        first=flags["first"],
        nodes=flags["nodes"] and int(flags["nodes"]),
        weakness=flags["weakness"],
        workers=flags["jobs"] or os.cpu_count() or 1,
    )
    pace = Pace(campaign, "acknowledged", "writes")
    return run_and_show(campaign, _COLUMNS, pace, trace=flags["trace"], json_file=flags["json_file"])
