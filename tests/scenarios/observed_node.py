"""A program of its own that shows its actors: `python -m tests.scenarios.observed_node` prints the URL of its REST.

Our servers' own actors keep nothing, or objects, as their state. The counter in here has one that JSON can say, and the
token is its parent's choice, on the command line. It ends with its standard input.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trio
from fastapi import FastAPI

from batonpass.actors import ActorSpec, System
from batonpass.actors.http.app import ERROR_RESPONSES, prepare_app
from batonpass.actors.http.web_service import serve_app
from batonpass.actors.observe.observation import actor_routes
from tests.actors.servers import Counter
from tests.tokens import gate

ROOT = Path(__file__).parents[2]


@contextmanager
def observed_node(token: str) -> Iterator[str]:
    """Run the node until the block ends; the URL of its REST. Its actor `counter` begins with 7."""
    command = (sys.executable, "-m", "tests.scenarios.observed_node", token)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().decode().strip()
            assert url, f"it ended with {process.wait()}"
            yield url
        finally:
            process.kill()


async def _main(token: str) -> None:
    async with System.open("counting") as system, trio.open_nursery() as nursery:
        app = FastAPI(responses=ERROR_RESPONSES)
        prepare_app(app)
        actor_routes(lambda: system, gate(operator=token)).add_to(app)
        await system.start_child(ActorSpec("counter", Counter, 7, name="counter"))
        (url,) = await nursery.start(serve_app, app, "127.0.0.1", 0)
        sys.stdout.write(f"{url}\n")
        sys.stdout.flush()
        await trio.lowlevel.wait_readable(sys.stdin.fileno())
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(_main, sys.argv[1])
