"""docs/reference/event-stream.md: its tables of codes and bounds are those of the code."""

import re
from dataclasses import fields
from pathlib import Path

from batonpass.simserver.sync.events.limits import StreamLimits
from batonpass.simserver.sync.events.refusals import RefusalCode, StreamRefusal

PAGE = (Path(__file__).parents[4] / "docs" / "reference" / "event-stream.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_every_code_stands_there_with_its_status() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d{3}) \|", section("Refusals"), re.MULTILINE)
    assert [(code, int(status)) for code, status in rows] == [
        (code.value, StreamRefusal(code, "").status) for code in RefusalCode
    ]


def test_every_setting_stands_there_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| ([\d,]+|on|off) \|", section("Bounds"), re.MULTILINE))
    said = {name: text == "on" if text in {"on", "off"} else int(text.replace(",", "")) for name, text in rows.items()}
    assert said == {field.name: field.default for field in fields(StreamLimits)}
