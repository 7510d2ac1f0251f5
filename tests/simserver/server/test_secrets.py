"""A simulation server does not start with one secret for two rights."""

from pathlib import Path

import pytest
import trio

from batonpass.actors.base.clock import Clock, InstanceClock
from batonpass.actors.http.client import HttpClient
from batonpass.authority.node.config import ConfigError
from batonpass.simserver.server.config import SimserverConfig
from batonpass.simserver.server.main import open_shell


def test_whatever_reads_the_join_token_is_no_operator(tmp_path: Path) -> None:
    for name in ("join", "operator"):
        (tmp_path / name).write_text("one secret of some length")
        (tmp_path / name).chmod(0o600)
    config = SimserverConfig(
        name="alpha.s1",
        instance="alpha",
        directory=tmp_path / "s1",
        home_urls=("http://home.invalid",),
        join_token_file=tmp_path / "join",
        operator_token_file=tmp_path / "operator",
    )
    client = HttpClient()
    trio.run(client.aclose)
    with pytest.raises(ConfigError, match="operator_token_file and join_token_file hold the same secret"):
        open_shell(config, client, InstanceClock(Clock(), "alpha.s1"))
