"""The players' door of a simulation server of a real cluster."""

import time
from statistics import median
from typing import Final

from batonpass.client.door_link import PlayerKey
from batonpass.crypto.keys import Identity
from batonpass.scenarios.bench.clients.workers.door_load import (
    TICK_HZ,
    ClientLoad,
    DoorDialect,
    LoadedServer,
    figures_of,
)
from batonpass.scenarios.bench.clients.workers.on_cluster import (
    PATTERN,
    PLAYER,
    STEERED,
    MeasuredDoor,
    cluster_with_robots,
)
from batonpass.scenarios.bench.loops import arguments, tell_all
from batonpass.scenarios.bench.process_facts import processor_seconds

__all__ = ["main"]

_PERIOD_MS: Final = 1000.0 / TICK_HZ
# The server says once a second what its ticks took.
_SAY_S: Final = 1.1
_LOOKS: Final = 4


def _of_area(door: MeasuredDoor, dialect: DoorDialect, most: int) -> dict[str, float]:
    """What a tick takes, in milliseconds, and in processor time of all that the server does, as one area is watched."""
    load, ticks_ms, rounds_ms = ClientLoad(dialect), list[float](), list[float]()
    for clients in (0, most):
        load.add(clients - len(load.watching))
        load.run(_SAY_S)
        began_s, before_s, looked_ms = time.monotonic(), processor_seconds(door.pid), list[float]()
        for _ in range(_LOOKS):
            load.run(_SAY_S)
            looked_ms.append(door.tick_ms(_PERIOD_MS))
        used_s, passed_s = processor_seconds(door.pid) - before_s, time.monotonic() - began_s
        ticks_ms.append(median(looked_ms))
        rounds_ms.append(used_s / passed_s * _PERIOD_MS)
    load.close()
    hundreds = most / 100
    return {
        "tick-few": ticks_ms[0],
        "tick-many": ticks_ms[-1],
        "tick": 1 + (ticks_ms[-1] / ticks_ms[0] - 1) / hundreds,
        "round-few": rounds_ms[0],
        "round-many": rounds_ms[-1],
    }


def main() -> None:
    """As `side_by_side` asks."""
    work, seconds = arguments("batonpass")
    player = Identity.generate()
    with cluster_with_robots(player) as door:
        kind, _, count = work.partition("-")
        dialect = DoorDialect(door.port, PlayerKey(PLAYER, player), STEERED, PATTERN, area=kind == "area")
        if kind == "area":
            tell_all(_of_area(door, dialect, int(count)))
        else:
            tell_all(figures_of(LoadedServer.measured(dialect, door.pid, int(count), 5 * seconds, steers=True)))


if __name__ == "__main__":
    main()
