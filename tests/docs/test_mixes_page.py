"""The table of mixes in docs/reference/simulation-servers.md has each mix that there is, once."""

from typing import Final

from batonpass.scenarios.simulation.servers.mixes import MIXES
from tests.collected import table_rows
from tests.docs.pages import ROOT

PAGE: Final = ROOT / "docs" / "reference" / "simulation-servers.md"


def listed(text: str) -> list[str]:
    """The names in the table between its two marks."""
    _, _, behind = text.partition("<!-- mixes -->")
    return [name for name, _ in table_rows(behind.partition("<!-- end of mixes -->")[0])[1:]]


def test_the_table_has_every_mix_once() -> None:
    assert sorted(listed(PAGE.read_text(encoding="utf-8"))) == sorted(MIXES)
