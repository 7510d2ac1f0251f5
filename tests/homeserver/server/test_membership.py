"""Who does not belong to an instance is refused by it, and told so: in the logs, in `refusals`, in an exit status."""

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import trio

from batonpass.actors.http.client import trusted_authorities
from batonpass.homeserver.config import HomeserverConfig, MemberConfig
from batonpass.homeserver.server.main import run as run_homeserver
from batonpass.scenarios.cluster.ports import PortAllocator
from batonpass.tree import Member, RefusedByInstance, Replica, ReplicaConfig
from tests.homeserver.process import Config, log_file, server_process
from tests.homeserver.served import DEADLINE_S, Home, homeserver_config, new_ports, simserver_config, until

REFUSED: Final = 3


def with_members(config: HomeserverConfig, *others: MemberConfig) -> HomeserverConfig:
    return config.model_copy(update={"members": (*config.members, *others)})


def other_secret(directory: Path) -> Path:
    path = directory / "other-secret"
    path.write_text(secrets.token_urlsafe(32))
    path.chmod(0o600)
    return path


def of_another_instance(directory: Path, ports: PortAllocator, victim: MemberConfig) -> HomeserverConfig:
    config = homeserver_config(directory, ports, "beta.h2")
    return with_members(config, victim.model_copy(update={"name": "beta.h1"}))


def with_another_secret(directory: Path, ports: PortAllocator, victim: MemberConfig) -> HomeserverConfig:
    config = with_members(homeserver_config(directory, ports, "alpha.h2"), victim)
    return config.model_copy(update={"raft_secret_file": other_secret(directory)})


def unheard_of(directory: Path, ports: PortAllocator, victim: MemberConfig) -> HomeserverConfig:
    return with_members(homeserver_config(directory, ports, "alpha.h9"), victim)


def last_word(config: Config) -> str:
    """The one line with which a server says why it ends."""
    log = log_file(config).read_text()
    assert "Traceback" not in log
    (line,) = [line for line in log.splitlines() if " CRITICAL " in line]
    return line


async def refusals(client: httpx.AsyncClient, config: HomeserverConfig) -> list[dict[str, Any]]:
    """What the member says about would-be members."""
    found: list[dict[str, Any]] = (await client.get(f"{config.rest.url}/v1/cluster")).json()["refusals"]
    return found


@pytest.mark.parametrize(
    ("intruder", "code", "words"),
    [
        (of_another_instance, "wrong_instance", ("beta", "alpha")),
        (with_another_secret, "not_authenticated", ("alpha.h2", "secret")),
        (unheard_of, "unknown_member", ("alpha.h9", "alpha.h1")),
    ],
)
async def test_a_stranger_at_the_raft_port_is_refused_and_ends_with_status_3_and_the_reason(
    tmp_path: Path,
    nursery: trio.Nursery,
    intruder: Callable[[Path, PortAllocator, MemberConfig], HomeserverConfig],
    code: str,
    words: tuple[str, ...],
) -> None:
    with new_ports() as ports:
        plain = homeserver_config(tmp_path, ports)
        absent = MemberConfig(name="alpha.h2", raft_port=ports.choose(), rest_url="http://127.0.0.1:1")
        victim = with_members(plain, absent)
        stranger = intruder(tmp_path, ports, plain.members[0])
        await nursery.start(run_homeserver, victim)

        with server_process(stranger) as process:
            await until(lambda: process.poll() is not None)
            assert process.returncode == REFUSED, log_file(stranger).read_text()

        for word in (code, *words):
            assert word in last_word(stranger)

        async with httpx.AsyncClient(trust_env=False, verify=trusted_authorities()) as client:
            found = await refusals(client, victim)
        assert {refusal["code"] for refusal in found} == {code}
        assert {refusal["peer"] for refusal in found} == {stranger.name}
        assert all(refusal["sentence"] for refusal in found)


async def test_a_simulation_server_without_the_join_token_ends_with_status_3_and_the_reason(alpha: Home) -> None:
    stranger = simserver_config(alpha, "alpha.s1", join_token_file=other_secret(alpha.directory))
    with server_process(stranger) as process:
        await until(lambda: process.poll() is not None)
    assert process.returncode == REFUSED
    assert last_word(stranger).endswith("wrong_token: alpha.s1 does not know the join token of this instance")
    await alpha.api.refused(404, "not_found", "GET", "/v1/servers/alpha.s1")


async def test_another_kind_of_server_is_refused(tmp_path: Path, nursery: trio.Nursery) -> None:
    with new_ports() as ports:
        config = homeserver_config(tmp_path, ports)
        await nursery.start(run_homeserver, config)
        port = config.members[0].raft_port
        members = (Member("alpha.h1", "127.0.0.1", port), Member("alpha.s1", "127.0.0.1", ports.choose()))
        stranger = Replica(
            ReplicaConfig(
                kind="simserver",
                instance="alpha",
                name="alpha.s1",
                members=members,
                directory=tmp_path / "stranger",
                secret=(tmp_path / "raft").read_bytes().strip(),
            ),
            {},
        )
        with trio.fail_after(DEADLINE_S), pytest.raises(RefusedByInstance, match="simserver"):
            await stranger.serve()
        async with httpx.AsyncClient(trust_env=False, verify=trusted_authorities()) as client:
            (first, *_) = await refusals(client, config)
        assert (first["code"], first["peer"], first["by_us"]) == ("wrong_kind", "alpha.s1", True)
