"""What the scenarios read from others: answers of servers, maps and position reports."""

import httpx

from batonpass.scenarios.cluster.cluster import _health_from_untrusted
from batonpass.scenarios.sectors.map import AirspaceBounds, Grid, SectorMap, SectorMapError
from batonpass.scenarios.sectors.position import BadReport, PositionReport
from tests.fuzz.plain import from_json, to_json
from tests.fuzz.target import Target

REPORT = PositionReport(1_700_000_000_000, 480_000_000, 110_000_000, 35_000, 4_500, 900, None, False)
MAP = SectorMap(AirspaceBounds(45.0, 5.0, 50.0, 15.0), Grid(2, 2), 5.0)


def _health(data: bytes) -> None:
    health = _health_from_untrusted(httpx.Response(200, content=data))
    assert len(health.reason) <= 2000


TARGETS = [
    Target(
        "health",
        _health,
        ["batonpass.scenarios.cluster.cluster:_health_from_untrusted"],
        lambda: [b'{"name": "alpha.h1"}', b'{"code": "x", "message": "not ready"}'],
        plain="json",
    ),
    Target(
        "sector-map",
        lambda data: SectorMap.from_data_untrusted(from_json(data)),
        ["batonpass.scenarios.sectors.map:SectorMap.from_data_untrusted"],
        lambda: [to_json(MAP.to_data())],
        (SectorMapError,),
        plain="json",
    ),
    Target(
        "position-report",
        PositionReport.decode_untrusted,
        [
            "batonpass.scenarios.sectors.position:PositionReport.decode_untrusted",
            "batonpass.scenarios.sectors.position:PositionReport.from_data_untrusted",
        ],
        lambda: [REPORT.encode()],
        (BadReport,),
        plain="cbor",
    ),
]
