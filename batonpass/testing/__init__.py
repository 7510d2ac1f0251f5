"""For tests of programs that use batonpass: a cluster in a fixture, and a world on virtual time.

    plugin        the fixtures `baton_cluster` and `ticked_world`, and the mark `baton` (docs/guides/testing.md)
    running       a cluster of real processes that runs beside a test, whatever the test runs on
    actors        a system on virtual time for tests of actors, and probes (docs/explanation/actors.md)
    ticked        a world without servers: ticks as fast as they can be computed

Installed beside pytest, the fixtures are there without further ado. Names are imported when they are first used: the
plugin is imported by each run of pytest.
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from batonpass.testing.running import RunningCluster, running_cluster
    from batonpass.testing.ticked import TickedWorld, WorldFault

__all__ = ["RunningCluster", "TickedWorld", "WorldFault", "running_cluster"]

_WHERE: Final = {
    "RunningCluster": "batonpass.testing.running",
    "TickedWorld": "batonpass.testing.ticked",
    "WorldFault": "batonpass.testing.ticked",
    "running_cluster": "batonpass.testing.running",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'batonpass.testing' has no attribute {name!r}")
    return getattr(importlib.import_module(_WHERE[name]), name)
