"""Logs and snapshots of the earlier release: opened, they are the same tree; applied, they give the same answers."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from batonpass.authority.procedures.table import PROCEDURES
from batonpass.homeserver.log.store import replicated_procedures
from batonpass.tree import Member, NodeView, Replica, ReplicaConfig, Store, parse_pattern
from batonpass.tree.data.data import decode, encode
from batonpass.tree.machine.commands import CommandAnswer, Machine
from batonpass.tree.store.export import export
from batonpass.tree.store.procedures import BUILT_IN
from tests.earlier_release.vectors import neutral, recorded, unpacked

LOG: Final = recorded("log")
DEADLINE_S: Final = 60.0
COMMANDS: Final = b"\0"
"""How an entry of Raft's log begins that holds commands; others are about members, or nothing."""
NEWER: Final[frozenset[str]] = frozenset(
    {
        *("invitation.make", "invitation.revoke", "player.enrol", "player.grant", "player.remove"),
        "entity.each",
        *("regions.set", "regions.end", "region.split", "region.merge", "region.move"),
    }
)
"""Procedures that the earlier release did not have."""


def sizes(table: dict[Any, Any], path: tuple[str, ...], _before: NodeView | None, after: NodeView | None) -> None:
    """The projection that the recorded member declared."""
    if after is None or after.encoded is None:
        table.pop(path, None)
    else:
        table[path] = len(after.encoded)


def exported(store: Store) -> Any:
    return neutral(list(export(store, parse_pattern("**"))))


def same(encoded: str, found: bytes) -> None:
    """Two answers to one command. A refusal has the same code and details; its sentence is for people."""
    if found.hex() == encoded:
        return
    before, now = CommandAnswer.from_encoded(bytes.fromhex(encoded)), CommandAnswer.from_encoded(found)
    assert before.code is not None
    assert (now.code, neutral(now.value), neutral(now.details)) == (
        before.code,
        neutral(before.value),
        neutral(before.details),
    )


def apply(machine: Machine, entry: bytes, answers: list[dict[str, Any]]) -> None:
    given = machine.apply_entry(entry)
    assert [command for command, _ in given] == [(one["client"], one["number"]) for one in answers]
    for one, (_, answer) in zip(answers, given, strict=True):
        same(one["encoded"], answer)


def test_the_log_of_a_homeserver_gives_the_same_answers_and_the_same_tree() -> None:
    log, machine = LOG["homeserver"], Machine(replicated_procedures())
    for row in log["entries"]:
        entry = bytes.fromhex(row["entry"])
        if entry[:1] == COMMANDS:
            apply(machine, entry[1:], row["answers"])
    assert exported(machine.store) == log["export"]
    assert machine.store.revision == log["revision"]


def test_the_log_of_a_tree_gives_the_same_answers_and_the_same_tree() -> None:
    log, machine = LOG["member"], Machine(replicated_procedures(), {"sizes": sizes})
    for row in log["entries"]:
        apply(machine, bytes.fromhex(row["entry"]), row["answers"])
    assert neutral(machine.store.to_data()) == log["store"]
    assert machine.registrations().hex() == log["registrations"]


@pytest.mark.parametrize("walk", [pytest.param(walk["commands"], id=walk["test"]) for walk in LOG["walks"]])
def test_commands_give_the_same_answers(walk: list[tuple[str, str]]) -> None:
    machine = Machine(replicated_procedures())
    for command, answer in walk:
        same(answer, machine.apply(bytes.fromhex(command))[1])


def carried_out() -> Iterator[str]:
    """The procedure of every recorded command that was not refused."""
    recordings = [(bytes.fromhex(command), answer) for walk in LOG["walks"] for command, answer in walk["commands"]]
    for row in LOG["homeserver"]["entries"] + LOG["member"]["entries"]:
        answers = [one["encoded"] for one in row.get("answers", [])]
        entry = decode(bytes.fromhex(row["entry"]).removeprefix(COMMANDS)) if answers else []
        recordings += zip(map(encode, entry), answers, strict=True)
    for command, answer in recordings:
        if CommandAnswer.from_encoded(bytes.fromhex(answer)).ok:
            yield decode(command)[0]


def test_every_procedure_was_recorded_where_it_was_carried_out() -> None:
    registrations = {f"tree.{name}" for name in ("register_trigger", "unregister_trigger", "trigger_done", "triggers")}
    registrations |= {f"tree.{name}" for name in ("register_projection", "unregister_projection", "projections", "run")}
    assert {*PROCEDURES, *BUILT_IN, *registrations} - NEWER <= set(carried_out())


@asynccontextmanager
async def opened(directory: Path, kind: str, name: str) -> AsyncIterator[Replica]:
    """The only member of an instance, as it goes on from what is on its disk."""
    config = ReplicaConfig(
        kind=kind,
        instance="alpha",
        name=name,
        members=(Member(name, "127.0.0.1", 0),),
        directory=directory,
        secret=b"sixteen bytes or more",
    )
    replica = Replica(config, replicated_procedures(), projections={"sizes": sizes})
    async with trio.open_nursery() as nursery:
        await nursery.start(replica.serve)
        await replica.read_barrier(timeout_s=DEADLINE_S)
        yield replica
        nursery.cancel_scope.cancel()


async def test_a_member_with_a_journal_has_the_same_tree(tmp_path: Path) -> None:
    directory = unpacked("cluster", tmp_path) / "alpha.h1" / "state" / "raft"
    async with opened(directory, "homeserver", "alpha.h1") as replica:
        assert exported(replica.store) == LOG["homeserver"]["export"]


async def test_a_member_with_a_snapshot_has_the_same_tree_triggers_and_projections(tmp_path: Path) -> None:
    directory = unpacked("member", tmp_path)
    async with opened(directory, "test", "alpha.m1") as replica:
        log = LOG["member"]
        assert exported(replica.store) == log["export"]
        assert [[list(path), size] for path, size in sorted(replica.projection("sizes").items())] == log["projection"]
        assert len(replica.pending_triggers()) == log["triggers_pending"]
        async with replica.watch(parse_pattern("after/*"), log["revision"]) as watch:
            await replica.submit("tree.put", {"path": ["after", "more"], "data": "written now"})
            with trio.fail_after(DEADLINE_S):
                seen = await anext(watch)
        assert (seen.path, seen.revision) == (("after", "more"), log["revision"] + 1)
