"""A cluster on disk: what is written, what is kept, and who may read it."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from batonpass.actors.base.clock import Clock
from batonpass.authority.node.config import read_secret
from batonpass.crypto.access_tokens import TokenRefused, TokenRole
from batonpass.homeserver.config import HomeserverConfig, RelayConfig
from batonpass.scenarios.cluster.blueprint import Blueprint, DirectoryUnusable, hold_directory, lay_out, remembered_spec
from batonpass.scenarios.cluster.ports import PortAllocator, PortTaken
from batonpass.scenarios.cluster.token_issuer import believed_in, issuer_file_in
from batonpass.scenarios.cluster.topology import BadSpec, ClusterSpec, InstanceRoute
from batonpass.simserver.server.config import SimserverConfig
from tests.scenarios.cluster.test_cluster_ports import listen_as_a_server_does
from tests.scenarios.fakes import dice

SPEC = ClusterSpec(
    {"alpha": 2, "beta": 1},
    simservers=1,
    relays=1,
    routes=(InstanceRoute("alpha", "beta", ("relay.r1",)),),
    world="batonpass.simserver.world.demo_balls:Balls",
    world_options={"balls": 5, "names": ["a", "b"], "box": {"width_m": 2.5}},
    tick_hz=50.0,
)


def lay_out_once(spec: ClusterSpec, directory: Path, seed: int = 1) -> Blueprint:
    with PortAllocator(dice(seed)) as ports:
        return lay_out(spec, directory, ports)


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "cluster"
    with hold_directory(directory):
        yield directory


@pytest.fixture
def blueprint(directory: Path) -> Blueprint:
    return lay_out_once(SPEC, directory)


def config_file(blueprint: Blueprint, name: str) -> Path:
    return next(plan.config_file for plan in blueprint.servers if plan.name == name)


def test_every_server_has_a_plan_in_the_order_of_the_start(blueprint: Blueprint) -> None:
    assert [(plan.name, plan.role, plan.instance) for plan in blueprint.servers] == [
        ("relay.r1", "relay", "relay"),
        ("alpha.h1", "homeserver", "alpha"),
        ("alpha.h2", "homeserver", "alpha"),
        ("beta.h1", "homeserver", "beta"),
        ("alpha.s1", "simserver", "alpha"),
        ("beta.s1", "simserver", "beta"),
    ]


def test_the_written_configurations_are_those_the_servers_read(blueprint: Blueprint) -> None:
    urls = {plan.name: plan.rest_url for plan in blueprint.servers}
    home = HomeserverConfig.load(config_file(blueprint, "alpha.h2"))
    relay = RelayConfig.load(config_file(blueprint, "relay.r1"))
    sim = SimserverConfig.load(config_file(blueprint, "alpha.s1"))

    assert (home.name, home.rest.url) == ("alpha.h2", urls["alpha.h2"])
    assert [(member.name, member.rest_url) for member in home.members] == [
        ("alpha.h1", urls["alpha.h1"]),
        ("alpha.h2", urls["alpha.h2"]),
    ]
    assert [(peer.instance, peer.urls, peer.hops) for peer in home.peers] == [("beta", (urls["relay.r1"],), 2)]
    assert {(peer.instance, peer.urls, peer.hops) for peer in relay.peers} == {
        ("alpha", (urls["alpha.h1"], urls["alpha.h2"]), 1),
        ("beta", (urls["beta.h1"],), 1),
    }
    assert sim.home_urls == (urls["alpha.h1"], urls["alpha.h2"])
    assert (sim.world, sim.world_options, sim.tick_hz) == (SPEC.world, SPEC.world_options, 50.0)


def test_no_two_servers_share_a_port_or_a_directory(blueprint: Blueprint) -> None:
    manifest = json.loads((blueprint.directory / "cluster.json").read_text())
    ports = [port for mine in manifest["ports"].values() for port in mine.values()]

    assert len(ports) == len(set(ports)) == 1 + 3 * 3 + 2 * 2
    assert len({plan.directory for plan in blueprint.servers}) == len(blueprint.servers)


def test_secrets_are_shared_exactly_by_those_who_need_them(blueprint: Blueprint) -> None:
    alpha, other_alpha, beta = (
        HomeserverConfig.load(config_file(blueprint, name)) for name in ("alpha.h1", "alpha.h2", "beta.h1")
    )
    sim = SimserverConfig.load(config_file(blueprint, "alpha.s1"))

    assert alpha.raft_secret_file == other_alpha.raft_secret_file
    assert alpha.join_token_file == sim.join_token_file
    assert alpha.federation_secret_file == beta.federation_secret_file
    files = {
        alpha.raft_secret_file,
        alpha.join_token_file,
        alpha.federation_secret_file,
        beta.raft_secret_file,
        beta.join_token_file,
    }
    assert len({read_secret(path) for path in files if path is not None}) == len(files) == 5
    believed = {alpha.token_issuer_file, beta.token_issuer_file, sim.token_issuer_file}
    assert believed == {issuer_file_in(blueprint.directory)}


def test_each_token_is_for_servers_of_one_kind_and_one_instance(blueprint: Blueprint) -> None:
    believed = believed_in(blueprint.directory)
    tokens = {
        (role, audience): file.read_text().strip()
        for instance in ("alpha", "beta")
        for role, audience, file in (
            (TokenRole.SERVER, instance, blueprint.client_token_file(instance)),
            (TokenRole.OPERATOR, instance, blueprint.operator_token_file(instance)),
            (TokenRole.OPERATOR, f"{instance}/simservers", blueprint.simserver_operator_token_file(instance)),
        )
    }
    now_s = Clock().unix_s()
    for (role, audience), token in tokens.items():
        assert believed.check_untrusted(token, audience, now_s).role is role
        for other in {one for _, one in tokens} - {audience}:
            with pytest.raises(TokenRefused, match="the token is for"):
                believed.check_untrusted(token, other, now_s)


def test_no_server_is_told_where_the_key_of_the_issuer_is(blueprint: Blueprint) -> None:
    assert (blueprint.directory / "secrets" / "token-issuer.key").exists()
    for plan in blueprint.servers:
        assert "token-issuer.key" not in plan.config_file.read_text()


def test_nothing_is_readable_by_others(blueprint: Blueprint) -> None:
    everything = [blueprint.directory, *blueprint.directory.rglob("*")]
    private = [path for path in everything if path.name != "cluster.lock"]

    assert {oct(path.stat().st_mode & 0o777) for path in private if path.is_dir()} == {"0o700"}
    assert {oct(path.stat().st_mode & 0o777) for path in private if path.is_file()} == {"0o600"}


# ---- the same directory again ----


def test_a_later_start_keeps_ports_and_secrets(blueprint: Blueprint) -> None:
    token = blueprint.client_token_file("alpha").read_text()

    again = lay_out_once(SPEC, blueprint.directory, seed=2)

    assert again.servers == blueprint.servers
    assert again.client_token_file("alpha").read_text() == token


def test_what_was_started_is_remembered(blueprint: Blueprint) -> None:
    assert remembered_spec(blueprint.directory) == replace(SPEC, directory=blueprint.directory)


def test_an_empty_directory_remembers_nothing(tmp_path: Path) -> None:
    assert remembered_spec(tmp_path) is None


def test_simulation_servers_may_be_added(blueprint: Blueprint) -> None:
    more = lay_out_once(replace(SPEC, simservers=3), blueprint.directory, seed=2)

    assert {plan.name for plan in more.servers} - {plan.name for plan in blueprint.servers} == {
        "alpha.s2",
        "alpha.s3",
        "beta.s2",
        "beta.s3",
    }
    assert set(blueprint.servers) <= set(more.servers)


def test_members_of_an_instance_may_not_change_behind_its_back(blueprint: Blueprint) -> None:
    with pytest.raises(BadSpec, match="holds the instances alpha:2,beta:1, not alpha:3,beta:1"):
        lay_out_once(replace(SPEC, instances={"alpha": 3, "beta": 1}), blueprint.directory)


def test_an_earlier_port_that_is_taken_meanwhile_is_named_with_its_server(blueprint: Blueprint) -> None:
    port = json.loads((blueprint.directory / "cluster.json").read_text())["ports"]["alpha.h2"]["rest"]
    refused = pytest.raises(PortTaken, match=rf"alpha\.h2 cannot have its rest port back: port {port} on 127\.0\.0\.1")

    with listen_as_a_server_does(port), refused:
        lay_out_once(SPEC, blueprint.directory)


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"format": 1}', '{"format": 1, "instances": {"A": 1}}'])
def test_a_damaged_description_is_named(tmp_path: Path, damage: str) -> None:
    (tmp_path / "cluster.json").write_text(damage)

    with pytest.raises(DirectoryUnusable, match=r"cluster\.json is damaged .* give another --dir"):
        remembered_spec(tmp_path)


def test_a_description_of_another_version_is_named(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text('{"format": 99}')

    with pytest.raises(DirectoryUnusable, match="has format 99, this version reads 1"):
        remembered_spec(tmp_path)


# ---- the directory itself ----


def test_only_one_cluster_runs_in_a_directory(directory: Path) -> None:
    with pytest.raises(DirectoryUnusable, match="a cluster is running in"), hold_directory(directory):
        pass


def test_a_directory_is_free_again_afterwards(tmp_path: Path) -> None:
    for _ in range(2):
        with hold_directory(tmp_path / "cluster"):
            pass


def test_a_directory_open_to_others_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)

    with pytest.raises(DirectoryUnusable, match="run: chmod 700"), hold_directory(tmp_path):
        pass


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    refused = pytest.raises(BadSpec, match=r"cannot create the cluster directory .*; give one that can be made")
    with refused, hold_directory(tmp_path / "file" / "cluster"):
        pass


def test_a_world_option_that_cannot_be_written_is_named(directory: Path) -> None:
    with pytest.raises(BadSpec, match="world option seed: a bytes cannot be written"):
        lay_out_once(replace(SPEC, world_options={"seed": b"\0"}), directory)
