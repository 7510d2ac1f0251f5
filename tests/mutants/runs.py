"""Campaigns of mutants: the same seeds and mixes as of the real code, in the same worker processes."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from batonpass.scenarios.simulation.kernel.campaign import Campaign, CampaignKind
from batonpass.scenarios.simulation.machines.command import MACHINES
from batonpass.scenarios.simulation.machines.run import MachinesOutcome
from batonpass.scenarios.simulation.machines.run import simulate_seed as simulate_machines
from batonpass.scenarios.simulation.servers.command import SERVERS
from batonpass.scenarios.simulation.servers.run import ServersOutcome
from batonpass.scenarios.simulation.servers.run import simulate_seed as simulate_servers
from batonpass.scenarios.simulation.tree.command import RAFT
from batonpass.scenarios.simulation.tree.run import LogOutcome
from batonpass.scenarios.simulation.tree.run import simulate_seed as simulate_tree
from tests.mutants import machines as of_machines
from tests.mutants import tree as of_tree
from tests.mutants.servers import table as of_servers

KINDS: Final[Mapping[str, CampaignKind]] = MappingProxyType({"raft": RAFT, "machines": MACHINES, "servers": SERVERS})
SENTENCES: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "raft": {name: one.sentence for name, one in of_tree.MUTANTS.items()},
        "machines": {name: one.sentence for name, one in of_machines.MUTANTS.items()},
        "servers": {name: one.sentence for name, one in of_servers.MUTANTS.items()},
    }
)
"""What is missing, by the kind of simulation and the name of the mutant."""


def campaign_of(
    kind: str,
    mutant: str,
    mixes: tuple[str, ...],
    seeds: int,
    options: Mapping[str, Any] = MappingProxyType({}),
    **how: Any,
) -> Campaign:
    """This number of seeds of each mix, of this mutant; `how` as of `Campaign`."""
    command, run = f"python -m tests.mutants {kind} {mutant}", f"tests.mutants.runs:run_{kind}"
    weakened = replace(KINDS[kind], command=command, run=run)
    return Campaign(weakened, mixes, seeds, options={**options, "mutant": mutant}, **how)


def run_raft(mix: str, seed: int, *, mutant: str, nodes: int | None = None) -> LogOutcome:
    return simulate_tree(mix, seed, nodes=nodes, make_system=of_tree.MUTANTS[mutant].fence)


def run_machines(mix: str, seed: int, *, mutant: str) -> MachinesOutcome:
    return simulate_machines(mix, seed, of_machines.MUTANTS[mutant].parts)


def run_servers(mix: str, seed: int, *, mutant: str) -> ServersOutcome:
    return simulate_servers(mix, seed, of_servers.MUTANTS[mutant].parts)
