"""`baton observe` against a real homeserver and a real simulation server, each in a process of its own."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import httpx
import pytest

from batonpass.scenarios.cli import main as cli
from batonpass.scenarios.remote import observe as command
from batonpass.scenarios.remote.connection import RemoteServer, print_table
from tests.homeserver.process import log_file, server_process, wait_ready
from tests.homeserver.served import homeserver_config, new_ports
from tests.scenarios.asked import PATIENCE_S
from tests.scenarios.commands import Baton, baton_command, parsed
from tests.scenarios.observed_node import observed_node
from tests.scenarios.two_servers import TwoServers, two_servers


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoServers]:
    with two_servers(tmp_path_factory.mktemp("observe")) as running:
        yield running


@pytest.fixture
def baton(place: TwoServers, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Baton:
    monkeypatch.setenv("BATON_URL", place.home_url)
    monkeypatch.setenv("BATON_OPERATOR_TOKEN_FILE", str(place.directory / "operator"))
    monkeypatch.setattr(command, "_RESTART_S", PATIENCE_S)
    return baton_command(capsys, "observe")


def link_of(baton: Baton) -> dict[str, Any]:
    """The row of the link of alpha.h1. One that was ended is started again a moment later."""
    deadline_s = time.monotonic() + PATIENCE_S
    rows: list[dict[str, Any]] = []
    while time.monotonic() < deadline_s:
        rows = parsed(baton("alpha.h1", "--json"))["actors"]
        for found in rows:
            if found["label"].startswith("service 'link'"):
                return found
    raise AssertionError(f"no link in {rows}")


def test_the_actors_of_a_server_are_shown_as_a_tree(baton: Baton, place: TwoServers) -> None:
    for node, name in ((place.home_url, "alpha.h1"), ("alpha.h1", "alpha.h1"), ("alpha.s1", "alpha.s1")):
        status, out, err = baton(node)
        assert (status, err) == (0, "")
        assert out.startswith(f"{name}: ")
        assert "Supervisor 'root'" in out
        assert "messages handled" in out
    view = parsed(baton("alpha.h1", "--json"))
    assert {row["kind"] for row in view["actors"]} >= {"supervisor", "service"}
    assert "… and " in baton("alpha.h1", "--limit", "1")[1]


def test_one_actor_is_looked_into_held_still_and_let_go(baton: Baton) -> None:
    root = parsed(baton("alpha.h1", "--json"))["actors"][0]
    state = parsed(baton("alpha.h1", "state", "root"))
    assert state["children"][0]["status"] == "running"
    assert parsed(baton("alpha.h1", "state", str(root["pid"]), "--json"))["names"] == ["root"]
    assert baton("alpha.h1", "suspend", "root") == (0, f"{root['label']} is suspended\n", "")
    assert baton("alpha.h1", "resume", f"#{root['pid']}") == (0, f"{root['label']} is running\n", "")
    assert "0 messages in" in baton("alpha.h1", "statistics", "root")[1]
    assert parsed(baton("alpha.h1", "statistics", "root", "--json"))["messages_in"] == 0
    assert parsed(baton("alpha.h1", "statistics", "root", "--off", "--json"))["messages_handled"] is None
    assert baton("alpha.h1", "trace", "root", "--seconds", "0.1") == (0, "", "")
    assert parsed(baton("alpha.h1", "trace", "root", "--seconds", "0.1", "--json"))["why"] == "seconds"


def test_a_state_is_replaced_by_one_of_its_shape_or_stays(baton: Baton, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("its-own")
    with observed_node("its-own") as url:

        def replace(to: str, *more: str) -> tuple[int, str, str]:
            return baton(url, "replace", "counter", "--to", to, "--token-file", str(tmp_path / "token"), *more)

        assert replace("40") == (0, "40\n", "")
        assert parsed(replace("41", "--json"))["state"] == 41
        for to, why in (("null", "null cannot take its place"), ("4.5", "a number cannot"), ("[1]", "a list cannot")):
            status, out, err = replace(to)
            assert (status, out, err.count("\n")) == (1, "", 1)
            assert err.startswith(f"baton: state: it is a whole number, and {why}")
            assert err.endswith("; nothing was changed (state_not_replaceable)\n")
        assert baton(url, "state", "counter", "--token-file", str(tmp_path / "token")) == (0, "41\n", "")


def test_supervisors_and_services_keep_what_they_are(baton: Baton) -> None:
    status, _, err = baton("alpha.h1", "replace", "root", "--to", "{}")
    assert (status, err.count("\n")) == (1, 1)
    assert "what its format_status shows is not the state itself; nothing was changed (state_not_replaceable)" in err
    assert baton("alpha.h1", "replace", "link", "--to", "{}")[2].endswith("(not_a_server)\n")


def test_a_service_has_no_state_and_is_started_again_when_it_is_ended(baton: Baton) -> None:
    status, out, _ = baton("alpha.h1", "state", "service 'link'")
    assert status == 1
    assert "is a service and has no state: serves" in out
    before = link_of(baton)["pid"]
    assert baton("alpha.h1", "terminate", str(before)) == (0, f"service 'link' #{before} has ended\n", "")
    status, _, err = baton("alpha.h1", "state", str(before))
    assert status == 1
    assert "(unknown_actor)" in err


def test_actors_are_found_by_what_the_tree_shows(baton: Baton) -> None:
    link = link_of(baton)
    for name in ("link", "service 'link'", link["label"], f"#{link['pid']}"):
        assert parsed(baton("alpha.h1", "state", name, "--json"))["pid"] == link["pid"]
    view = [row(1, names=["root"], label="Supervisor 'root' #1"), row(2, 1, label="Supervisor #2")]
    view += [row(3, 2, label="service 'rest' #3"), row(4, 1, label="service 'rest' #4")]
    assert [found["pid"] for found in command._called("rest", view)] == [3, 4]
    assert [found["pid"] for found in command._called("root/rest", view)] == [4]
    assert [found["pid"] for found in command._called("root/Supervisor/rest", view)] == [3]
    assert command._called("other/rest", view) == []


def test_what_cuts_the_connection_when_it_ends_is_still_told_truthfully(
    baton: Baton, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, out, err = baton("alpha.h1", "terminate", "rest")
    assert status == 0, err
    assert out.startswith("service 'rest' #")
    assert out.endswith(" has ended\n")
    with new_ports() as ports:
        home = homeserver_config(tmp_path, ports)
        with server_process(home) as process:
            wait_ready(process, home)
            monkeypatch.setattr(command, "_RESTART_S", 1.0)
            status, out, err = baton(home.rest.url, "terminate", "1", "--token-file", str(tmp_path / "operator"))
            assert (status, out, err) == (0, "Supervisor 'root' #1 has ended, and the server with it\n", "")
            assert process.wait(PATIENCE_S) not in (0, None)
        last = log_file(home).read_text().splitlines()[-1]
        assert "<Supervisor 'root' #1> was ended from outside ('shutdown'), and the server ends with it" in last


def test_a_simulation_server_has_a_token_of_its_own(baton: Baton, place: TwoServers) -> None:
    status, _, err = baton("alpha.s1", "state", "root")
    assert (status, err) == (1, "baton: this is no token of this instance (wrong_token)\n")
    own = str(place.directory / "simserver-operator")
    assert "children" in parsed(baton("alpha.s1", "state", "root", "--token-file", own))


def test_what_is_wrong_is_said_in_one_line(baton: Baton, place: TwoServers, monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments, expected, sentence in (
        (("alpha.h1", "state"), 2, "say which actor: baton observe alpha.h1 state PID_OR_NAME"),
        (("alpha.h1", "state", "nobody"), 1, "is called nobody (unknown_actor)"),
        (("alpha.h1", "dance", "root"), 2, "'dance' is not one of"),
        (("alpha.none",), 1, "alpha.none"),
        (("http://127.0.0.1:1",), 3, "does not answer"),
        (("alpha.h1", "trace", "service 'link'"), 1, "(not_a_server)"),
    ):
        status, _, err = baton(*arguments)
        assert (status, err.count("\n")) == (expected, 1), err
        assert sentence in err
    monkeypatch.delenv("BATON_URL")
    status, _, err = baton("alpha.h1")
    assert (status, err.count("\n")) == (2, 1)
    assert "is no URL" in err
    monkeypatch.delenv("BATON_OPERATOR_TOKEN_FILE")
    for node in ("127.0.0.1:17105", "ftp://127.0.0.1", "http://", "http://[x", "http://a:b"):
        assert baton(node) == (
            2,
            "",
            f"baton: NODE {node!r} is no URL: give one like http://127.0.0.1:17105 (see: baton observe --help)\n",
        )
    assert "--url 'here' is no URL" in baton("alpha.h1", "--url", "here")[2]
    for wrong in ([], ["state", "root"]):
        status, _, err = baton("alpha.h1", *wrong, "--off")
        assert status == 2
        assert "--off switches statistics off: baton observe alpha.h1 statistics PID_OR_NAME --off" in err
    for wrong in (["replace", "root"], ["state", "root", "--to", "1"], ["--to", "1"]):
        status, _, err = baton("alpha.h1", *wrong)
        assert (status, err.count("\n")) == (2, 1)
        assert "replace needs --to, and nothing else takes it: baton observe alpha.h1 replace PID_OR_NAME --to" in err
    for no_json in ("", "{", "nan", "NaN", "1e999", '"\\ud800"', '{"a": 1, "a": 2}', "[" * 100_000, "9" * 5000):
        status, _, err = baton("alpha.h1", "replace", "root", "--to", no_json)
        assert (status, err.count("\n")) == (2, 1), no_json
        assert "is not JSON" in err
    assert baton("alpha.h1", "state", "--help")[0] == 0
    assert baton(place.home_url, "state", "1")[2].endswith("(no_token)\n")


def test_watching_shows_it_again_until_ctrl_c(baton: Baton, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", sleep)
    status, out, err = baton("alpha.h1", "--watch", "--every", "0.5")
    assert (status, err.strip(), slept) == (cli.INTERRUPTED, "baton: interrupted", [0.5, 0.5])
    assert out.count("Supervisor 'root'") == 2


# What a server says is shown as it is, and no more


def row(pid: int, parent: int | None = None, **more: Any) -> dict[str, Any]:
    return {
        "pid": pid, "parent": parent, "label": f"Server #{pid}", "kind": "server", "condition": "running", "waiting": 0,
        "callback": None, "callback_s": 0.0, "messages_handled": None, "age_s": 1.0, "names": [],
    } | more  # fmt: skip


def test_actors_come_after_their_parents_however_deep_and_orphans_are_not_lost() -> None:
    deep = 5000
    rows = [row(1), *(row(pid, pid - 1) for pid in range(2, deep)), row(deep, 999_999), row(deep + 1, 1)]
    ordered = [(found["pid"], depth) for found, depth in command._in_order(rows)]
    assert ordered[: deep - 1] == [(pid, pid - 1) for pid in range(1, deep)]
    assert ordered[deep - 1 :] == [(deep + 1, 1), (deep, 0)]


@pytest.mark.parametrize(
    ("more", "does"),
    [
        ({}, "idle"),
        ({"waiting": 3}, "has messages"),
        ({"condition": "suspended", "waiting": 3}, "suspended"),
        ({"callback": "handle_call", "callback_s": 200.0}, "handle_call since 3 min"),
        ({"condition": "exiting", "callback": "terminate", "callback_s": 2.0}, "terminate since 2.0 s"),
        ({"kind": "service", "callback": "serve"}, "serves"),
        ({"kind": "service", "callback": "serve", "condition": "exiting"}, "serve since 0.0 s"),
    ],
)
def test_what_an_actor_does_is_one_phrase(more: dict[str, Any], does: str) -> None:
    assert command._does(row(1, **more)) == does


def test_a_name_cannot_command_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    label = "Evil '\x1b[2J[bold]name' #1"
    stats = dict.fromkeys(("messages_handled", "messages_dropped", "crashes", "slow_callbacks", "blocked"), 0)
    print_table(command._tree({"node": "n", "actors": [row(1, label=label)], "stats": stats}, 10))
    out = capsys.readouterr().out
    assert "\x1b[2J" not in out
    assert "[bold]name" in out


def test_two_of_the_same_name_have_to_be_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    view: dict[str, Any] = {
        "node": "n",
        "actors": [row(1, names=["x"]), row(2, names=["x"])],
        "stats": {},
        "next": None,
    }
    transport = httpx.MockTransport(lambda _request: httpx.Response(200, json=view))
    with RemoteServer("http://test", None, 1.0) as server:
        monkeypatch.setattr(server._http, "_http", httpx.Client(transport=transport, base_url="http://test"))
        with pytest.raises(click.UsageError, match=r"2 actors are called x: say which by its pid \(1, 2\)"):
            command._pid_of(server, "x")


def test_the_actions_of_the_command_are_those_of_the_module() -> None:
    assert cli._OBSERVE_ACTIONS == command.ACTIONS
