"""`@dcl/ecs` on node, where it is installed: `python -m tests.simserver.sync.scene.ecs` does, by npm (`make ecs`)."""

import json
import subprocess
from pathlib import Path
from typing import Any, Final

from batonpass.scenarios.bench.peers import NpmLibrary, PeerMissing, install_npm
from batonpass.scenarios.bench.scene.course import COURSE
from tests.chromium import installed

__all__ = ["ENVIRONMENT", "run_on_ecs"]

_DIRECTORY: Final = Path(__file__).parents[4] / ".venv" / "peers"
_RUNS: Final = Path(__file__).parent / "ecs_runs.mjs"
(_LIBRARY,) = (peer for peer in COURSE.peers if isinstance(peer, NpmLibrary))

ENVIRONMENT: Final = next((found.parent for found in _DIRECTORY.glob(f"{_LIBRARY.name}-*/complete")), None)
"""Where it is installed; None if it is not."""


def run_on_ecs(run: dict[str, Any]) -> dict[str, Any]:
    """What it sent and had in the end; see ecs_runs.mjs."""
    command = [installed("node", "nodejs"), str(_RUNS), str(ENVIRONMENT)]
    done = subprocess.run(command, input=json.dumps(run), capture_output=True, text=True, check=True, timeout=120)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


if __name__ == "__main__":
    try:
        install_npm(_LIBRARY, _DIRECTORY, print)
    except PeerMissing as error:
        print(f"not installed, so not compared: {error}")  # noqa: T201
