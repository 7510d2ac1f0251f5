"""An open system for each test that asks for one."""

from collections.abc import AsyncIterator, Iterator

import pytest

from batonpass.actors import System
from tests.simserver.stage import Kinds


@pytest.fixture
async def system() -> AsyncIterator[System]:
    async with System.open("alpha.s1") as opened:
        yield opened


@pytest.fixture(scope="module", params=[False, True], ids=["each", "batch"])
def either_kind(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Worlds that step each entity by itself, and the same worlds as batch worlds (`tests.simserver.stage.Kinds`)."""
    before, Kinds.in_batches = Kinds.in_batches, request.param
    yield request.param
    Kinds.in_batches = before
