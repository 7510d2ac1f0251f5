"""`baton shows`: what is asked of which server with which token, and how the answers are shown."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from batonpass.scenarios.common.errors import EnvironmentFailed, RemoteRefused
from batonpass.scenarios.remote import shows as commands
from tests.scenarios.commands import Baton, baton_command, parsed

HOME, ONE, TWO = (f"http://127.0.0.1:{port}" for port in (17103, 17105, 17106))
WALL = "alpha.show-wall"


def part(*, is_controller: bool = False, error: str = "", held: tuple[str, ...] = ()) -> dict[str, Any]:
    drops = [{"node": "alpha.s2", "first": 5, "last": 7, "reason": "engine"}]
    engine = {"state": "failed" if error else "running", "error": error}
    view = {"entity": WALL, "controller": "alpha.s1", "is_controller": is_controller, "newest": 1234, "held": [*held]}
    return {**view, "engine": engine, "drops": drops, "not_applied": 0 if is_controller else 3}


class Instance:
    """A homeserver and two simulation servers, as commands see them."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str, bool]] = []
        rows = {"alpha.h1": ("homeserver", HOME), "alpha.s1": ("simserver", ONE), "alpha.s2": ("simserver", TWO)}
        servers = [{"name": name, "role": role, "rest_url": url} for name, (role, url) in rows.items()]
        self.answers: dict[tuple[str, str], Any] = {
            (HOME, "/v1/servers"): servers,
            (HOME, f"/v1/entities/{WALL}"): {"authority": "alpha.s1"},
            (HOME, "/v1/servers/alpha.s1"): servers[1],
            (ONE, "/v1/local/shows"): [part(is_controller=True, held=("alpha.s9",))],
            (TWO, "/v1/local/shows"): [part(error="black")],
            (ONE, f"/v1/local/shows/{WALL}/nodes/alpha.s2/hold"): {"held": True},
            (ONE, f"/v1/local/shows/{WALL}/nodes/alpha.s2/release"): {"held": False},
            (ONE, f"/v1/local/shows/{WALL}/reset"): {"reset": True},
        }

    @contextmanager
    def server(self, url: str, token_file: Path | None, _timeout_s: float) -> Iterator["Instance"]:
        """In the place of `RemoteServer`."""
        self._url, self._has_token = url, token_file is not None
        yield self

    def call(self, method: str, path: str) -> Any:
        """What the server that is spoken to answers."""
        self.asked.append((method, self._url, path, self._has_token))
        answer = self.answers[self._url, path]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def instance(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Instance:
    made = Instance()
    monkeypatch.setattr(commands, "RemoteServer", made.server)
    monkeypatch.setenv("BATON_URL", HOME)
    monkeypatch.setenv("BATON_OPERATOR_TOKEN_FILE", str(tmp_path / "token"))
    return made


@pytest.fixture
def shows(instance: Instance, capsys: pytest.CaptureFixture[str]) -> Baton:
    return baton_command(capsys, "shows")


def test_the_list_has_each_servers_part_in_each_show(shows: Baton, instance: Instance) -> None:
    status, out, err = shows("list")
    assert (status, err) == (0, "")
    one, two = (line.split() for line in out.splitlines() if WALL in line)
    assert one == [WALL, "alpha.s1", "itself", "1,234", "running", "0", "alpha.s9"]
    assert two == [WALL, "alpha.s2", "alpha.s1", "1,234", "failed:", "black", "3"]
    assert not any(with_token for *_, with_token in instance.asked)
    assert parsed(shows("list", "--json"))["alpha.s2"][0]["engine"]["state"] == "failed"


def test_the_list_takes_the_token_of_its_family_and_shows_it_to_no_server(
    shows: Baton, instance: Instance, tmp_path: Path
) -> None:
    status, _, err = shows("list", "--url", HOME, "--token-file", str(tmp_path / "token"))
    assert (status, err) == (0, "")
    assert not any(with_token for *_, with_token in instance.asked)


def test_a_server_that_does_not_answer_is_named_and_the_others_are_listed(shows: Baton, instance: Instance) -> None:
    instance.answers[ONE, "/v1/local/shows"] = EnvironmentFailed(f"{ONE} does not answer: refused")
    status, out, err = shows("list")
    assert (status, err) == (1, f"baton: {ONE} does not answer: refused\n")
    assert "alpha.s2" in out


def test_without_a_show_there_is_nothing_to_list(shows: Baton, instance: Instance) -> None:
    instance.answers |= {(url, "/v1/local/shows"): [] for url in (ONE, TWO)}
    assert shows("list") == (0, "no server takes part in a show\n", "")


@pytest.mark.parametrize(("act", "done", "held"), [("hold", "held", True), ("release", "released", False)])
def test_a_node_is_held_and_released_at_the_controller_which_alone_sees_the_token(
    shows: Baton, instance: Instance, act: str, done: str, held: bool
) -> None:
    assert shows(act, WALL, "alpha.s2") == (0, f"alpha.s2 is {done} in {WALL}\n", "")
    assert [row for row in instance.asked if row[3]] == [
        ("POST", ONE, f"/v1/local/shows/{WALL}/nodes/alpha.s2/{act}", True)
    ]
    assert parsed(shows(act, WALL, "alpha.s2", "--json")) == {"held": held}


def test_a_show_is_reset_at_its_controller(shows: Baton, instance: Instance) -> None:
    assert shows("reset", WALL) == (0, f"the next frame of {WALL} is a RESET\n", "")
    assert [row for row in instance.asked if row[3]] == [("POST", ONE, f"/v1/local/shows/{WALL}/reset", True)]


def test_what_the_controller_refuses_is_one_line(shows: Baton, instance: Instance) -> None:
    refused = RemoteRefused("not_held", f"alpha.s2 is not held in {WALL}")
    instance.answers[ONE, f"/v1/local/shows/{WALL}/nodes/alpha.s2/release"] = refused
    status, out, err = shows("release", WALL, "alpha.s2")
    assert (status, out) == (1, "")
    assert f"alpha.s2 is not held in {WALL}" in err


def test_a_show_that_no_server_has_cannot_be_asked(shows: Baton, instance: Instance) -> None:
    instance.answers[HOME, f"/v1/entities/{WALL}"] = {"authority": ""}
    status, _, err = shows("hold", WALL, "alpha.s2")
    assert status == 3
    assert f"baton why {WALL}" in err
