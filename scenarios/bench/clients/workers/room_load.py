"""The load on a room of Colyseus, whose process has started this one: PORT PID WORK SECONDS."""

import sys

from batonpass.scenarios.bench.clients.workers.door_load import LoadedServer, RoomDialect, figures_of
from batonpass.scenarios.bench.loops import tell_all

__all__ = ["main"]


def main() -> None:
    """Print the figures of one sample."""
    port, pid, work, seconds = sys.argv[1:]
    clients = int(work.rpartition("-")[2])
    seen = LoadedServer.measured(RoomDialect(int(port)), int(pid), clients, 5 * float(seconds), steers=True)
    tell_all(figures_of(seen))


if __name__ == "__main__":
    main()
