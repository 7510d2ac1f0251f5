"""`baton --cluster DIR`: commands are told where the cluster is, whom to believe and which tokens to show."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from batonpass.actors.http.client import trusted_authorities
from batonpass.scenarios.cli.main import run_command
from batonpass.scenarios.cli.named_cluster import named_cluster, variables_of
from batonpass.scenarios.cluster.blueprint import Blueprint, lay_out
from batonpass.scenarios.cluster.topology import ClusterSpec
from tests.homeserver.served import new_ports

NAMES = ("BATON_URL", "BATON_TOKEN_FILE", "BATON_OPERATOR_TOKEN_FILE", "BATON_CA_FILE")


@pytest.fixture(autouse=True)
def _nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*NAMES, "BATON_CLUSTER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("batonpass.actors.http.client._Believed.context", None)


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Blueprint]:
    spec = ClusterSpec(instances={"alpha": 2, "beta": 1}, simservers=0, tls=request.param)
    directory = tmp_path / "playground"
    directory.mkdir(mode=0o700)
    with new_ports() as ports:
        yield lay_out(spec, directory, ports)


def test_it_says_where_the_first_instance_is_and_whose_tokens_to_show(cluster: Blueprint) -> None:
    known = variables_of(cluster.directory)
    urls = [server.rest_url for server in cluster.servers]
    # Nobody listens: the first one will say so.
    assert known["BATON_URL"] == urls[0]
    assert known["BATON_URL"].startswith("https:") == cluster.spec.tls
    assert Path(known["BATON_TOKEN_FILE"]) == cluster.client_token_file("alpha")
    assert Path(known["BATON_OPERATOR_TOKEN_FILE"]) == cluster.operator_token_file("alpha")
    assert ("BATON_CA_FILE" in known) == cluster.spec.tls
    port = int(urls[1].rpartition(":")[2])
    with socket.create_server(("127.0.0.1", port)):
        assert variables_of(cluster.directory)["BATON_URL"] == urls[1]


def test_what_is_set_stays_and_nothing_is_left_behind(cluster: Blueprint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATON_URL", "http://elsewhere.invalid")
    monkeypatch.setenv("BATON_TOKEN_FILE", "")
    before = dict(os.environ)
    with named_cluster(cluster.directory):
        assert os.environ["BATON_URL"] == "http://elsewhere.invalid"
        assert os.environ["BATON_TOKEN_FILE"] == str(cluster.client_token_file("alpha"))
    assert dict(os.environ) == before


def test_a_command_asks_the_cluster_and_believes_its_authority(
    cluster: Blueprint, capsys: pytest.CaptureFixture[str]
) -> None:
    url = cluster.servers[0].rest_url
    for arguments, more in (
        (["--cluster", str(cluster.directory)], {}),
        ([], {"BATON_CLUSTER": str(cluster.directory)}),
    ):
        with pytest.MonkeyPatch.context() as patched:
            for name, value in more.items():
                patched.setenv(name, value)
            # Nobody is there, of whom it says where.
            assert run_command([*arguments, "entity", "ls"]) == 3
        assert f"{url} does not answer" in capsys.readouterr().err
    believed = trusted_authorities().get_ca_certs()
    named = [one for one in believed if "batonpass cluster playground" in str(one["subject"])]
    assert len(named) == (1 if cluster.spec.tls else 0)
    assert not cluster.spec.tls or believed == named, "no other authority is believed"


def test_a_directory_without_a_cluster_is_a_mistake_but_for_what_runs_servers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(click.UsageError, match="has no cluster"):
        variables_of(tmp_path / "nowhere")
    assert run_command(["--cluster", str(tmp_path), "entity", "ls"]) == 2
    assert f"{tmp_path} has no cluster" in capsys.readouterr().err
    assert run_command(["--cluster", str(tmp_path), "up", "--help"]) == 0
