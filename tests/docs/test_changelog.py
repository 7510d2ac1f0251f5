"""The changelog has the form of Keep a Changelog 1.1.0, and an entry of one short line for each change."""

import re
from typing import Final

from tests.docs.pages import ROOT

TEXT: Final = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
KINDS: Final = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security", "Upgrading"}
MAX_ENTRY_WORDS: Final = 60


def test_releases_are_sections_and_kinds_of_change_are_theirs() -> None:
    releases = re.findall(r"^## (.*)$", TEXT, flags=re.MULTILINE)
    assert releases[0] == "[Unreleased]"
    assert [one for one in releases[1:] if not re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", one)] == []
    for section in TEXT.split("\n## ")[1:]:
        kinds = re.findall(r"^### (.*)$", section, flags=re.MULTILINE)
        assert set(kinds) <= KINDS
        assert len(kinds) == len(set(kinds))


def test_an_entry_is_one_short_line() -> None:
    lines = TEXT.partition("\n## ")[2].splitlines()
    entries = [line for line in lines if line.startswith("- ")]
    assert len(entries) > 60
    assert [line for line in entries if len(line.split()) > MAX_ENTRY_WORDS] == []
    # An entry that ran on would have lines that begin with a blank.
    assert [line for line in lines if re.match(r"\s+\S", line)] == []
