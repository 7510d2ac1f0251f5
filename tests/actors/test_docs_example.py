"""The worked example of docs/actors.md runs as it stands, on a clock that does not make anybody wait."""

import re
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

DOCUMENT = Path(__file__).parents[2] / "docs" / "actors.md"


def test_the_worked_example_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 1, "one example, read from top to bottom"
    monkeypatch.setattr(trio, "run", partial(trio.run, clock=trio.testing.MockClock(autojump_threshold=0)))
    names: dict[str, object] = {"__name__": "example"}
    exec(compile(blocks[0], str(DOCUMENT), "exec"), names)  # noqa: S102 - our own text
    assert names["shown"], "the display has shown something"


def test_what_the_document_names_exists() -> None:
    import actors
    import actors.stages

    named = set(re.findall(r"`([A-Z][A-Za-z]+[a-z])\b", DOCUMENT.read_text(encoding="utf-8")))
    assert named <= {*actors.__all__, *actors.stages.__all__}, "docs/actors.md names what actors does not export"
