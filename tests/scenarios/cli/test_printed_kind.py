"""What `baton up` prints to be tried is of the world that runs: a kind that it takes, or who tries is refused."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from batonpass.scenarios.cli import up_command
from batonpass.scenarios.cluster.blueprint import ProcessRole
from batonpass.scenarios.cluster.cluster import LocalCluster
from batonpass.scenarios.cluster.topology import ClusterSpec

WORLDS = """
from batonpass.simserver.world.demo_balls import Balls

class Robots(Balls):
    kinds = frozenset({"robot", "door"})

class Anything(Balls):
    kinds = None
"""


def told(spec: ClusterSpec, directory: Path) -> LocalCluster:
    """As much of a cluster that is up as is printed of it."""
    server = {"instance": "alpha", "rest_url": "http://127.0.0.1:1", "link_address": None, "pid": 1}
    servers = [
        SimpleNamespace(**server, name=name, role=role, log_file=directory / name)
        for name, role in (("alpha.h1", ProcessRole.HOMESERVER), ("alpha.s1", ProcessRole.SIMSERVER))
    ]
    by_name = {one.name: one for one in servers}
    files = {"client_token_file": lambda _instance: directory / "client-token", "server": by_name.__getitem__}
    return cast(LocalCluster, SimpleNamespace(directory=directory, spec=spec, servers=servers, **files))


@pytest.mark.parametrize(
    ("world", "kind"), [(None, "ball"), ("mine_of_kinds:Robots", "door"), ("mine_of_kinds:Anything", "ball")]
)
def test_the_printed_kind_is_one_of_the_world(
    world: str | None, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine_of_kinds.py").write_text(WORLDS)
    monkeypatch.chdir(tmp_path)
    up_command.TerminalScreen().up(told(ClusterSpec({"alpha": 1}, world=world), tmp_path))
    printed = capsys.readouterr().out
    (body,) = re.findall(r"-d '(\{.*\})'", printed)
    entity: dict[str, Any] = json.loads(body)
    assert (entity["kind"], entity["id"]) == (kind, f"alpha.{kind}-ada")
    assert f"baton watch alpha.{kind}-ada" in printed
