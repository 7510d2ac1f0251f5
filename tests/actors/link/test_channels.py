"""Each channel of a server's link has one use: who claims one takes all that comes there."""

import re
from collections import defaultdict
from pathlib import Path

_CHANNEL = re.compile(r"^([A-Z_]+_CHANNEL)(?:: Final)? = (\d+)$", re.MULTILINE)


def test_no_two_parts_use_one_channel() -> None:
    names = defaultdict(set)
    for path in Path(__file__).parents[3].rglob("*.py"):
        if "tests" not in path.parts and ".venv" not in path.parts:
            for name, number in _CHANNEL.findall(path.read_text(encoding="utf-8")):
                names[int(number)].add(name)
    assert {"RENEWAL_CHANNEL", "HTTP_CHANNEL", "STATE_CHANNEL"} <= set().union(*names.values())
    assert [found for found in names.values() if len(found) > 1] == []
