"""The REST API held against its own OpenAPI document by schemathesis, which shares no code with the tests.

    python -m tests.contract [--seed 1] [--examples 6] [--quick]      (`make contract`)

A homeserver and two simulation servers run in this process. Each operation is asked with what the document permits and
with what it does not, with the client token and without. A finding is an answer of 500 and above that says that the
server failed, or one that the document does not have: a status, a type, a field. That a request which the document
permits is refused, for what it says, is none.

`--quick`, as in CI, is some five requests to each operation. The seed is printed.

What it does not ask: streams that do not end, and `POST /v1/import`, whose lines of JSON it cannot write.
"""

import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from pathlib import Path
from typing import Final

import trio

from tests.homeserver.served import Home, homeserver_config, new_ports, served

_CHECKS: Final = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)
_NOT_ASKED: Final = "^/v1/(live|watch|import)$"
# What waits for questions is answered after 30 s.
_PATIENCE_S: Final = 60


async def main(seed: int, examples: int, phases: str) -> int:
    """Run it in these phases of schemathesis, whose status it has: 0 without a finding."""
    with tempfile.TemporaryDirectory() as directory, new_ports() as ports:
        async with served(homeserver_config(Path(directory), ports)) as home:
            await _with_something_in_it(home)
            token = (home.directory / "client").read_text(encoding="ascii")
            command = [sys.executable, "-m", "schemathesis.cli", "run", f"{home.api.url}/openapi.json"]
            command += ["--header", f"Authorization: Bearer {token}", "--seed", str(seed)]
            command += ["--max-examples", str(examples), "--phases", phases]
            command += ["--checks", ",".join(_CHECKS), "--exclude-path-regex", _NOT_ASKED]
            command += ["--request-timeout", str(_PATIENCE_S), "--no-color"]
            done = await trio.run_process(command, check=False, stdin=subprocess.DEVNULL, cwd=directory)
    return done.returncode


async def _with_something_in_it(home: Home) -> None:
    await home.simserver("alpha.s1")
    await home.simserver("alpha.s2")
    ada = await home.player("alpha.ada")
    await home.entity("alpha.ball-1", ada, "alpha.s1")


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--examples", type=int, default=6)
    parser.add_argument("--quick", action="store_true", help="without the five thousand requests at each bound")
    given = parser.parse_args()
    sys.exit(trio.run(main, given.seed, given.examples, "fuzzing" if given.quick else "examples,coverage,fuzzing"))
