"""`baton tree` and `baton cluster` against a real homeserver in a process of its own."""

import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from batonpass.homeserver.config import HomeserverConfig
from batonpass.homeserver.node.why import Cause
from batonpass.scenarios.cluster.blueprint import operator_token_in
from batonpass.scenarios.common.errors import EnvironmentFailed, RemoteRefused
from batonpass.scenarios.remote import servers, tree
from batonpass.scenarios.remote.connection import RemoteServer
from tests.homeserver.process import server_process, wait_ready
from tests.homeserver.served import homeserver_config, new_ports
from tests.scenarios.commands import Baton, baton_command, parsed


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[HomeserverConfig, Path]]:
    directory: Path = tmp_path_factory.mktemp("remote")
    with new_ports() as ports:
        config = homeserver_config(directory, ports)
        with server_process(config) as process:
            wait_ready(process, config)
            yield config, directory


@pytest.fixture
def baton(
    home: tuple[HomeserverConfig, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Baton:
    config, directory = home
    monkeypatch.setenv("BATON_URL", config.rest.url)
    monkeypatch.setenv("BATON_TOKEN_FILE", str(directory / "client"))
    monkeypatch.setenv("BATON_OPERATOR_TOKEN_FILE", str(directory / "operator"))
    return baton_command(capsys)


def test_a_node_is_put_shown_listed_and_removed(baton: Baton) -> None:
    assert baton("tree", "put", "a/7", '{"n": 1}') == (0, "a/7 made, version 1\n", "")
    assert parsed(baton("tree", "get", "a/7")) == {"n": 1}
    assert parsed(baton("tree", "get", "a/7", "--json", "--low-latency"))["payload_version"] == 1
    assert baton("tree", "put", "a/7", "2", "--if-version", "1")[0] == 0
    status, _, err = baton("tree", "put", "a/7", "3", "--if-version", "1")
    assert (status, err) == (1, "baton: the node a/7 is not as expected (precondition_failed)\n")
    keep = '[["a/7", ["if_node_exists", true]]]'
    assert parsed(baton("tree", "put", "a/..", '"x"', "--create", "--keep-while", keep, "--json"))["path"] == [
        "a",
        "..",
    ]
    assert baton("tree", "put", "a/..", '"x"', "--create")[0] == 1
    assert baton("tree", "put", "a/7", "4", "--condition", '["if_has_data", false]')[0] == 1
    listed = baton("tree", "ls", "a")[1]
    assert "a/7" in listed
    assert "2 nodes" in listed
    found = parsed(baton("tree", "ls", "--pattern", "a/**", "--limit", "1", "--json"))
    assert ([node["path"] for node in found["nodes"]], found["next"]) == ([["a", ".."]], ["a", ".."])
    assert baton("tree", "delete", "a/7") == (0, "3 nodes removed\n", "")
    assert parsed(baton("tree", "delete", "a/7", "--json"))["removed"] == 0
    assert baton("tree", "get", "a/7")[0] == 1


def test_what_is_exported_is_imported_again_also_in_parts(
    baton: Baton, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        baton("tree", "put", f"b/{name}", json.dumps(name * 50))
    baton("tree", "put", "b/a", '"kept"', "--keep-while", '[["b/c", ["if_node_exists", true]]]')
    status, exported, _ = baton("tree", "export", "b/**")
    assert status == 0
    file = tmp_path / "b.jsonl"
    file.write_text(exported)
    for part_bytes in (500_000, 100):
        monkeypatch.setattr(tree, "IMPORT_BYTES", part_bytes)
        baton("tree", "delete", "b")
        assert baton("tree", "import", str(file)) == (0, "3 nodes written, 0 removed\n", "")
        lines, again = exported.splitlines(), baton("tree", "export", "b/**")[1].splitlines()
        assert again[1:] == lines[1:]
    baton("tree", "put", "b/d", "1")
    assert parsed(baton("tree", "import", str(file), "--mode", "replace", "--json")) == {"nodes": 3, "removed": 1}
    file.write_text(exported.splitlines()[0])
    assert baton("tree", "import", str(file))[0] == 1


def test_lines_end_with_line_feeds_alone(baton: Baton, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    strange = "a\u2028b\u0085c\u2029d\x1ee\x0c"
    revision = parsed(baton("tree", "get", "", "--json"))["revision"]
    baton("tree", "put", "lines/a", json.dumps(strange))
    exported = baton("tree", "export", "lines/*")[1]
    assert strange[:7] in exported
    file = tmp_path / "lines.jsonl"
    file.write_text(exported, encoding="utf-8")
    for part_bytes in (500_000, 10):
        monkeypatch.setattr(tree, "IMPORT_BYTES", part_bytes)
        baton("tree", "delete", "lines")
        assert baton("tree", "import", str(file)) == (0, "1 nodes written, 0 removed\n", "")
        assert parsed(baton("tree", "get", "lines/a")) == strange
    out = baton("tree", "watch", "lines/*", "--since", str(revision), "--count", "1", "--json")[1]
    assert json.loads(out)["data"] == strange


@pytest.mark.parametrize("part_bytes", [500_000, 0])
@pytest.mark.parametrize("row", ["5", "[1]", "null", "nonsense", '"text"'])
def test_what_is_no_row_of_an_export_is_refused(
    baton: Baton, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: str, part_bytes: int
) -> None:
    monkeypatch.setattr(tree, "IMPORT_BYTES", part_bytes)
    file = tmp_path / "wrong.jsonl"
    head = '{"format":"batonpass tree","version":1,"pattern":["x"]}'
    for text in (f'{head}\n{row}\n{{"end":true,"nodes":1}}', row, "\n\n"):
        file.write_text(text)
        status, out, err = baton("tree", "import", str(file))
        assert (status, out) == (1, "")
        assert "(bad_data)" in err
        assert err.count("\n") == 1
    file.write_bytes(b"\xff")
    assert "cannot read" in baton("tree", "import", str(file))[2]


def test_a_transaction_is_applied_and_its_status_says_which_branch(baton: Baton, tmp_path: Path) -> None:
    file = tmp_path / "tx.json"
    missing = {"path": "tx/a", "condition": ["if_node_exists", False]}
    operations = {"then": [{"op": "put", "path": "tx/a", "data": 1}], "else": [{"op": "get", "path": "tx/a"}]}
    file.write_text(json.dumps({"if": [missing], **operations}))
    assert parsed(baton("tree", "tx", str(file)))["succeeded"] is True
    status, out, err = baton("tree", "tx", str(file))
    assert (status, json.loads(out), err) == (1, {"succeeded": False, "results": [1]}, "")
    file.write_text("{")
    assert baton("tree", "tx", str(file))[0] == 2


def test_a_quiet_server_is_not_taken_for_a_dead_one(baton: Baton, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        event = {"revision": 1, "kind": "created", "path": ["a"], "has_data": False, "data": None}
        return httpx.Response(200, text=f"data: {json.dumps(event)}\n\n")

    monkeypatch.setattr(httpx, "Client", partial(httpx.Client, transport=httpx.MockTransport(answer)))
    assert baton("tree", "watch", "a", "--count", "1", "--timeout", "0.5")[0] == 0
    (request,) = asked
    timeouts = request.extensions["timeout"]
    assert timeouts["connect"] == 0.5
    assert timeouts["read"] > 2 * float(request.url.params["heartbeat_s"])


def test_events_are_followed_from_a_revision(baton: Baton) -> None:
    revision = parsed(baton("tree", "get", "", "--json"))["revision"]
    for number in range(3):
        baton("tree", "put", "c/7", str(number))
    status, out, _ = baton("tree", "watch", "c/*", "--since", str(revision), "--count", "3", "--json")
    events = [json.loads(line) for line in out.splitlines()]
    assert (status, [event["data"] for event in events]) == (0, [0, 1, 2])
    assert "created c/7 0" in baton("tree", "watch", "c/*", "--since", str(revision), "--count", "1")[1]


def test_members_are_shown_and_only_an_operator_changes_them(baton: Baton, home: tuple[HomeserverConfig, Path]) -> None:
    status, out, _ = baton("cluster", "status")
    assert status == 0
    assert "alpha.h1" in out
    assert "leader" in out
    assert parsed(baton("cluster", "status", "--json"))["leader"] == "alpha.h1"
    assert baton("cluster", "remove", "alpha.h1")[0] == 1
    assert "(unknown_member)" in baton("cluster", "replace", "alpha.h9", "alpha.h2", "127.0.0.1:1")[2]
    assert "alpha.h1 leads" in baton("cluster", "transfer", "alpha.h1")[1]
    assert "there is no alarm" in baton("cluster", "accept-loss")[1]
    assert json.loads(baton("cluster", "accept-loss", "--json")[1])["why"] == ""
    client = str(home[1] / "client")
    assert "(missing_right)" in baton("cluster", "add", "alpha.h2", "127.0.0.1:1", "--token-file", client)[2]


@pytest.mark.parametrize(
    ("answer", "status", "said", "accepted"),
    [
        ("n", 1, "baton: the answer was no, so nothing was changed\n", False),
        ("", 1, "baton: the answer was no, so nothing was changed\n", False),
        (EOFError(), 1, "baton: no answer, so nothing was changed: give --yes to be asked nothing\n", False),
        (KeyboardInterrupt(), 130, "baton: interrupted\n", False),
        ("y", 0, "", True),
    ],
    ids=["no", "nothing", "the end of the input", "ctrl-c", "yes"],
)
def test_a_loss_that_is_not_accepted_changes_nothing_and_says_so(
    baton: Baton, monkeypatch: pytest.MonkeyPatch, answer: str | Exception, status: int, said: str, accepted: bool
) -> None:
    asked: list[str] = []

    def call(_server: RemoteServer, method: str, path: str, **_: Any) -> Any:
        asked.append(method)
        return [] if path == "/v1/servers" else {"why": "the log is an older one", "entities": 3}

    def answered(_prompt: str) -> str:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    monkeypatch.setattr(RemoteServer, "call", call)
    monkeypatch.setattr("click.termui.visible_prompt_func", answered)
    ended, out, err = baton("cluster", "accept-loss")
    assert (ended, err.lstrip("\n"), "DELETE" in asked) == (status, said, accepted)
    assert ("accepted, although" in out) == accepted


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (("tree", "put", "a", "no json"), 2, "text needs quotes"),
        (("tree", "get", "a//b"), 2, "a name is empty"),
        (("tree", "get", "a", "--url", "http://127.0.0.1:1"), 3, "does not answer"),
        (("tree", "get", "a", "--token-file", "/no/such"), 2, "cannot read the token in /no/such: No such file"),
        (("tree", "get", "a", "--token-file", "/dev/null"), 2, "there is no token in /dev/null"),
        (("tree", "get", "a", "--url", "foo"), 2, "--url 'foo' is no URL"),
        (("tree", "get", "a", "--url", ""), 2, "--url '' is no URL"),
        (("cluster", "status", "--url", "ftp://[1"), 2, "is no URL"),
        (("drain", "alpha.s1", "--url", "http://:1"), 2, "is no URL"),
        (("drain", "../load"), 2, "'../load' is not a name like 'alpha.s1'"),
        (("server", "remove", "alpha.s1/../h1"), 2, "is not a name like"),
        (("server", "load", "--token-file", "/no/such"), 2, "cannot read the token"),
        (("cluster", "remove", "alpha.h1?x=1"), 2, "is not a name like"),
        (("cluster", "transfer", "../x"), 2, "is not a name like"),
        (("cluster", "replace", "alpha.h1", "h2", "127.0.0.1:1"), 2, "'h2' is not a name like"),
        (("keys", "forget", "../rotate"), 2, "is not a name like"),
        (("keys", "show", "..", "--url", "http://127.0.0.1:1"), 2, "is not a name like"),
        (("keys", "show", "--url", "foo"), 2, "is no URL"),
        (("observe", "..", "--url", "http://127.0.0.1:1"), 2, "is not a name like"),
        (("drain", "alpha.s1"), 1, "unknown_target"),
        (("cluster", "remove", "alpha.h1", "--wait", "nan"), 2, "'nan' is not a number"),
        (("cluster", "remove", "alpha.h1", "--wait", "40", "--timeout", "40"), 2, "--wait (40 s) must be less than"),
        (("bench", "actors", "--seconds", "nan"), 2, "'nan' is not a number"),
        (("bench", "tree", "--seconds", "nan"), 2, "'nan' is not a number"),
        (("chaos", "transfers", "--only", "nothing"), 2, "no trial is called 'nothing'"),
        (("tree", "put", "entities/x", "1"), 1, "reserved_path"),
        (("cluster", "add", "alpha.h2", "nowhere"), 2, "is not HOST:RAFT_PORT"),
        (("cluster", "add", "alpha.h2", "127.0.0.1:99999"), 2, "'127.0.0.1:99999' is not HOST:RAFT_PORT"),
        (("cluster", "add", "alpha.h2", "127.0.0.1:" + "9" * 5000), 2, "is not HOST:RAFT_PORT"),
        (("cluster", "dance"), 2, "No such command"),
    ],
)
def test_what_goes_wrong_is_one_line_and_a_status(
    baton: Baton, arguments: tuple[str, ...], status: int, sentence: str
) -> None:
    got, out, err = baton(*arguments)
    assert (got, out) == (status, "")
    assert err.startswith("baton: ")
    assert err.count("\n") == 1
    assert sentence in err


class Drained:
    """A server of which a drain is asked again and again: a view for every second, the last one for ever."""

    def __init__(self, *views: dict[str, Any] | None) -> None:
        self.views = list(views)
        self.now_s = 0.0

    def call(self, _method: str, _path: str) -> dict[str, Any]:
        self.now_s += 1.0
        view = self.views.pop(0) if len(self.views) > 1 else self.views[0]
        if view is None:
            raise EnvironmentFailed("no majority (no_quorum)")
        return view

    def wait(
        self, monkeypatch: pytest.MonkeyPatch, *, json_wanted: bool = True, removing: bool = False
    ) -> tuple[int, float]:
        """The status, and how long it took."""
        monkeypatch.setattr("batonpass.scenarios.remote.servers.time.monotonic", lambda: self.now_s)
        monkeypatch.setattr("batonpass.scenarios.remote.servers.time.sleep", lambda _: None)
        first = self.call("POST", "")
        status = servers._wait(cast(RemoteServer, self), "", first, json_wanted, within_s=1000.0, removing=removing)
        return status, self.now_s


def test_a_drain_that_has_nowhere_to_go_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    full = {"server": "alpha.s1", "draining": True, "entities": 3, "delegated": 0, "held": 3, "leaving": 0}
    stuck, going, empty = ({**full, "targets": n, "empty": e} for n, e in ((0, False), (2, False), (2, True)))
    status, waited_s = Drained(stuck).wait(monkeypatch)
    assert (status, 15.0 <= waited_s <= 18.0) == (1, True)
    assert "3 by the log; no other server takes entities; the drain goes on" in capsys.readouterr().err
    Drained(stuck | {"full": 2}).wait(monkeypatch)
    assert "3 by the log; no other server takes entities (2 full); the drain goes on" in capsys.readouterr().err
    # So it is if nobody else is left than those who are too large for any transfer.
    kept = {**full, "targets": 2, "empty": False, "too_large": 3}
    status, waited_s = Drained(kept).wait(monkeypatch)
    assert (status, 15.0 <= waited_s <= 18.0) == (1, True)
    assert "3 too large to be moved (state_too_large); the drain goes on" in capsys.readouterr().err
    # Also with others of which nobody knows why they stay.
    status, waited_s = Drained(kept | {"held": 5}).wait(monkeypatch)
    assert (status, 15.0 <= waited_s <= 18.0) == (1, True)
    # A server that is started again in between is waited for.
    status, waited_s = Drained(*[stuck] * 10, *[going] * 5, *[stuck] * 10, empty).wait(monkeypatch)
    assert (status, waited_s) == (0, 26.0)


def test_a_drain_that_has_stopped_is_not_waited_for_and_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    going = {"server": "alpha.s1", "draining": True, "entities": 3, "delegated": 0, "held": 3, "leaving": 0}
    going |= {"targets": 2, "empty": False, "stopped": ""}
    why = "alpha.ball-1 has not run on alpha.s2 since it came there: ValueError: cannot migrate ball from 1"
    for stopped in (going | {"stopped": why}, going | {"stopped": why, "empty": True}):
        status, waited_s = Drained(going, going, stopped).wait(monkeypatch)
        assert (status, waited_s) == (1, 3.0)
        text = (
            f"baton: the drain of alpha.s1 has stopped, with 3 left by the log: {why}; it goes on when that is mended"
        )
        assert text in capsys.readouterr().err


def test_a_dead_server_that_is_empty_by_the_log_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dead = {"server": "alpha.s1", "draining": True, "entities": 0, "delegated": 0, "held": None, "leaving": None}
    dying, gone = ({**dead, "targets": 2, "empty": e} for e in (False, True))
    assert Drained(dying, dying, gone).wait(monkeypatch, json_wanted=False)[0] == 0
    shown = capsys.readouterr()
    assert "alpha.s1 does not report; 0 by the log\n" in shown.err
    assert shown.out == "alpha.s1 is empty after 2.0 s by the log; it does not report and has no lease\n"


def test_what_waits_for_a_dead_server_is_told_and_given_up_only_by_removing_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    left = {"server": "alpha.s1", "draining": True, "entities": 0, "delegated": 0, "held": None, "leaving": None}
    left |= {"targets": 2, "empty": False, "waiting": 3}
    status, waited_s = Drained(left).wait(monkeypatch)
    assert (status, 15.0 <= waited_s <= 18.0) == (1, True)
    assert "3 that it left wait for it, or for copies: see `baton recoveries`; the drain" in capsys.readouterr().err
    # Each that is gone on with is a reason to wait on for the others.
    going = [left | {"waiting": number} for number in range(9, 0, -1) for _ in range(10)]
    assert Drained(*going, left | {"waiting": 0, "empty": True}).wait(monkeypatch) == (0, 91.0)
    status, waited_s = Drained(left).wait(monkeypatch, removing=True)
    assert (status, 15.0 <= waited_s <= 18.0) == (0, True)
    # One that may be alive is waited for, and what it has still is not given up.
    for more in ({"waiting": 0, "targets": 0}, {"entities": 1}, {"held": 1, "leaving": 0}):
        assert Drained(left | more).wait(monkeypatch, removing=True)[0] == 1


def test_who_does_not_answer_for_a_moment_is_asked_again_about_a_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    full = {"server": "alpha.s1", "draining": True, "entities": 3, "delegated": 0, "held": 3, "leaving": 0}
    going, empty = ({**full, "targets": 2, "empty": e} for e in (False, True))
    silent = [None] * 40
    assert Drained(going, *silent, going, *silent, empty).wait(monkeypatch)[0] == 0
    with pytest.raises(EnvironmentFailed, match=r"no_quorum\); the drain goes on"):
        Drained(going, None).wait(monkeypatch)


@pytest.mark.parametrize("command", [("drain",), ("server", "remove")])
@pytest.mark.parametrize("answered", [0, 1, 3])
def test_whoever_ends_the_waiting_is_told_that_the_drain_goes_on(
    baton: Baton, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], answered: int
) -> None:
    full = {"server": "alpha.s1", "draining": True, "entities": 3, "delegated": 0, "held": 3, "leaving": 0}
    answers = [{**full, "targets": 1, "empty": False}] * answered

    def call(*_: Any) -> dict[str, Any]:
        if not answers:
            raise KeyboardInterrupt
        return answers.pop()

    monkeypatch.setattr(RemoteServer, "call", call)
    status, _, err = baton(*command, "alpha.s1")
    assert status == 130
    assert f"the drain of alpha.s1 goes on; wait on with `baton {' '.join(command)} alpha.s1`, end it with" in err


@pytest.mark.parametrize("was_removed", [True, False])
def test_a_server_that_was_removed_may_be_removed_again(
    baton: Baton, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, was_removed: bool
) -> None:
    """Unless only its row was: then its process is still there."""

    def ask(_directory: Path, request: dict[str, str], _timeout_s: float) -> dict[str, Any]:
        if request["do"] == "look":
            return {"homeservers": [os.environ["BATON_URL"]]}
        return {"name": "alpha.s1"} | ({"was_removed": True} if was_removed else {})

    def call(*_: Any) -> dict[str, Any]:
        raise RemoteRefused("unknown_target", "no simulation server alpha.s1 is registered")

    monkeypatch.setattr(servers, "ask_cluster", ask)
    monkeypatch.setattr(RemoteServer, "call", call)
    status, out, _ = baton("server", "remove", "alpha.s1", "--dir", str(tmp_path))
    assert (status, out) == (0, "alpha.s1 is removed already\n" if was_removed else "alpha.s1 is removed\n")
    assert baton("server", "remove", "alpha.s1")[0] == 1, "without the directory nobody knows that it ever was"


@pytest.mark.parametrize(("own", "status"), [("http://127.0.0.1:9", 2), ("{url}", 0), ("{localhost}", 0)])
def test_nothing_is_removed_from_another_cluster_than_that_of_the_directory(
    baton: Baton, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, own: str, status: int
) -> None:
    url = os.environ["BATON_URL"]
    known = own.format(url=url, localhost=url.replace("127.0.0.1", "localhost"))
    asked: list[str] = []

    def ask(_directory: Path, request: dict[str, str], _timeout_s: float) -> dict[str, Any]:
        asked.append(request["do"])
        return {"homeservers": [known]}

    calls: list[str] = []
    empty = {"server": "alpha.s1", "draining": True, "entities": 0, "delegated": 0, "held": 0, "leaving": 0}

    def call(_: RemoteServer, method: str, *_path: str) -> dict[str, Any]:
        calls.append(method)
        return {**empty, "targets": 1, "empty": True}

    monkeypatch.setattr(servers, "ask_cluster", ask)
    monkeypatch.setattr(RemoteServer, "call", call)
    done = baton("server", "remove", "alpha.s1", "--dir", str(tmp_path))
    assert done[0] == status, done
    assert (asked, bool(calls)) == ((["look", "remove"], True) if status == 0 else (["look"], False))
    if status:
        assert f"{url} is no homeserver of the cluster in {tmp_path}" in done[2]


def test_with_a_directory_neither_url_nor_token_is_needed(
    home: tuple[HomeserverConfig, Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """They are those of the cluster that runs there; what is given counts more."""
    config, secrets = home
    for name in ("BATON_URL", "BATON_TOKEN_FILE", "BATON_OPERATOR_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    token = operator_token_in(tmp_path, "alpha")
    token.parent.mkdir(parents=True, exist_ok=True)
    token.write_text((secrets / "operator").read_text())
    token.chmod(0o600)
    asked: list[str] = []

    def ask(directory: Path, request: dict[str, str], _timeout_s: float) -> dict[str, Any]:
        assert directory == tmp_path
        asked.append(request["do"])
        return (
            {"homeservers": [config.rest.url]} if request["do"] == "look" else {"name": "alpha.s9", "was_removed": True}
        )

    monkeypatch.setattr(servers, "ask_cluster", ask)
    baton = baton_command(capsys)
    # This homeserver is asked for real: it takes the token, and knows no such server.
    assert baton("server", "remove", "alpha.s9", "--dir", str(tmp_path))[:2] == (0, "alpha.s9 is removed already\n")
    assert asked[-1] == "remove"
    token.write_text("another-token-than-its-operators")
    status, _, err = baton("server", "remove", "alpha.s9", "--dir", str(tmp_path))
    assert (status, "token" in err) == (1, True), err
    assert baton("server", "remove", "alpha.s9")[0] == 2, "without a directory it has to be said which is meant"


@pytest.mark.parametrize("group", ["tree", "cluster"])
def test_help_teaches(baton: Baton, group: str) -> None:
    out = baton(group, "--help")[1]
    assert f"export BATON_{'TOKEN' if group == 'tree' else 'OPERATOR_TOKEN'}_FILE" in out
    assert baton(group, "get" if group == "tree" else "status", "--help")[0] == 0


RECOVERIES: dict[str, Any] = {
    "waiting": [
        {"entity": "alpha.a", "last": "alpha.s1", "epoch": 4, "target": "", "held": False, "disk": True},
        {"entity": "alpha.b", "last": "alpha.s1", "epoch": 4, "target": "", "held": True, "disk": True},
        {"entity": "alpha.c", "last": "alpha.s1", "epoch": 4, "target": "", "held": False, "disk": False},
        {"entity": "alpha.d", "last": "alpha.s1", "epoch": 5, "target": "alpha.s2", "held": False, "disk": False},
        {
            "entity": "alpha.f",
            "last": "alpha.s1",
            "epoch": 5,
            "target": "",
            "held": False,
            "disk": False,
            "standing": "lost",
        },
    ],
    "recent": [
        {
            "entity": "alpha.e",
            "last": "alpha.s1",
            "target": "alpha.s2",
            "epoch": 3,
            "tick": 1234,
            "source": "follower",
            "at_s": 0,
        }
    ],
    "counts": {"taken": 5, "recovered": 1},
    "log_went_back": "",
    "foreign_custody": [
        {"instance": "beta", "entities": {"beta.s1": 2}, "reason": "home_unreachable", "silent_since_s": 0.0},
        {"instance": "gamma", "entities": {"gamma.s1": 1}, "reason": "", "silent_since_s": None},
    ],
}


def test_recoveries_say_what_is_waited_for(baton: Baton, monkeypatch: pytest.MonkeyPatch) -> None:
    view = {
        **RECOVERIES,
        "waiting": [{"tick": 7, "abroad": ["beta"], "abroad_too": [], **row} for row in RECOVERIES["waiting"]],
    }
    monkeypatch.setattr(RemoteServer, "call", lambda *_: view)
    status, out, _ = baton("recoveries")
    assert status == 0
    for said in (
        "5 wait to be taken over", "the disk of alpha.s1", "the return of alpha.s1", "copies, here and in beta",
        "any copy: no server that is alive has one",
        "alpha.s2, which is told to take it over from tick 7", "1,234", "1970-01-01 00:00:00+00:00",
        "recovered 1, taken 5",
        "beta cannot be asked since 1970-01-01 00:00:00+00:00 (home_unreachable); 2 on beta.s1",
        "gamma has 1 on gamma.s1 of this instance's entities",
    ):  # fmt: skip
        assert said in out
    assert json.loads(baton("recoveries", "--json")[1]) == view
    assert "alpha.b" not in baton("recoveries", "--limit", "1")[1]


def test_where_nobody_died_nothing_waits(baton: Baton) -> None:
    assert baton("recoveries")[:2] == (0, "nothing waits to be taken over\n")
    assert "baton server remove SERVER" in baton("recoveries", "--help")[1]


def test_recoveries_and_the_status_of_a_cluster_say_that_the_log_went_back_and_what_to_do(
    baton: Baton, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = RemoteServer.call
    why = "alpha.s1 proves that the log was at revision 7"
    for command in (["recoveries"], ["cluster", "status"]):
        assert "log_went_back" not in baton(*command)[1]

    def went_back(*args: Any, **more: Any) -> Any:
        return cluster(*args, **more) | {"log_went_back": why}

    monkeypatch.setattr(RemoteServer, "call", went_back)
    for command in (["recoveries"], ["cluster", "status"]):
        status, out, _ = baton(*command)
        assert (status, f"log_went_back: no leases are granted and nothing is written: {why}" in out) == (0, True)
        assert "what to do: put the newer log back" in out
        assert "baton cluster accept-loss" in out


WHY: dict[str, Any] = {
    "entity": "alpha.ball-1",
    "runs": False,
    "cause": "frozen",
    "text": "alpha.s1 hands it over, phase requested: its home instance has not decided yet",
    "remedy": "see to that server",
    "authority": "alpha.s1",
    "epoch": 4,
    "sub": 0,
    "transfer_id": "transfer-1",
    "phase": "requested",
    "since_s": 2.5,
    "told_by": "alpha.h1",
}


def test_why_says_in_a_line_each_what_the_cause_is_and_what_to_do(
    baton: Baton, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def call(_server: RemoteServer, *args: Any) -> Any:
        asked.append(args)
        return WHY

    monkeypatch.setattr(RemoteServer, "call", call)
    assert baton("why", "alpha.ball-1") == (
        1,
        "alpha.ball-1 does not run: frozen, transfer transfer-1, for 2.5 s (epoch 4, as alpha.h1 sees it)\n"
        f"cause:  {WHY['text']}\n"
        "remedy: see to that server\n",
        "",
    )
    assert asked == [("GET", "/v1/entities/alpha.ball-1/why")]
    status, out, _ = baton("why", "alpha.ball-1", "--json")
    assert (status, json.loads(out)) == (1, WHY)
    monkeypatch.setattr(RemoteServer, "call", lambda *_: WHY | {"runs": True, "transfer_id": "", "since_s": None})
    status, out, _ = baton("why", "alpha.ball-1")
    assert (status, out.splitlines()[0]) == (0, "alpha.ball-1 runs (epoch 4, as alpha.h1 sees it)")
    assert baton("why", "alpha.ball-1", "--json")[0] == 0


def test_the_exit_status_of_why_says_whether_it_runs_was_asked_wrongly_or_could_not_be_asked(baton: Baton) -> None:
    status, out, _ = baton("why", "alpha.nobody")
    assert (status, out.splitlines()[0]) == (1, "alpha.nobody does not run: not_known (epoch 0, as alpha.h1 sees it)")
    assert baton("why", "beta.ball-1")[0] == 1, "another instance is its home"
    assert "wrong_home" in baton("why", "beta.ball-1")[2]
    assert baton("why", "no name")[0] == 2
    assert baton("why", "alpha.ball-1", "--url", "http://127.0.0.1:1")[0] == 3
    help_text = baton("why", "--help")[1]
    assert all(cause.value in help_text for cause in Cause)
    for line in ("0  the entity runs", "1  it does not", "2  wrong usage", "3  the homeserver cannot be reached"):
        assert line in help_text
