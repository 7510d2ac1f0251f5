"""An engine's node with a port that plays the rest of the show."""

import pytest

from batonpass.simserver.sync.followers.engine_node import EngineNode
from tests.simserver.sync.followers.engine_port import FakePort


@pytest.fixture
def port() -> FakePort:
    return FakePort()


@pytest.fixture
def node(port: FakePort) -> EngineNode:
    return EngineNode(port, max_state_bytes=100)
