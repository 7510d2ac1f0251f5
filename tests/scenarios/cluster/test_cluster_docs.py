"""Servers read the configurations in docs/guides/cluster.md, and its flags are those of the command."""

import re

import pytest

from batonpass.authority.node.config import Settings
from batonpass.homeserver.config import HomeserverConfig, RelayConfig
from batonpass.scenarios.cli.main import cli
from batonpass.simserver.server.config import SimserverConfig
from tests.scenarios.fakes import ROOT

PAGE = ROOT / "docs" / "guides" / "cluster.md"


@pytest.mark.parametrize(
    ("heading", "kind"),
    [("A homeserver", HomeserverConfig), ("A simulation server", SimserverConfig), ("A relay", RelayConfig)],
)
def test_the_example_under_a_heading_is_a_valid_configuration(
    heading: str, kind: type[Settings], tmp_path_factory: pytest.TempPathFactory
) -> None:
    section = PAGE.read_text().partition(f"### {heading}\n")[2].partition("\n### ")[0]
    example = re.findall(r"^```toml\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    file = tmp_path_factory.mktemp("docs") / "example.toml"
    file.write_text("".join(example))

    assert len(example) == 1
    kind.load(file)


def test_the_flags_of_up_are_the_documented_ones() -> None:
    documented = set(re.findall(r"`(--[a-z-]+)[ `]", PAGE.read_text().partition("## On several machines")[0]))
    real = {name for option in cli.commands["up"].params for name in option.opts}

    assert documented == real
