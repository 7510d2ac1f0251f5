"""In which order several workers run the tests: what takes long first, and each worker with a share of it.

`pytest -n 4 --dist worksteal` gives each worker a slice of the list, and who is done steals from the ends of others'. A
test that takes a minute and is begun last keeps one worker busy and the others waiting. So each slice begins with long
modules, which take about as long together, and ends with short ones, which are what is stolen.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

__all__ = ["LONG", "in_slices"]

T = TypeVar("T")

LONG: Final[Mapping[str, int]] = {
    "tests/scenarios/simulation/test_transfers_search.py": 97,
    "tests/scenarios/simulation/servers/test_simulated_servers.py": 109,
    "tests/scenarios/chaos/test_chaos_handovers.py": 101,
    "tests/scenarios/bench/test_bench_comparison.py": 50,
    "tests/scenarios/simulation/servers/test_simulated_spans.py": 30,
    "tests/scenarios/cluster/test_rolling_upgrade.py": 82,
    "tests/earlier_release/test_rest.py": 40,
    "tests/homeserver/log/test_etcd_backend.py": 77,
    "tests/scenarios/cluster/test_cluster_stateful.py": 72,
    "tests/scenarios/simulation/machines/test_simulated_machines.py": 65,
    "tests/tutorial/test_first_shared_world.py": 90,
    "tests/scenarios/simulation/test_simulation.py": 60,
    "tests/scenarios/cases/test_cases.py": 58,
    "tests/scenarios/chaos/test_chaos_clients.py": 50,
    "tests/tree/etcd/test_etcd_replica.py": 50,
    "tests/testing/test_plugin.py": 45,
    "tests/scenarios/simulation/test_simulation_command.py": 40,
    "tests/simserver/sync/browser/test_game_page.py": 40,
    "tests/scenarios/cluster/test_healing.py": 40,
    "tests/scenarios/cluster/test_leases.py": 30,
    "tests/scenarios/cluster/test_failover.py": 54,
    "tests/scenarios/chaos/test_chaos_tree.py": 54,
    "tests/scenarios/cluster/test_drain.py": 30,
    "tests/scenarios/cluster/test_restored_log.py": 47,
    "tests/simserver/transfer/target/test_unresolved.py": 46,
    "tests/earlier_release/test_disk.py": 45,
    "tests/scenarios/bench/test_bench_transfers.py": 44,
    "tests/scenarios/cluster/test_staged_mode.py": 27,
    "tests/scenarios/sectors/test_sectors.py": 22,
    "tests/actors/supervision/test_supervision_model.py": 21,
    "tests/docs/test_page_commands_run.py": 20,
}
"""Modules that take long, and how many seconds they took in one run with six workers on two cores; of the search, which
takes 18 of 45 core-seconds since, that part of 243."""


def in_slices(items: Sequence[T], module_of: Callable[[T], str], slices: int, long: Mapping[str, int]) -> list[T]:
    """The same items in an order of which each slice of `len(items) / slices` begins with its share of `long` modules.

    The items of a module keep their order, and those of a long one stay together: what they share is made once.
    """
    together: dict[str, list[T]] = {}
    short: list[T] = []
    for item in items:
        module = module_of(item)
        (together.setdefault(module, []) if module in long else short).append(item)
    shares: list[list[T]] = [[] for _ in range(slices)]
    loads = [0] * slices
    for module in sorted(together, key=lambda one: (-long[one], one)):
        # The longest goes where there is least (Graham's rule of the longest processing time).
        place = loads.index(min(loads))
        loads[place] += long[module]
        shares[place] += together[module]
    ordered: list[T] = []
    for number, share in enumerate(shares, 1):
        room = max(0, len(items) * number // slices - len(ordered) - len(share))
        ordered += share + short[:room]
        del short[:room]
    return ordered + short
