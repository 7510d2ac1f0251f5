"""A homeserver on a real disk that is full or read-only says so in one line, and ends."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from batonpass.homeserver.config import HomeserverConfig
from batonpass.scenarios.common.status import CLUSTER_FAILED
from tests.homeserver.process import log_file, server_process, wait_ready
from tests.homeserver.served import DEADLINE_S, homeserver_config, new_ports


@contextmanager
def mounted(directory: Path, *, size: str) -> Iterator[None]:
    """A small file system of its own at this directory, where that is permitted."""
    directory.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "batonpass-test", str(directory)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        pytest.skip(f"mounting a small file system is not permitted here: {result.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


def last_words(config: HomeserverConfig) -> str:
    """What a server that ended says on its last line; it must have said it without a traceback."""
    log = log_file(config).read_text()
    assert "Traceback" not in log
    return log.splitlines()[-1]


def test_a_full_disk_ends_a_homeserver_with_one_line_that_says_what_to_do(tmp_path: Path) -> None:
    with new_ports() as ports:
        config = homeserver_config(tmp_path, ports)
        with mounted(config.directory, size="2m"):
            with server_process(config) as process:
                assert process.wait(DEADLINE_S) == CLUSTER_FAILED
            line = last_words(config)
            assert line.startswith("baton: reserving space for ")
            assert "raft/journal.new failed: No space left on device. Free space on this file system" in line


def test_a_read_only_disk_ends_a_homeserver_with_one_line_that_says_what_to_do(tmp_path: Path) -> None:
    with new_ports() as ports:
        config = homeserver_config(tmp_path, ports)
        with mounted(config.directory, size="64m"):
            with server_process(config) as process:
                wait_ready(process, config)
                process.terminate()
                assert process.wait(DEADLINE_S) == 0
            subprocess.run(["mount", "-o", "remount,ro", str(config.directory)], check=True)
            with server_process(config) as process:
                assert process.wait(DEADLINE_S) == CLUSTER_FAILED
            line = last_words(config)
            assert line.startswith("baton: creating ")
            assert "raft/lock failed: Read-only file system. The file system is read-only" in line
