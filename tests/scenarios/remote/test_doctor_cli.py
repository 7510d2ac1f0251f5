"""`baton doctor`: what it finds wrong, with what, and what it says to do."""

import os
import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from batonpass.homeserver.config import HomeserverConfig
from batonpass.scenarios.cluster.blueprint import to_toml
from batonpass.scenarios.common.errors import EnvironmentFailed, RemoteRefused
from batonpass.scenarios.remote import doctor, findings
from batonpass.scenarios.remote.findings import (
    Finding,
    FindingState,
    check_config,
    check_disk,
    check_instance,
    check_machine,
)
from tests.homeserver.served import homeserver_config, new_ports
from tests.scenarios.commands import Baton, baton_command, parsed

URL = "http://127.0.0.1:1"


def about(found: Iterator[Finding], what: str) -> Finding:
    (one,) = [each for each in found if what in each.about]
    return one


def test_what_is_not_well_has_a_remedy_and_what_is_well_has_none(tmp_path: Path) -> None:
    for one in (*check_machine({"PYTHONDONTWRITEBYTECODE": "1"}), *check_disk(tmp_path)):
        assert bool(one.remedy) is (one.state is not FindingState.OK), one


def test_few_open_files_and_no_bytecode_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 8192))
    found = about(check_machine({}), "open files")
    assert (found.state, found.seen) == (FindingState.WARNING, "1024 at most")
    assert "at most 8192 here" in found.remedy
    assert not [one for one in check_machine({}) if one.about == "bytecode"]
    assert about(check_machine({"PYTHONDONTWRITEBYTECODE": "1"}), "bytecode").state is FindingState.WARNING


def test_a_small_buffer_and_a_lost_localhost_are_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    small = tmp_path / "rmem_max"
    small.write_text("65536\n")
    monkeypatch.setattr(findings, "_NEWEST_RMEM", small)
    assert about(check_machine({}), "datagrams").state is FindingState.WARNING

    def lost(*_: object) -> Any:
        raise OSError(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", lost)
    assert about(check_machine({}), "localhost").state is FindingState.BAD


@pytest.mark.parametrize(
    ("took_s", "state"), [(0.001, FindingState.OK), (0.03, FindingState.WARNING), (0.3, FindingState.BAD)]
)
def test_a_slow_disk_is_seen(
    took_s: float, state: FindingState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def sync(_: int) -> None:
        now[0] += took_s

    assert about(check_disk(tmp_path, sync), "syncs").state is state
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_and_one_that_cannot_be_written_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(findings, "_MIN_FREE_BYTES", 2**70)
        assert about(check_disk(tmp_path), "disk of").state is FindingState.BAD
    found = list(check_disk(tmp_path / "nowhere"))
    assert [(one.state, one.remedy != "") for one in found] == [(FindingState.BAD, True)]


@pytest.fixture
def config_file(tmp_path: Path) -> Iterator[tuple[Path, HomeserverConfig]]:
    with new_ports() as ports:
        config = homeserver_config(tmp_path, ports)
        file = tmp_path / "config.toml"
        file.write_text(to_toml(config.model_dump(mode="json", exclude_none=True)))
        yield file, config


def states(found: Iterator[Finding]) -> dict[str, FindingState]:
    return {one.about: one.state for one in found}


def test_the_files_of_a_server_that_is_well(config_file: tuple[Path, HomeserverConfig]) -> None:
    file, config = config_file
    config.directory.mkdir()
    found = states(check_config(file))
    assert set(found.values()) <= {FindingState.OK, FindingState.WARNING}
    assert found["secrets of alpha.h1"] is FindingState.OK
    assert found["keys of alpha.h1"] is FindingState.OK


def test_secrets_that_others_read_or_that_are_one_are_seen(config_file: tuple[Path, HomeserverConfig]) -> None:
    file, config = config_file
    config.join_token_file.chmod(0o644)
    assert states(check_config(file))["join_token_file of alpha.h1"] is FindingState.BAD
    config.join_token_file.chmod(0o600)
    assert config.client_token_file is not None
    config.client_token_file.write_bytes(config.join_token_file.read_bytes())
    one = about(check_config(file), "secrets of")
    assert one.state is FindingState.BAD
    assert "hold the same secret" in one.seen
    assert config.join_token_file.read_text() not in one.seen


def test_an_issuer_that_cannot_be_believed_is_seen(config_file: tuple[Path, HomeserverConfig]) -> None:
    file, config = config_file
    assert config.token_issuer_file is not None
    one = about(check_config(file), "token_issuer_file of")
    assert (one.state, one.seen) == (FindingState.OK, "tokens of playground are believed, but for 0 revoked ones")
    config.token_issuer_file.write_text("{}")
    assert about(check_config(file), "token_issuer_file of").state is FindingState.BAD


def test_a_port_in_use_and_broken_keys_are_seen(config_file: tuple[Path, HomeserverConfig]) -> None:
    file, config = config_file
    keys = config.directory / "keys"
    keys.mkdir(parents=True, mode=0o700)
    (keys / "ring.json").write_text("{")
    with socket.create_server((config.rest.host, 0)) as taken:
        port = taken.getsockname()[1]
        file.write_text(file.read_text().replace(f"port = {config.rest.port}", f"port = {port}"))
        found = states(check_config(file))
    assert found["REST of alpha.h1"] is FindingState.WARNING
    assert found["keys of alpha.h1"] is FindingState.BAD


def test_a_configuration_that_is_none_is_said_to_be_none(tmp_path: Path) -> None:
    (one,) = check_config(tmp_path / "nothing.toml")
    assert (one.state, "cannot read configuration" in one.seen) == (FindingState.BAD, True)
    file = tmp_path / "other.toml"
    file.write_text('name = "alpha.h1"\n')
    (one,) = check_config(file)
    assert one.state is FindingState.BAD
    assert "as a homeserver: " in one.seen


WELL: dict[str, Any] = {
    "/healthz": {"status": "ok", "name": "alpha.h1", "role": "homeserver", "clock": ""},
    "/v1/map": {
        "instance": "alpha",
        "leader": "alpha.h1",
        "entities": 3,
        "members": [{"name": "alpha.h1", "health": "ok", "why": ""}],
        "servers": [{"name": "alpha.s1", "health": "ok", "why": ""}],
    },
    "/v1/recoveries": {"log_went_back": "", "waiting": []},
}


def instance(**changed: Any) -> Callable[[str], Any]:
    """GET of an instance that is well, but for this."""
    answers = {path: body | changed.get(path.rpartition("/")[2], {}) for path, body in WELL.items()}

    def call(path: str) -> Any:
        return answers[path]

    return call


def test_an_instance_that_is_well() -> None:
    assert {one.state for one in check_instance(URL, instance())} == {FindingState.OK}


@pytest.mark.parametrize(
    ("changed", "about_", "state", "seen"),
    [
        ({"healthz": {"clock": "its clock is 9 s behind"}}, URL, FindingState.WARNING, "alpha.h1 is ready"),
        ({"map": {"leader": None}}, "instance alpha", FindingState.BAD, "no homeserver leads"),
        ({"map": {"servers": []}}, "simulation servers", FindingState.WARNING, "there is none"),
        (
            {"map": {"servers": [{"name": "alpha.s1", "health": "down", "why": "silent"}]}},
            "alpha.s1",
            FindingState.BAD,
            "silent",
        ),
        (
            {"map": {"members": [{"name": "alpha.h2", "health": "unknown", "why": "who knows"}]}},
            "alpha.h2",
            FindingState.WARNING,
            "who knows",
        ),
        ({"recoveries": {"log_went_back": "it is older"}}, "log", FindingState.BAD, "it is older"),
        (
            {"recoveries": {"waiting": [{"entity": "alpha.ball", "standing": "lost"}]}},
            "lost entities",
            FindingState.BAD,
            "1, for example alpha.ball",
        ),
        (
            {"recoveries": {"waiting": [{"entity": "alpha.ball", "standing": "recovering"}]}},
            "entities of dead servers",
            FindingState.WARNING,
            "1 wait",
        ),
    ],
)
def test_what_is_wrong_with_an_instance(changed: Any, about_: str, state: FindingState, seen: str) -> None:
    (one,) = [each for each in check_instance(URL, instance(**changed)) if each.about == about_]
    assert one.state is state
    assert seen in one.seen
    assert one.remedy


def test_a_homeserver_that_does_not_answer_or_shows_nothing() -> None:
    def silent(path: str) -> Any:
        raise EnvironmentFailed("does not answer")

    assert [one.state for one in check_instance(URL, silent)] == [FindingState.BAD]

    def closed(path: str) -> Any:
        if path == "/v1/map":
            raise RemoteRefused("no_token", "this needs the client token")
        return WELL[path]

    assert [one.state for one in check_instance(URL, closed)] == [FindingState.OK, FindingState.WARNING]


@pytest.fixture
def baton(capsys: pytest.CaptureFixture[str]) -> Baton:
    return baton_command(capsys, "doctor")


def test_the_command_tells_what_is_wrong_and_ends_with_it(
    baton: Baton, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("BATON_URL", raising=False)
    monkeypatch.setattr(doctor, "check_machine", lambda: iter([Finding("python", FindingState.OK, "Python 3.13")]))
    status, out, err = baton()
    assert (status, out, err) == (0, "1 things were looked at: 0 bad, 0 warnings\n", "")
    assert "ok      python: Python 3.13\n" in baton("--all")[1]
    status, out, _ = baton("--config", tmp_path / "nothing.toml")
    assert status == 1
    assert "bad     " in out
    assert "→ mend the file" in out
    assert parsed(baton("--json")) == [{"about": "python", "state": "ok", "seen": "Python 3.13", "remedy": ""}]

    @contextmanager
    def server(*_: object) -> Iterator[Any]:
        yield type("Server", (), {"call": staticmethod(lambda _method, path: WELL[path])})

    monkeypatch.setattr(doctor, "RemoteServer", server)
    assert baton("--url", URL)[0] == 0
    assert os.environ.get("BATON_URL") is None
