"""Clusters of all tests of a worker are forked from one process: what servers import takes 1.4 s to import."""

import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager

import pytest

from batonpass.scenarios.cluster.fork_server import ForkServer
from tests.collected import ROOT

# They differ from test to test, and whoever is forked gets its own.
_OWN = ("BATON_", "PYTEST_")


class _OneForAll:
    """In the place of `ForkServer` for local clusters."""

    def __init__(self) -> None:
        self._server: ForkServer | None = None
        self._environment: dict[str, str] = {}

    @asynccontextmanager
    async def open(self, environment: Mapping[str, str]) -> AsyncIterator[ForkServer]:
        # Worlds of tests are found by all of them, so that nobody needs another process to fork from for that.
        whole = {"PYTHONPATH": str(ROOT), **os.environ, **environment}
        needed = {name: value for name, value in whole.items() if not name.startswith(_OWN)}
        if self._server is None or not self._server.running or self._environment != needed:
            self.close()
            server = ForkServer.start(whole)
            try:
                await server.ready()
            except BaseException:
                server.let_go()
                raise
            self._server, self._environment = server, needed
        yield self._server

    def close(self) -> None:
        if self._server is not None:
            # What a test has left behind must not keep its worker from ending.
            self._server.let_go(within_s=30.0)
        self._server = None


@pytest.fixture(scope="session")
def _forks_of_this_worker() -> Iterator[_OneForAll]:
    forks = _OneForAll()
    yield forks
    forks.close()


@pytest.fixture(autouse=True)
def _forked_from_one(_forks_of_this_worker: _OneForAll, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batonpass.scenarios.cluster.cluster.ForkServer", _forks_of_this_worker)
