"""The example in docs/timeline.md does what it says."""

import re
from pathlib import Path
from typing import Any, Final

import pytest

DOCS: Final = Path(__file__).parents[4] / "docs"
PAGE: Final = (DOCS / "timeline.md").read_text(encoding="utf-8")


def test_the_lamp_of_the_guide_prints_what_the_guide_says(capsys: pytest.CaptureFixture[str]) -> None:
    (source,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    names: dict[str, Any] = {"__name__": "lamp"}
    exec(compile(source, "lamp.py", "exec"), names)  # noqa: S102 — the example from our own page
    said = re.findall(r"^print.*# (.*)$", source, flags=re.MULTILINE)
    assert capsys.readouterr().out.splitlines() == said == ["lit dark", "dark 3"]


def test_each_rule_of_the_auditor_is_in_the_guide_and_has_a_test() -> None:
    tests = (Path(__file__).parent / "test_audit.py").read_text(encoding="utf-8")
    for number in range(1, 12):
        assert f"| A{number} |" in PAGE
        assert f"def test_a{number}_" in tests
