"""A server in a process of its own, as `baton homeserver` and `baton simserver` start it."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from batonpass.actors.http.client import trusted_authorities
from batonpass.homeserver.config import HomeserverConfig
from batonpass.scenarios.cluster.blueprint import to_toml
from batonpass.simserver.server.config import SimserverConfig
from tests.homeserver.served import DEADLINE_S

ROOT = Path(__file__).parents[2]
POLL_S = 0.02


Config = HomeserverConfig | SimserverConfig


@contextmanager
def server_process(config: Config) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a server until the block ends; what it logs is in `log_file(config)`."""
    role = "homeserver" if isinstance(config, HomeserverConfig) else "simserver"
    config_file = config.directory.parent / f"{config.name}.toml"
    config_file.write_text(to_toml(config.model_dump(mode="json", exclude_none=True)))
    command = (
        sys.executable,
        "-m",
        "batonpass.scenarios.cli.main",
        role,
        "--config",
        str(config_file),
        "--parent-pipe",
    )
    with (
        log_file(config).open("wb") as log,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=ROOT) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def log_file(config: Config) -> Path:
    """Where a server process logs to."""
    return config.directory.parent / f"{config.name}.log"


def wait_ready(process: "subprocess.Popen[bytes]", config: Config) -> None:
    """Return when the server says that it is ready."""
    deadline_s = time.monotonic() + DEADLINE_S
    with httpx.Client(trust_env=False, verify=trusted_authorities()) as client:
        while time.monotonic() < deadline_s:
            assert process.poll() is None, log_file(config).read_text()
            with contextlib.suppress(httpx.TransportError):
                if client.get(f"{config.rest.url}/healthz").is_success:
                    return
            # Or this would take the processor that the server needs to come up.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(POLL_S)
    raise AssertionError(f"not ready in time: {log_file(config).read_text()}")
