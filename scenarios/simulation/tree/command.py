"""`baton simulate raft`: read the flags, run the campaign, show what it found."""

from typing import Any, Final

import click

from batonpass.scenarios.simulation.kernel.campaign import CampaignKind
from batonpass.scenarios.simulation.kernel.show import campaign_options, run_from_command
from batonpass.scenarios.simulation.tree.mixes import MIXES

__all__ = ["RAFT", "command"]

RAFT: Final = CampaignKind(
    command="baton simulate raft",
    run="batonpass.scenarios.simulation.tree.run:simulate_seed",
    mixes=tuple(MIXES),
    columns={
        "acknowledged": "acknowledged",
        "unknown": "unknown",
        "reads": "reads",
        "elections": "terms",
        "snapshots": "snapshots",
        "crashes": "crashes",
        "changes": "changes",
        "virtual_s": "virtual s",
    },
    counted="acknowledged",
    title="writes",
    hidden=("events",),
    again={"nodes": "size"},
)


@click.command(name="raft", short_help="The replicated log under faults, thousands of virtual seconds a minute.")
@campaign_options(RAFT.mixes)
@click.option("--nodes", type=click.Choice(["3", "5"]), help="Members. [default: 3 for even seeds, 5 for odd ones]")
def command(**flags: Any) -> int:
    """Run real replicas on a virtual clock, network and disk, with faults drawn from seeds, and judge what they did.

    Each seed is a run of some seconds of faults, a healing, and a verdict. That is about state-machine safety, one
    leader per term, no acknowledged write lost, exactly once, linearizable histories, progress afterwards. The same
    seed is the same run, everywhere. The exit status is 1 if anything was violated; the command that replays it is
    printed.

    \b
    Examples:
      baton simulate raft --seeds 300
      baton simulate raft --mix slow --nodes 5 --seeds 2000 --from 5000
      baton simulate raft --mix slow --from 5123 --seeds 1 --nodes 5 --trace
    """
    options = {"nodes": int(flags["nodes"])} if flags["nodes"] else {}
    return run_from_command(RAFT, flags, options)
