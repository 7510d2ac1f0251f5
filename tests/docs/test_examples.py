"""Each example is one command, with a picture that a test makes, and with where its code is."""

import re

import pytest

from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "examples" / "README.md"
SECTIONS = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.partition("\n")[0])
def test_an_example_has_one_command_and_a_picture_of_the_test_that_it_names(section: str) -> None:
    (command,) = re.findall(r"^```console\n\$ [^\n]+\n```$", section, re.MULTILINE)
    assert command
    (picture,) = re.findall(r"!\[[^\]]+\]\(\.\./images/([\w-]+)\.png\)", section)
    (test,) = re.findall(r"`(tests/\S+\.py)`", section)
    source = (ROOT / test).read_text(encoding="utf-8")
    makes = re.search(rf'keep_picture\b[^\n]*"{picture}"', source) or "BATON_PICTURES" in source
    assert makes, f"{test} makes no {picture}.png"
    for code in re.findall(r"`((?:scenarios|simserver)/\S+)`", section):
        assert (ROOT / code).exists(), code


def test_all_six_are_there() -> None:
    assert len(SECTIONS) == 6
