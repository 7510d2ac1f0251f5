"""What the browser's client of a stream does (`checks.mjs`)."""

import re
from pathlib import Path
from typing import Final

import pytest

from tests.simserver.sync.browser.node import Node

SOURCE: Final = (Path(__file__).parent / "checks.mjs").read_text(encoding="utf-8")
CHECKS: Final = re.findall(r'^  (?:async )?"(.+)"\(\) {$', SOURCE, re.MULTILINE)


@pytest.mark.parametrize("name", CHECKS)
def test_the_browsers_client_does_as_the_check_says(node: Node, name: str) -> None:
    node.ask("check", name)
