"""`baton put-aside` on the disk of a simulation server, and on what is none."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from batonpass.authority.fence import Fence
from batonpass.authority.machines.replica_choice import Copy
from batonpass.authority.model.standing import CopySource
from batonpass.simserver.durability.put_aside import Aside, PutAside
from tests.scenarios.commands import Baton, baton_command

BALL = "alpha.ball-1"


@pytest.fixture
def baton(capsys: pytest.CaptureFixture[str]) -> Baton:
    return baton_command(capsys)


def nothing(_directory: Path) -> None: ...


def of_a_homeserver(directory: Path) -> None:
    (directory / "tree").mkdir()
    (directory / "keys.json").write_text("{}")


def one_level_too_high(directory: Path) -> None:
    (directory / "state").mkdir()
    (directory / "state" / "lease.json").write_text("{}")


@pytest.mark.parametrize("fill", [nothing, of_a_homeserver, one_level_too_high])
@pytest.mark.parametrize("more", [(), ("--entity", BALL), ("--json",)])
def test_a_directory_of_no_simulation_server_is_refused_in_one_line(
    baton: Baton, tmp_path: Path, fill: Callable[[Path], None], more: tuple[str, ...]
) -> None:
    fill(tmp_path)
    sentence = f"{tmp_path} is not where a simulation server keeps its state: give its `directory`"
    assert baton("put-aside", "--dir", str(tmp_path), *more) == (3, "", f"baton: {sentence}\n")


def test_what_is_no_directory_is_wrong_usage(baton: Baton, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for name, sentence in (("file", "is a file"), ("missing", "does not exist")):
        status, out, err = baton("put-aside", "--dir", str(tmp_path / name))
        assert (status, out, err.count("\n"), sentence in err) == (2, "", 1, True)


def test_a_server_that_gave_nothing_up_has_nothing_put_aside(baton: Baton, tmp_path: Path) -> None:
    (tmp_path / "lease.json").write_text("{}")
    assert baton("put-aside", "--dir", str(tmp_path), "--json") == (0, "", "")
    status, out, err = baton("put-aside", "--dir", str(tmp_path), "--entity", BALL)
    assert (status, out, err) == (3, "", f"baton: nothing of {BALL} is put aside in {tmp_path / 'put_aside'}\n")


def test_what_was_put_aside_is_shown_of_all_and_with_its_state_of_one(baton: Baton, tmp_path: Path) -> None:
    copy = Copy(Fence(3, 1), 7, b"state", "0" * 64, CopySource.OWN)
    PutAside(tmp_path / "put_aside").keep([Aside.of(entity, copy, 0.0, "not its own") for entity in (BALL, "alpha.b")])
    status, out, _ = baton("put-aside", "--dir", str(tmp_path), "--json")
    assert (status, [json.loads(line)["entity"] for line in out.splitlines()]) == (0, ["alpha.b", BALL])
    assert "state" not in json.loads(out.splitlines()[0])
    (line,) = baton("put-aside", "--dir", str(tmp_path), "--json", "--entity", BALL)[1].splitlines()
    assert bytes.fromhex(json.loads(line)["state"]) == b"state"
    shown = baton("put-aside", "--dir", str(tmp_path), "--entity", BALL)[1]
    assert "3.1: not its own\nthe state cannot be read" in shown
