"""`baton invite`: what is asked of a homeserver, and how the answers are shown."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from batonpass.scenarios.remote import connection
from tests.scenarios.commands import Baton, baton_command, parsed

HOME = "http://127.0.0.1:17103"
GRANT = {"rights": ["spawn", "own"], "kinds": ["ball"], "entities": "{player}-*", "most_entities": 16}
INVITATION: dict[str, Any] = {
    "id": "3f0c2b7d9a51e604",
    "players": "alpha.guest-*",
    "uses": 20,
    "expires_at_s": 1795305585.0,
}


class Homeserver:
    """What commands see of one."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Any]] = []
        view = INVITATION | {"grant": GRANT}
        enrolment = {"player": "alpha.ada", "grant": GRANT, "invitation": INVITATION["id"], "fixed": False}
        self.answers: dict[tuple[str, str], Any] = {
            ("POST", "/v1/invitations"): view | {"invitation": "3f0c2b7d9a51e604.secret"},
            ("GET", "/v1/invitations"): [view],
            ("DELETE", "/v1/invitations/3f0c2b7d9a51e604"): view,
            ("GET", "/v1/players/alpha.ada/enrolment"): enrolment,
            ("PUT", "/v1/players/alpha.ada/enrolment"): enrolment
            | {"grant": GRANT | {"rights": []}, "invitation": "", "fixed": True},
        }

    @contextmanager
    def server(self, _url: str, token_file: Path | None, _timeout_s: float) -> Iterator["Homeserver"]:
        """In the place of `RemoteServer`."""
        assert token_file is not None
        yield self

    def call(self, method: str, path: str, **more: Any) -> Any:
        self.asked.append((method, path, more.get("json")))
        return self.answers[method, path]


@pytest.fixture
def homeserver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Homeserver:
    made = Homeserver()
    monkeypatch.setattr(connection, "RemoteServer", made.server)
    monkeypatch.setenv("BATON_URL", HOME)
    monkeypatch.setenv("BATON_TOKEN_FILE", str(tmp_path / "token"))
    return made


@pytest.fixture
def invite(homeserver: Homeserver, capsys: pytest.CaptureFixture[str]) -> Baton:
    return baton_command(capsys, "invite")


def test_an_invitation_is_printed_for_people_to_pass_on_and_says_what_it_was_told(
    invite: Baton, homeserver: Homeserver
) -> None:
    assert invite("make", "alpha.ada") == (0, "3f0c2b7d9a51e604.secret\n", "")
    assert homeserver.asked[-1][2] == {"players": "alpha.ada", "uses": 1, "expires_in_s": 86400.0}
    options = ("--kind", "ball", "--uses", 20, "--hours", 1, "--right", "spawn", "--right", "own", "--most", 3)
    assert parsed(invite("make", "alpha.guest-*", *options, "--json"))["invitation"] == "3f0c2b7d9a51e604.secret"
    assert homeserver.asked[-1][2] == {
        "players": "alpha.guest-*",
        "uses": 20,
        "expires_in_s": 3600.0,
        "kinds": ["ball"],
        "rights": ["spawn", "own"],
        "most_entities": 3,
    }


def test_the_list_says_who_may_still_come_and_until_when(invite: Baton, homeserver: Homeserver) -> None:
    status, out, err = invite("ls")
    assert (status, err) == (0, "")
    (row,) = (line for line in out.splitlines() if "3f0c2b7d9a51e604" in line)
    assert row.split()[:3] == ["3f0c2b7d9a51e604", "alpha.guest-*", "20"]
    homeserver.answers["GET", "/v1/invitations"] = []
    assert invite("ls") == (0, "there are no invitations\n", "")


@pytest.mark.parametrize("given", ["3f0c2b7d9a51e604", "3f0c2b7d9a51e604.secret"])
def test_it_is_revoked_by_its_id_and_its_secret_goes_nowhere(invite: Baton, homeserver: Homeserver, given: str) -> None:
    assert invite("revoke", given) == (0, "no player comes by invitation 3f0c2b7d9a51e604 any more\n", "")
    assert not any("secret" in path for _, path, _ in homeserver.asked)


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (("make", "ada"), "as alpha.ada or alpha.guest-*"),
        (("make", "alpha.ada", "--kind", "[ab]"), "a pattern of kinds"),
        (("make", "alpha.ada", "--entities", "{me}-*"), "as {player}-*"),
        (("player", "alpha.ada", "--entities", "a b"), "as {player}-*"),
        (("revoke", "0000"), "`baton invite ls` has their ids"),
    ],
)
def test_a_typing_mistake_is_named_with_what_to_give_and_nothing_is_asked(
    invite: Baton, homeserver: Homeserver, arguments: tuple[str, ...], remedy: str
) -> None:
    status, out, err = invite(*arguments)
    assert (status, out, homeserver.asked) == (2, "", [])
    assert remedy in err


def test_what_a_player_may_do_is_shown_and_said(invite: Baton, homeserver: Homeserver) -> None:
    status, out, _ = invite("player", "alpha.ada")
    assert status == 0
    assert out.splitlines() == [
        "alpha.ada may: spawn, own (by invitation 3f0c2b7d9a51e604)",
        "it spawns: ball under {player}-*, 16 at a time",
    ]
    assert invite("player", "alpha.ada", "--nothing") == (0, "alpha.ada may: nothing (as was said)\n", "")
    assert homeserver.asked[-1] == ("PUT", "/v1/players/alpha.ada/enrolment", {"rights": []})
    assert invite("player", "alpha.ada", "--nothing", "--kind", "ball")[0] == 2
    invite("player", "alpha.ada", "--kind", "ball", "--most", "100", "--json")
    assert homeserver.asked[-1][2] == {"kinds": ["ball"], "most_entities": 100}
