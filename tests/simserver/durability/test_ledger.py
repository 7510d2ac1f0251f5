"""The ledger: what a server held is known after its end, whatever the end was."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import trio

from batonpass.authority.fence import Fence
from batonpass.simserver.durability import ledger as module
from batonpass.simserver.durability.ledger import MAX_WRITE_BYTES, Interrupted, Ledger
from batonpass.tree import DirectoryInUse


@asynccontextmanager
async def running(directory: Path) -> AsyncIterator[Ledger]:
    ledger = Ledger("alpha.s1", directory)
    async with trio.open_nursery() as nursery:
        await nursery.start(ledger.serve)
        yield ledger
        nursery.cancel_scope.cancel()


async def test_a_new_server_was_not_interrupted(tmp_path: Path) -> None:
    async with running(tmp_path) as ledger:
        assert ledger.interrupted == ()
        assert list(ledger.moved()) == []


async def test_what_lived_here_is_known_at_the_next_start_and_what_left_is_not_among_it(tmp_path: Path) -> None:
    async with running(tmp_path) as ledger:
        ledger.lives("alpha.a", "ball", Fence(1))
        ledger.lives("alpha.b", "ball", Fence(3, 2))
        ledger.lives("alpha.c", "ball", Fence(4))
        ledger.lives("alpha.d", "ball", Fence(9), since=5)
        ledger.left("alpha.a", "alpha.s2", Fence(2))
        await ledger.flush()
        ledger.forget("alpha.c")
        await ledger.flush()
    async with running(tmp_path) as ledger:
        assert ledger.interrupted == (Interrupted("alpha.b", "ball", 3, 2, 3), Interrupted("alpha.d", "ball", 9, 0, 5))
        ledger.left("alpha.d", "alpha.s2", Fence(10))
        assert list(ledger.moved()) == [("alpha.a", "alpha.s2", Fence(2))]
        ledger.left("alpha.b", "alpha.s3", Fence(4))
        await ledger.flush()
    async with running(tmp_path) as ledger:
        assert ledger.interrupted == ()


async def test_the_latest_word_on_an_entity_counts_however_much_is_noted_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_ROWS_PER_WRITE", 3)
    async with running(tmp_path) as ledger:
        for number in range(10):
            ledger.lives(f"alpha.e{number}", "ball", Fence(1))
            ledger.left(f"alpha.e{number}", "alpha.s2", Fence(2))
        await ledger.flush()
        assert {moved_to for _, moved_to, _ in ledger.moved()} == {"alpha.s2"}
        assert ledger.replica.store.count_children(("entities",)) == 10


async def test_what_happens_within_a_moment_is_one_write_and_nobody_who_waits_for_it_waits_for_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LINGER_S", 3600.0)
    async with running(tmp_path) as ledger:
        before = ledger.replica.applied_index
        for number in range(10):
            ledger.lives(f"alpha.e{number}", "ball", Fence(1))
            await trio.testing.wait_all_tasks_blocked()
        assert ledger.replica.applied_index == before
        with trio.fail_after(90):
            await ledger.flush()
        assert ledger.replica.applied_index == before + 1


async def test_two_servers_cannot_write_one_ledger(tmp_path: Path) -> None:
    async with running(tmp_path):
        with pytest.RaisesGroup(DirectoryInUse, flatten_subgroups=True):
            async with running(tmp_path):
                raise AssertionError("it must not start")


async def test_who_is_stopped_writes_down_what_lives_here_and_who_is_killed_before_it_has_begun_does_not(
    tmp_path: Path,
) -> None:
    async def stopped(tick: int, *, early: bool) -> tuple[Fence, int, bytes] | None:
        """A life of a server that has this tick when it is stopped; what it knew at its beginning."""
        ledger, known = Ledger("alpha.s1", tmp_path), list[tuple[Fence, int, bytes] | None]()

        def opened() -> None:
            known.append(ledger.checkpoint_of("alpha.ball"))
            if early:
                raise RuntimeError("something else is wrong")

        def closing() -> None:
            ledger.checkpoint("alpha.ball", Fence(1), tick, b"state")

        with suppress(BaseExceptionGroup):
            async with trio.open_nursery() as nursery:
                await nursery.start(ledger.serve_to_the_end, opened, closing)
                ledger.lives("alpha.ball", "ball", Fence(1))
                nursery.cancel_scope.cancel()
        return known[0]

    assert await stopped(7, early=False) is None
    assert await stopped(8, early=True) == (Fence(1), 7, b"state")
    assert await stopped(9, early=False) == (Fence(1), 7, b"state")


async def test_whoever_leaves_takes_its_checkpoint_along_also_one_of_an_earlier_life(tmp_path: Path) -> None:
    async with running(tmp_path) as ledger:
        for name in ("alpha.a", "alpha.b", "alpha.c"):
            ledger.checkpoint(name, Fence(1), 1, b"state")
        await ledger.flush()
        ledger.left("alpha.a", "alpha.s2", Fence(2))
        await ledger.flush()
    early = Ledger("alpha.s1", tmp_path)
    # Before it has been read nobody knows whether there is one.
    early.left("alpha.b", "alpha.s2", Fence(2))
    early.checkpoint("alpha.d", Fence(1), 1, b"state")
    async with trio.open_nursery() as nursery:
        await nursery.start(early.serve)
        early.left("alpha.c", "alpha.s2", Fence(2))
        early.left("alpha.d", "alpha.s2", Fence(2))
        await early.flush()
        nursery.cancel_scope.cancel()
    async with running(tmp_path) as ledger:
        assert {name: ledger.checkpoint_of(f"alpha.{name}") for name in "abcd"} == dict.fromkeys("abcd")


async def test_no_checkpoint_is_deleted_where_none_is(tmp_path: Path) -> None:
    async with running(tmp_path) as ledger:
        ledger.checkpoint("alpha.a", Fence(1), 1, b"state")
        for name in ("alpha.a", "alpha.b"):
            ledger.left(name, "alpha.s2", Fence(2))
        assert [path for path, row in ledger._unwritten.items() if row is None] == [("checkpoints", "alpha.a")]
        await ledger.flush()
        ledger.left("alpha.a", "alpha.s3", Fence(3))
        assert list(ledger._unwritten) == [("entities", "alpha.a")]


LARGE = bytes(MAX_WRITE_BYTES + 1)


async def test_a_checkpoint_of_any_size_is_there_after_a_restart_and_the_last_one_counts(tmp_path: Path) -> None:
    async with running(tmp_path) as ledger:
        for entity in ("alpha.a", "alpha.b", "alpha.c"):
            ledger.lives(entity, "ball", Fence(1))
            assert ledger.checkpoint(entity, Fence(1), 1, LARGE)
        await ledger.flush()
        # One becomes small, one grows, one leaves.
        assert ledger.checkpoint("alpha.a", Fence(1), 2, b"small")
        assert ledger.checkpoint("alpha.b", Fence(1), 2, b"small")
        await ledger.flush()
        assert ledger.checkpoint("alpha.b", Fence(1), 3, LARGE + b"!")
        ledger.left("alpha.c", "alpha.s2", Fence(2))
        await ledger.flush()
    async with running(tmp_path) as ledger:
        assert ledger.checkpoint_of("alpha.a") == (Fence(1), 2, b"small")
        assert ledger.checkpoint_of("alpha.b") == (Fence(1), 3, LARGE + b"!")
        assert ledger.checkpoint_of("alpha.c") is None
    assert [path.name for path in (tmp_path / "large").iterdir()] == ["alpha.b.checkpoint"]


async def test_a_large_checkpoint_that_is_damaged_is_set_aside_and_half_a_one_never_counts(tmp_path: Path) -> None:
    async with running(tmp_path) as ledger:
        ledger.checkpoint("alpha.a", Fence(1), 1, LARGE)
        await ledger.flush()
    path = tmp_path / "large" / "alpha.a.checkpoint"
    path.with_name("alpha.b.checkpoint.new").write_bytes(b"half")
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    async with running(tmp_path) as ledger:
        assert ledger.checkpoint_of("alpha.a") is None
        assert ledger.checkpoint_of("alpha.b") is None
    assert [path.name for path in (tmp_path / "large").iterdir()] == ["alpha.a.checkpoint.bad"]


async def test_large_checkpoints_that_wait_for_the_disk_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_UNWRITTEN_BYTES", 2 * len(LARGE))
    async with running(tmp_path) as ledger:
        kept = [ledger.checkpoint(f"alpha.e{number}", Fence(1), 1, LARGE) for number in range(3)]
        assert kept == [True, True, False]
        await ledger.flush()
        assert ledger.checkpoint("alpha.e2", Fence(1), 1, LARGE)


@pytest.mark.parametrize("state", [b"state", LARGE], ids=["small", "large"])
async def test_failures_row_42_there_is_never_neither_what_left_nor_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: bytes
) -> None:
    """Whenever the power goes: what was noted of it before has its place in the queue, and so has a large one."""
    monkeypatch.setattr(module, "MAX_ROWS_PER_WRITE", 1)
    monkeypatch.setattr(module, "LINGER_S", 0.0)
    async with running(tmp_path) as ledger:
        ledger.lives("alpha.a", "ball", Fence(1))
        ledger.checkpoint("alpha.a", Fence(1), 1, state)
        await ledger.flush()
        ledger.lives("alpha.a", "ball", Fence(1))
        ledger.checkpoint("alpha.a", Fence(1), 2, state)
        assert ledger.handed_over("alpha.a", Fence(1), 7, state)
        ledger.left("alpha.a", "alpha.s2", Fence(2))
        while True:
            is_kept = [entity for entity, *_ in ledger.all_handed_over()] == ["alpha.a"]
            lives = ledger._find_interrupted() != () and ledger.checkpoint_of("alpha.a") is not None
            assert is_kept or lives
            if not ledger.unwritten:
                break
            await ledger._write()
        assert (is_kept, lives) == (True, False)


async def test_what_left_does_not_wait_until_nothing_else_is_to_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LINGER_S", 3600.0)
    async with running(tmp_path) as ledger:
        ledger.handed_over("alpha.a", Fence(1), 7, LARGE)
        for number in range(3):
            ledger.lives(f"alpha.e{number}", "ball", Fence(1))
            await ledger._write()
        assert [entity for entity, *_ in ledger.all_handed_over()] == ["alpha.a"]
        assert len(ledger._find_interrupted()) >= 1, "nor do others wait until none is left"


async def test_failures_row_42_what_left_is_kept_over_restarts_until_it_is_let_go_whatever_its_size(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as ledger:
        for name, state in (("alpha.a", b"state"), ("alpha.b", LARGE), ("alpha.c", LARGE), ("alpha.d", b"state")):
            ledger.lives(name, "ball", Fence(1))
            ledger.checkpoint(name, Fence(1), 1, b"before")
            assert ledger.handed_over(name, Fence(1), 7, state)
            ledger.left(name, "alpha.s2", Fence(2))
        assert ledger.unwritten > 0
        await ledger.flush()
        assert ledger.unwritten == 0
    async with running(tmp_path) as ledger:
        kept = {name: (fence, tick, state) for name, fence, tick, state in ledger.all_handed_over()}
        assert kept == {f"alpha.{name}": (Fence(1), 7, LARGE if name in "bc" else b"state") for name in "abcd"}
        assert {name: ledger.checkpoint_of(name) for name in kept} == dict.fromkeys(kept)
        ledger.let_go("alpha.a")
        ledger.let_go("alpha.b")
        # Its state has become small.
        assert ledger.handed_over("alpha.c", Fence(3), 9, b"small")
        await ledger.flush()
    async with running(tmp_path) as ledger:
        kept = {name: (fence, tick, state) for name, fence, tick, state in ledger.all_handed_over()}
        assert kept == {"alpha.c": (Fence(3), 9, b"small"), "alpha.d": (Fence(1), 7, b"state")}


async def test_whoever_flushes_waits_for_what_was_noted_before_and_not_for_what_is_noted_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a server that moves hundreds of entities a second something always waits for the disk."""
    async with running(tmp_path) as ledger, trio.open_nursery() as nursery:
        submit, noted = ledger.replica.submit, 0

        async def while_others_note(*args: object) -> object:
            nonlocal noted
            noted += 1
            ledger.lives(f"alpha.other-{noted}", "ball", Fence(1))
            ledger.lives("alpha.busy", "ball", Fence(noted))
            return await submit(*args)  # type: ignore[arg-type]

        monkeypatch.setattr(ledger.replica, "submit", while_others_note)
        ledger.lives("alpha.busy", "ball", Fence(1))
        for number in range(20):
            ledger.lives(f"alpha.e{number}", "ball", Fence(7))
            with trio.fail_after(90):
                await ledger.flush()
            assert ledger.replica.store.get(("entities", f"alpha.e{number}"))["epoch"] == 7
            assert ledger.replica.store.exists(("entities", "alpha.busy"))
            assert ledger.unwritten, "there is something again"
        nursery.cancel_scope.cancel()


async def test_failures_row_42_who_stays_after_a_refusal_is_found_after_a_restart_though_its_first_fence_is_given_up(
    tmp_path: Path,
) -> None:
    """Its checkpoint is under the fence that the refusal raised, of which there is no row."""
    async with running(tmp_path) as ledger:
        ledger.lives("alpha.a", "ball", Fence(3), since=2)
        ledger.checkpoint("alpha.a", Fence(4), 77, b"state")
        ledger.lives("alpha.b", "ball", Fence(3))
        ledger.left("alpha.c", "alpha.s2", Fence(3))
        ledger.lives("alpha.d", "ball", Fence(9))
        await ledger.flush()
        ledger.give_up({"alpha.a": {Fence(4)}, "alpha.b": (), "alpha.c": {Fence(5)}, "alpha.d": {Fence(2)}})
        await ledger.flush()
        assert list(ledger.moved()) == []
    async with running(tmp_path) as ledger:
        assert ledger.interrupted == (Interrupted("alpha.a", "ball", 4, 0, 2),)
        assert ledger.checkpoint_of("alpha.a") == (Fence(4), 77, b"state")
