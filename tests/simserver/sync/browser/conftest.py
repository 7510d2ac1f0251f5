"""One process of node for all tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.simserver.sync.browser.node import Node


@pytest.fixture(scope="session")
def node() -> Iterator[Node]:
    process = Node()
    yield process
    process.close()
