from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.homeserver.served import Home, homeserver_config, new_ports, served


@pytest.fixture
async def alpha(tmp_path: Path) -> AsyncIterator[Home]:
    """The instance `alpha`: one homeserver, nothing else yet."""
    with new_ports() as ports:
        async with served(homeserver_config(tmp_path, ports)) as home:
            yield home


@pytest.fixture
async def world(alpha: Home) -> Home:
    """The instance `alpha` with two simulation servers."""
    await alpha.simserver("alpha.s1")
    await alpha.simserver("alpha.s2")
    return alpha
