"""The key directory in the log: a name belongs to whoever registered it first."""

import pytest

from batonpass.authority.errors import Reason
from batonpass.authority.model.records import Role
from batonpass.authority.procedures import directory as directory_procedures
from tests.authority.log import HOMESERVER, S1, Log
from tests.authority.rows import directory_row


def test_registering_pins_keys_to_a_name(log: Log) -> None:
    row = directory_row("alpha.s9", link_host="127.0.0.1", link_port=7)
    assert log.run("directory.register", row=row.to_data()) == row.to_data()
    assert log.rows.get_or(("servers", "alpha.s9"), None) == row.to_data()


def test_registering_the_same_again_changes_nothing(log: Log) -> None:
    row = directory_row(S1).to_data()
    assert log.run("directory.register", row=row) == log.run("directory.register", row=row) == row


def test_the_same_keys_may_move_and_each_move_is_a_revision(log: Log) -> None:
    moved = directory_row(S1, rest_url="http://127.0.0.1:1", link_port=2)
    assert log.run("directory.register", row=moved.to_data())["revision"] == 2
    assert log.run("directory.register", row=moved.to_data())["revision"] == 2
    assert log.run("directory.register", row=directory_row(S1).to_data())["revision"] == 3


def test_other_keys_are_refused(log: Log) -> None:
    log.refuses(Reason.KEY_CONFLICT, "directory.register", row=directory_row(S1, keys={"keys": ["other"]}).to_data())


def test_another_role_is_refused_even_with_the_same_keys(log: Log) -> None:
    for role in (Role.HOMESERVER, Role.PLAYER):
        log.refuses(Reason.KEY_CONFLICT, "directory.register", row=directory_row(S1, role).to_data())


def test_players_have_a_table_of_their_own_and_no_name_of_a_server(log: Log) -> None:
    ada = directory_row("alpha.ada", Role.PLAYER)
    log.run("directory.register", row=ada.to_data())
    assert log.rows.get_or(("players", "alpha.ada"), None) == ada.to_data()
    log.refuses(Reason.KEY_CONFLICT, "directory.register", row=directory_row("alpha.ada").to_data())


@pytest.mark.parametrize(("role", "bound"), [(Role.SIMSERVER, "MAX_SERVERS"), (Role.PLAYER, "MAX_PLAYERS")])
def test_the_directory_is_bounded_and_who_is_in_it_stays(
    log: Log, role: Role, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.run("directory.register", row=directory_row("alpha.x1", role).to_data())
    table = "players" if role is Role.PLAYER else "servers"
    monkeypatch.setattr(directory_procedures, bound, log.rows.count_children((table,)))
    log.refuses(Reason.FULL, "directory.register", row=directory_row("alpha.x2", role).to_data())
    assert log.run("directory.register", row=directory_row("alpha.x1", role, link_port=9).to_data())["link_port"] == 9


def test_homeservers_stand_among_the_servers(log: Log) -> None:
    assert log.rows.get_or(("servers", HOMESERVER), {})["role"] == "homeserver"


def test_the_log_keeps_what_a_later_version_says_in_a_row(log: Log) -> None:
    """Members of different versions apply the same commands, and must come to the same tree."""
    row = directory_row(S1).to_data() | {"colour": "red"}
    assert log.run("directory.register", row=row)["colour"] == "red"
    assert log.run("directory.register", row=row | {"link_port": 7})["colour"] == "red"
    assert log.rows.get_or(("servers", S1), {})["colour"] == "red"


# Keys that follow on others


def later(version: int, follows: object = None) -> dict[str, object]:
    row = directory_row(S1, keys={"keys": [f"version {version}"]}, version=version, statements=("a", "b"))
    return {"row": row.to_data(), "follows": follows}


def test_keys_that_have_been_seen_to_follow_on_those_that_stand_here_take_their_place(log: Log) -> None:
    row = log.run("directory.register", **later(2, follows=1))
    assert (row["version"], row["revision"], row["statements"]) == (2, 2, ["a", "b"])
    assert log.run("directory.register", **later(5, follows=2))["version"] == 5
    assert log.run("directory.register", **later(5))["revision"] == 3


def test_what_was_seen_to_follow_on_an_earlier_version_is_refused(log: Log) -> None:
    log.run("directory.register", **later(2, follows=1))
    for version, follows in ((3, 1), (3, None), (3, 0), (1, 2), (2, 2)):
        args = later(version, follows)
        if (version, follows) == (2, 2):
            args["row"] = directory_row(S1, keys={"keys": ["others"]}, version=2).to_data()
        log.refuses(Reason.KEY_CONFLICT, "directory.register", **args)


def test_the_same_keys_keep_their_version_whatever_is_claimed(log: Log) -> None:
    log.run("directory.register", **later(2, follows=1))
    claimed = directory_row(S1, keys={"keys": ["version 2"]}, version=7, link_port=9)
    row = log.run("directory.register", row=claimed.to_data())
    assert (row["version"], row["statements"], row["link_port"]) == (2, ["a", "b"], 9)
