"""Load on a gRPC server from h2load, the load generator of nghttp2 (Debian: nghttp2-client).

It is compiled, and knows nothing of gRPC: it repeats one prepared POST. So it takes less processor time per request
than any client that etcd offers, which is what a fair opponent deserves. It cannot see whether gRPC answered with an
error inside an HTTP success. The caller has to check that: an error has no DATA.
"""

import re
import resource
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from batonpass.scenarios.bench.subject import MeasurementFailed
from batonpass.scenarios.cluster.processes import ChildCommand, ChildProcesses
from batonpass.scenarios.report.statistics import percentile

__all__ = ["H2Load", "LoadRun", "connections_for", "parse_log", "parse_summary"]

_SUCCEEDED: Final = re.compile(r"^requests: .* (\d+) succeeded, (\d+) failed", re.MULTILINE)
_STATUS: Final = re.compile(r"^status codes: (\d+) 2xx", re.MULTILINE)
_DATA: Final = re.compile(r"^traffic: .*\((\d+)\) data", re.MULTILINE)
# With more, etcd gets slower; with one, a connection's flow control is shared by all. Measured: 1 and 4 are equal.
_MAX_CONNECTIONS: Final = 4


@dataclass(frozen=True)
class LoadRun:
    """What one run of h2load did. `seconds` is from the first request sent to the last answer.

    `processor_s` is the processor time that h2load itself took.
    """

    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float
    data_bytes: int
    processor_s: float = 0.0


def connections_for(outstanding: int) -> tuple[int, int]:
    """How many connections, and how many requests on each at a time, for `outstanding`."""
    connections = _MAX_CONNECTIONS if outstanding % _MAX_CONNECTIONS == 0 else 1
    return connections, outstanding // connections


def parse_summary(text: str, requests: int) -> int:
    """The bytes of DATA that were received; raises `MeasurementFailed` unless all requests got an HTTP success."""
    succeeded, status, data = (pattern.search(text) for pattern in (_SUCCEEDED, _STATUS, _DATA))
    if succeeded is None or status is None or data is None:
        raise MeasurementFailed(f"h2load printed something unknown: {text[-500:]!r}")
    good = min(int(succeeded[1]), int(status[1]))
    if good != requests:
        raise MeasurementFailed(f"h2load: of {requests} requests only {good} succeeded")
    return int(data[1])


def parse_log(text: str, requests: int, data_bytes: int) -> LoadRun:
    """Read the log of h2load: per request when it began (µs), the HTTP status, and how long it took (µs)."""
    began_us: list[int] = []
    took_us: list[int] = []
    for line in text.splitlines():
        began, _status, took = line.split("\t")
        began_us.append(int(began))
        took_us.append(int(took))
    if len(took_us) != requests:
        raise MeasurementFailed(f"h2load logged {len(took_us)} of {requests} requests")
    ended_us = max(began + took for began, took in zip(began_us, took_us, strict=True))
    p50_us, p99_us = (percentile(took_us, percent) for percent in (50, 99))
    return LoadRun(requests, (ended_us - min(began_us)) / 1e6, p50_us / 1e3, p99_us / 1e3, data_bytes)


class H2Load:
    """Runs h2load, one at a time."""

    def __init__(self, processes: ChildProcesses, directory: Path, program: str = "h2load") -> None:
        """`directory` takes bodies and logs."""
        self._processes: Final = processes
        self._directory: Final = directory
        self._program: Final = program

    async def post(self, url: str, body: bytes, *, outstanding: int, requests: int) -> LoadRun:
        """Post the same gRPC message `requests` times.

        Raises:
            MeasurementFailed: h2load failed, or one of the requests did.
            SpawnError: h2load cannot be started.
        """
        body_file, log_file, out_file = (self._directory / name for name in ("body", "requests.log", "h2load.out"))
        body_file.write_bytes(body)
        log_file.unlink(missing_ok=True)
        out_file.unlink(missing_ok=True)
        argv = self._argv(url, body_file, log_file, outstanding, requests)
        before_s = _processor_seconds_of_ended_children()
        child = self._processes.start(ChildCommand("h2load", argv, out_file))
        # It ends by itself, and that is not a crash.
        child.stop_requested = True
        end = await child.wait()
        summary = out_file.read_text(errors="replace")
        if end.returncode != 0:
            raise MeasurementFailed(end.report)
        run = parse_log(log_file.read_text(), requests, parse_summary(summary, requests))
        return replace(run, processor_s=_processor_seconds_of_ended_children() - before_s)

    def _argv(self, url: str, body: Path, log: Path, outstanding: int, requests: int) -> Sequence[str]:
        connections, streams = connections_for(outstanding)
        return [
            self._program,
            f"--requests={requests}",
            f"--clients={connections}",
            f"--max-concurrent-streams={streams}",
            "--threads=1",
            f"--data={body}",
            f"--log-file={log}",
            "--header=content-type: application/grpc",
            "--header=te: trailers",
            url,
        ]


def _processor_seconds_of_ended_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
