"""The plugin of pytest: two fixtures and a mark. The rest is imported when a fixture is used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from batonpass.testing.running import RunningCluster
    from batonpass.testing.ticked import TickedWorld

__all__ = ["baton_cluster", "pytest_configure", "ticked_world"]

_MARK = "baton(**spec): how the cluster of `baton_cluster` is made up; the arguments are those of `running_cluster`"


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    config.addinivalue_line("markers", _MARK)


@pytest.fixture(scope="session")
def _imported_once() -> Iterator[None]:
    """All clusters of a run come from one process that has imported what servers are made of."""
    from batonpass.scenarios.cluster.fork_server import ForkServer

    with ForkServer.shared(at_once=True):
        yield


@pytest.fixture
def baton_cluster(request: pytest.FixtureRequest, _imported_once: None) -> Iterator[RunningCluster]:
    """A cluster of real processes on loopback, of its own for each test; made up as the mark `baton` says."""
    from batonpass.testing.running import running_cluster

    mark = request.node.get_closest_marker("baton")
    spec: dict[str, Any] = {} if mark is None else dict(mark.kwargs)
    with running_cluster(**spec) as cluster:
        yield cluster


@pytest.fixture
def ticked_world() -> type[TickedWorld]:
    """Makes a world on virtual time: `ticked_world(MyWorld())`."""
    from batonpass.testing.ticked import TickedWorld

    return TickedWorld
