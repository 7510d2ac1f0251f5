"""Homeservers that keep their rows in an etcd cluster: everything a client sees is the same."""

from base64 import b64encode
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from batonpass.actors.http.client import trusted_authorities
from batonpass.homeserver.config import ConfigError, EtcdSettings, HomeserverConfig, MemberConfig, MetadataSettings
from batonpass.homeserver.log.backend import make_backend
from batonpass.homeserver.node.dispatch import HomeserverNode
from batonpass.homeserver.server.main import run as run_homeserver
from batonpass.scenarios.cluster.ports import PortAllocator
from batonpass.tree.etcd.keys import EtcdKeys
from tests.homeserver.process import log_file, server_process
from tests.homeserver.served import DEADLINE_S, Home, homeserver_config, new_ports, served, until
from tests.tree.etcd_process import EtcdCluster, running_etcd

BALL = "alpha.ball-1"
REFUSED = 3


@pytest.fixture
async def etcd(tmp_path: Path) -> AsyncIterator[EtcdCluster]:
    async with running_etcd(tmp_path) as cluster:
        yield cluster


def etcd_config(directory: Path, ports: PortAllocator, etcd: EtcdCluster, name: str = "alpha.h1") -> HomeserverConfig:
    """As for Raft, but without its port and secret."""
    config = homeserver_config(directory, ports, name)
    members = tuple(MemberConfig(name=member.name, rest_url=member.rest_url) for member in config.members)
    metadata = MetadataSettings(backend="etcd", etcd=EtcdSettings(endpoints=etcd.urls))
    return config.model_copy(update={"members": members, "metadata": metadata, "raft_secret_file": None})


async def test_an_entity_is_transferred_and_every_homeserver_knows(etcd: EtcdCluster, tmp_path: Path) -> None:
    with new_ports() as ports:
        async with served(etcd_config(tmp_path, ports, etcd)) as home:
            second_config = etcd_config(tmp_path, ports, etcd, "alpha.h2")
            second: HomeserverNode = await home.nursery.start(run_homeserver, second_config)
            await until(lambda: second.registered)
            await transfer_the_ball(home)
            async with httpx.AsyncClient(
                trust_env=False, verify=trusted_authorities(), base_url=second_config.rest.url
            ) as client:
                record = (await client.get(f"/v1/entities/{BALL}")).json()
                assert (record["authority"], record["epoch"]) == ("alpha.s2", 2)
                servers = {row["name"] for row in (await client.get("/v1/servers")).json()}
                assert servers == {"alpha.h1", "alpha.h2", "alpha.s1", "alpha.s2"}
            cluster = await home.api.get("/v1/cluster")
            assert cluster["leader"] == "e0"
            assert [(member["raft"], member["role"]) for member in cluster["members"]] == [("", "client")]
            await use_the_tree(home)
        # Nothing of it is in a directory of theirs: one that begins with an empty one knows it all.
        async with served(etcd_config(tmp_path, ports, etcd, "alpha.h3")) as late:
            assert (await late.api.get(f"/v1/entities/{BALL}"))["authority"] == "alpha.s2"


async def read_in_time(home: Home, path: str) -> Any:
    """What a read says once etcd has confirmed in time that it is up to date, which a busy machine may prevent."""
    while (answer := await home.api.call("GET", path)).status_code == 503:
        assert answer.json()["code"] == "no_quorum"
    assert answer.status_code == 200, answer.text
    return answer.json()


async def use_the_tree(home: Home) -> None:
    """The tree over REST, on etcd as on Raft; but its members are etcd's own business."""
    made = await home.api.do("PUT", "/v1/tree/jobs/7", {"data": {"$bytes": "AA=="}})
    assert (made["existed"], made["payload_version"]) == (False, 1)
    body = {
        "if": [{"path": "jobs/7", "condition": ["if_payload_version", 1]}],
        "then": [{"op": "put", "path": "jobs/7", "data": 2}],
    }
    assert (await home.api.do("POST", "/v1/tx", body))["succeeded"] is True
    assert (await read_in_time(home, "/v1/tree/jobs/7"))["data"] == 2
    exported = (await home.api.call("GET", "/v1/export?pattern=jobs/*")).content
    assert (await home.api.do("POST", "/v1/import", content=exported))["nodes"] == 1
    await be_refused_what_is_too_much_for_etcd(home)
    operator = {"authorization": f"Bearer {(home.directory / 'operator').read_text()}"}
    await home.api.refused(501, "unsupported", "POST", "/v1/cluster/leader", {}, headers=operator)


async def be_refused_what_is_too_much_for_etcd(home: Home) -> None:
    """Too many nodes; or data over data, because the answer tells both. A deletion in between makes it fit."""
    puts = [{"op": "put", "path": f"jobs/{number}", "data": 1} for number in range(130)]
    await home.api.refused(422, "too_much_for_etcd", "POST", "/v1/tx", {"then": puts})
    await home.api.do("PUT", "/v1/tree/jobs/8", {"data": "x" * 900_000})
    large = {"data": "y" * 900_000}
    refused = await home.api.call("PUT", "/v1/tree/jobs/8", large)
    assert (refused.status_code, refused.json()["code"]) == (422, "too_much_for_etcd")
    assert refused.json()["details"] == {"operations": 128, "bytes": 1_572_864}
    replacing = [{"op": "delete", "path": "jobs/8"}, {"op": "put", "path": "jobs/8"} | large]
    assert (await home.api.do("POST", "/v1/tx", {"then": replacing}))["succeeded"] is True
    await home.api.do("DELETE", "/v1/tree/jobs/8")


async def transfer_the_ball(home: Home) -> None:
    """Ada spawns a ball on one server and moves it to another."""
    for name in ("alpha.s1", "alpha.s2"):
        await home.simserver(name)
    ada = await home.player("alpha.ada")
    await home.entity(BALL, ada, "alpha.s1")
    proof = ada.proof(action="transfer", entity=BALL, to="alpha.s2", transfer_id="transfer-1")
    body = {"to": "alpha.s2", "requester": ada.name, "proof": proof, "transfer_id": "transfer-1"}
    await home.api.do("POST", f"/v1/entities/{BALL}/transfers", body)
    assert (await home.finished("transfer-1"))["result"] == "done"


async def test_without_etcd_requests_are_refused_and_work_again_when_it_is_back(
    etcd: EtcdCluster, tmp_path: Path
) -> None:
    with new_ports() as ports:
        async with served(etcd_config(tmp_path, ports, etcd)) as home:
            etcd.members[0].kill()
            await home.api.refused(503, "no_quorum", "GET", f"/v1/entities/{BALL}")
            etcd.start(etcd.members[0])
            with trio.fail_after(DEADLINE_S):
                await etcd.until_ready()
            await home.player("alpha.ada")


def test_a_process_whose_rows_somebody_else_changed_ends_with_one_sentence(tmp_path: Path) -> None:
    async def run() -> str:
        async with running_etcd(tmp_path) as etcd:
            key = b64encode(EtcdKeys("/batonpass", "homeserver", "alpha").guard).decode()
            await etcd.post("/v3/kv/put", {"key": key, "value": b64encode(b"mine").decode()})
            with new_ports() as ports:
                config = etcd_config(tmp_path, ports, etcd)
                with server_process(config) as process:
                    assert await trio.to_thread.run_sync(process.wait) == REFUSED
            return log_file(config).read_text()

    log = trio.run(run)
    assert "Traceback" not in log
    (line,) = [line for line in log.splitlines() if " CRITICAL " in line]
    assert "/batonpass/homeserver/alpha/guard" in line


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"metadata": {"backend": "etcd"}}, "metadata.etcd.endpoints"),
        ({"metadata": {"etcd": {"endpoints": ["http://127.0.0.1:2379"]}}}, 'metadata.backend = "etcd"'),
        ({"metadata": {"backend": "etcd", "etcd": {"endpoints": []}}}, "at least 1"),
        ({"metadata": {"backend": "zookeeper"}}, "'raft' or 'etcd'"),
        ({"raft_secret_file": None}, "raft_secret_file is missing"),
        ({"members": [{"name": "alpha.h1", "rest_url": "http://127.0.0.1:1"}]}, "raft_port is missing for alpha.h1"),
    ],
)
def test_a_configuration_that_does_not_fit_together_is_refused(
    changes: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with new_ports() as ports:
        good = homeserver_config(tmp_path, ports).model_dump(mode="json", exclude_none=True)
    with pytest.raises(ValueError, match=sentence):
        HomeserverConfig.model_validate(good | changes)


def test_settings_that_etcd_could_not_work_with_are_refused(etcd_settings: EtcdSettings, tmp_path: Path) -> None:
    with new_ports() as ports:
        config = homeserver_config(tmp_path, ports)
    metadata = MetadataSettings(backend="etcd", etcd=etcd_settings)
    with pytest.raises(ConfigError, match=r"metadata\.etcd"):
        make_backend(config.model_copy(update={"metadata": metadata}))


@pytest.fixture(params=[{"endpoints": ("127.0.0.1:2379",)}, {"endpoints": ("http://x",), "user": "u"}], ids=str)
def etcd_settings(request: pytest.FixtureRequest) -> EtcdSettings:
    return EtcdSettings(**request.param)


def test_a_password_is_read_from_its_file(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("h\n")
    settings = EtcdSettings(endpoints=("http://x",), user="u", password_file=secret)
    with new_ports() as ports:
        config = homeserver_config(tmp_path, ports)
    config = config.model_copy(update={"metadata": MetadataSettings(backend="etcd", etcd=settings)})
    secret.chmod(0o644)
    with pytest.raises(ConfigError, match="can be used by others"):
        make_backend(config)
    secret.chmod(0o600)
    assert make_backend(config).status.name == "alpha.h1"


async def test_health_says_that_what_keeps_the_log_has_no_room(alpha: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    replica = type(alpha.node.replica)
    status = replica.status.fget  # type: ignore[attr-defined]  # it is a property
    full = property(lambda one: replace(status(one), cannot_write="etcdserver: mvcc: database space exceeded"))
    monkeypatch.setattr(replica, "status", full)
    answer = await alpha.api.call("GET", "/healthz")
    assert (answer.status_code, answer.json()["code"]) == (503, "not_ready")
    assert answer.json()["message"] == "nothing can be written: etcdserver: mvcc: database space exceeded"
