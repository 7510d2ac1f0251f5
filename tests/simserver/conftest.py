"""An open system for each test that asks for one."""

from collections.abc import AsyncIterator

import pytest

from batonpass.actors import System


@pytest.fixture
async def system() -> AsyncIterator[System]:
    async with System.open("alpha.s1") as opened:
        yield opened
