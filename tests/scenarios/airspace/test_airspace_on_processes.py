"""Two aircraft that meet at a border, on real processes: each is warned of the ghost of the other one."""

from batonpass.scenarios.airspace.plan import LaneFlight
from batonpass.scenarios.airspace.run import AirspaceRun, airspace_spec, fly
from batonpass.scenarios.cluster.cluster import LocalCluster
from tests.scenarios.asked import limited

pytestmark = limited

SIZE_M = 60_000
SPEEDUP = 20


async def test_two_that_meet_at_a_border_are_warned_of_each_other_and_hand_over() -> None:
    flights = [
        LaneFlight("alpha.f1", (5_000, 30_000), (250, 0), 300, "alpha.f2"),
        LaneFlight("alpha.f2", (55_000, 30_000), (-250, 0), 300, "alpha.f1"),
        LaneFlight("alpha.f3", (5_000, 30_000), (250, 0), 310),
    ]
    airspace = AirspaceRun(flights, SIZE_M, SPEEDUP)
    async with LocalCluster.start(airspace_spec(2, SIZE_M, SPEEDUP)) as cluster:
        report, table = await fly(cluster, airspace)
    assert report.findings == []
    assert report.warned == {"alpha.f1": ["alpha.f2"], "alpha.f2": ["alpha.f1"]}
    assert report.moves >= len(flights)
    assert len(table.servers) == 2
    assert {fix.server for fix in airspace.tracks["alpha.f3"]} == table.servers
