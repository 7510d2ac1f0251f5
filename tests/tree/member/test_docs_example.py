"""The example of docs/reference/tree.md runs as it stands."""

import re

import pytest

from tests.collected import ROOT

DOCUMENT = ROOT / "docs" / "reference" / "tree.md"


def test_the_example_runs_and_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    (example,) = [block for block in blocks if "ReplicaConfig(" in block]
    exec(compile(example, str(DOCUMENT), "exec"), {"__name__": "example"})  # noqa: S102  # our own text
    said = re.findall(r"print\(.*\)  # (.*)$", example, re.MULTILINE)
    assert capsys.readouterr().out.splitlines() == said
