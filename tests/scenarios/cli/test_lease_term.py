"""After how long `baton up` has a silent server replaced: what is said, or what the world wants, or the default."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from batonpass.scenarios.cli import up_command
from batonpass.scenarios.cli.main import cli
from batonpass.scenarios.cluster import blueprint
from batonpass.scenarios.cluster.topology import ClusterSpec
from batonpass.simserver.sync.hosting.world import EVENT_STREAMS
from batonpass.simserver.sync.shows.world import LEASE_TERM_S, SHOWS

Started = list[ClusterSpec]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    specs: Started = []

    async def run(spec: ClusterSpec, *_: Any) -> int:
        specs.append(spec)
        return 0

    monkeypatch.setattr(up_command, "_run", run)
    return specs


@pytest.mark.parametrize(
    ("options", "term_s"),
    [
        ([], None),
        (["--world", EVENT_STREAMS], None),
        (["--world", SHOWS], LEASE_TERM_S),
        (["--world", SHOWS, "--lease-term", "2"], 2.0),
        (["--lease-term", "0.5"], 0.5),
    ],
)
def test_what_is_said_counts_before_what_the_world_wants(
    started: Started, options: list[str], term_s: float | None
) -> None:
    result = CliRunner().invoke(cli, ["up", *options])
    assert result.exit_code == 0, result.output
    assert [spec.lease_term_s for spec in started] == [term_s]


@pytest.mark.parametrize(
    ("options", "term_s"), [([], 3.0), (["--world", SHOWS], LEASE_TERM_S), (["--world", EVENT_STREAMS], None)]
)
def test_a_directory_keeps_its_term_until_it_is_given_another_world(
    started: Started, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: list[str], term_s: float | None
) -> None:
    monkeypatch.setattr(blueprint, "remembered_spec", lambda _: ClusterSpec({"alpha": 1}, lease_term_s=3.0))
    result = CliRunner().invoke(cli, ["up", "--dir", str(tmp_path), *options])
    assert result.exit_code == 0, result.output
    assert [spec.lease_term_s for spec in started] == [term_s]


@pytest.mark.parametrize("term", ["0.4", "nan", "soon"])
def test_what_is_no_term_is_refused(started: Started, term: str) -> None:
    assert CliRunner().invoke(cli, ["up", "--lease-term", term]).exit_code == 2
    assert started == []


def test_a_controller_is_replaced_within_a_second_by_default() -> None:
    # A look at the leases is a sixteenth of the term later at most; what is left is for the takeover.
    assert LEASE_TERM_S * (1 + 1 / 16) < 0.8
