"""A fresh log for each test that asks for one."""

import pytest

from tests.authority.log import Log, new_log


@pytest.fixture
def log() -> Log:
    return new_log()
