"""The page about actors on other nodes is true: its example runs, and its frames and tags are those of the code."""

import re
from pathlib import Path

from batonpass.actors.remote import codec
from batonpass.actors.remote.frames import _SHAPES

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "actors-remote.md"


def block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert found is not None
    return found.group(1)


def test_the_example_runs() -> None:
    exec(compile(block("python"), str(PAGE), "exec"), {"__name__": "example"})  # noqa: S102 - our own text


def test_frames_and_tags_have_the_numbers_of_the_code() -> None:
    text = block("cddl")
    frames = re.findall(r"^(\w+) += \[(\d+)((?:, [^]]+)?)\]", text, re.MULTILINE)
    assert [int(kind) for _, kind, _ in frames] == list(range(len(_SHAPES)))
    for (_, kind, fields), (_, readers) in zip(frames, _SHAPES, strict=True):
        assert fields.count(",") == len(readers), kind
    tags = [int(tag) for tag in re.findall(r"#6\.(\d+)\(", text)]
    assert tags == list(range(codec.TUPLE, codec.MEMBER + 1))
