"""What a run was measured on: processors, how busy they are, how fast the disk syncs, and which versions."""

import os
import platform
import subprocess
import time
from importlib.metadata import version
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict

from batonpass.scenarios.report.statistics import percentile

__all__ = ["HostFacts", "MachineFacts", "is_quiet", "look_at", "look_at_host"]

_SYNCS: Final = 200
_SYNCED_BYTES: Final = 4096
# Of one processor, before the run has begun: another's work.
_QUIET_LOAD_PER_CORE: Final = 0.15


class HostFacts(BaseModel):
    """Facts of the machine, at the beginning of the run. Load averages are those of the kernel, per minute."""

    model_config = ConfigDict(frozen=True)

    cores: int
    processor: str
    load_average_1m: float
    kernel: str
    versions: dict[str, str]


class MachineFacts(HostFacts):
    """The same, and how fast the disk syncs."""

    fdatasync_p50_ms: float
    fdatasync_p99_ms: float
    file_system: str


def look_at_host(packages: tuple[str, ...]) -> HostFacts:
    """Look at the machine; `packages` are those of this Python whose versions matter."""
    versions = {name: version(name) for name in packages}
    versions["python"] = platform.python_version()
    return HostFacts(
        cores=len(os.sched_getaffinity(0)),
        processor=_processor(),
        load_average_1m=os.getloadavg()[0],
        kernel=platform.release(),
        versions=versions,
    )


def look_at(directory: Path, programs: dict[str, list[str]]) -> MachineFacts:
    """Look at the machine and at the disk below `directory`; `programs` are asked for their versions."""
    p50_ms, p99_ms = _sync_latency_ms(directory)
    host = look_at_host(("batonpass", "pysyncobj", "trio", "cbor2"))
    return MachineFacts(
        cores=host.cores,
        processor=host.processor,
        load_average_1m=host.load_average_1m,
        fdatasync_p50_ms=p50_ms,
        fdatasync_p99_ms=p99_ms,
        file_system=_file_system(directory),
        kernel=host.kernel,
        versions=host.versions | {name: _first_line(argv) for name, argv in programs.items()},
    )


def is_quiet(facts: HostFacts) -> bool:
    """Whether hardly anything else was running when the run began."""
    return facts.load_average_1m <= _QUIET_LOAD_PER_CORE * facts.cores


def _sync_latency_ms(directory: Path) -> tuple[float, float]:
    """How long `fdatasync` takes after a small write into a file that is allocated already, as in the journal."""
    path = directory / "sync-probe"
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    took_ms: list[float] = []
    try:
        os.posix_fallocate(file, 0, _SYNCS * _SYNCED_BYTES)
        os.fsync(file)
        for number in range(_SYNCS):
            os.pwrite(file, b"\x5a" * _SYNCED_BYTES, number * _SYNCED_BYTES)
            before_s = time.perf_counter()
            os.fdatasync(file)
            took_ms.append((time.perf_counter() - before_s) * 1e3)
    finally:
        os.close(file)
        path.unlink()
    return percentile(took_ms, 50), percentile(took_ms, 99)


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _file_system(directory: Path) -> str:
    """The type of the file system that `directory` is on: the longest mount point that leads to it."""
    best, kind = "", "unknown"
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mount_point, found, *_ = line.split()
        if directory.resolve().is_relative_to(mount_point) and len(mount_point) >= len(best):
            best, kind = mount_point, found
    return kind


def _first_line(argv: list[str]) -> str:
    output = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=10)
    return (output.stdout or output.stderr).partition("\n")[0].split()[-1]
