"""Who may read locally, and which way a command takes: the bookkeeping of a member, without network."""

import subprocess
import sys
from collections.abc import Callable
from functools import partial

import pytest

from batonpass.tree.data.data import decode
from batonpass.tree.machine.commands import Command, encode_command
from batonpass.tree.member.deadlines import WakeTimes
from batonpass.tree.raft.reads import MAX_WAITING_READS, ReadRounds
from batonpass.tree.raft.submissions import FORWARD_AGAIN_S, MAX_ENTRY_BYTES, MAX_ENTRY_COMMANDS, Submissions

H1_LEADS = ("h1", 4, 1)
OTHERS = ("h1", "h2")


def test_a_member_alone_confirms_itself() -> None:
    reads, indices = ReadRounds(), list[int]()
    reads.ask(indices.append)
    assert reads.begin(7, ()) is None, "there is nobody to ask"
    assert indices == [7]


def test_a_read_waits_for_a_majority_and_gets_the_index_noted_at_the_beginning() -> None:
    reads, indices = ReadRounds(), list[int]()
    reads.ask(indices.append)
    number = reads.begin(7, ("h1", "h2", "h3", "h4"))
    assert number is not None
    reads.confirm("h1", number)
    reads.confirm("h1", number)
    assert indices == [], "one member counts once"
    reads.confirm("h2", number)
    assert indices == [7]


@pytest.mark.parametrize(("others", "needed"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (6, 3)])
def test_of_an_even_number_of_voters_half_are_no_majority(others: int, needed: int) -> None:
    """With the leader itself: of four voters three, of five three."""
    reads, indices = ReadRounds(), list[int]()
    names = tuple(f"h{number}" for number in range(2, 2 + others))
    reads.ask(indices.append)
    number = reads.begin(7, names)
    assert number is not None
    for confirmed, name in enumerate(names[:needed], start=1):
        reads.confirm(name, number)
        assert bool(indices) == (confirmed == needed)


def test_a_round_begins_anew_when_the_voters_change_and_strangers_do_not_count() -> None:
    reads, indices = ReadRounds(), list[int]()
    reads.ask(indices.append)
    first = reads.begin(7, ("h1", "h2"))
    second = reads.begin(8, ("h1", "h3"))
    assert first is not None
    assert second is not None
    reads.confirm("h1", first)
    reads.confirm("h2", second)
    assert indices == []
    reads.confirm("h3", second)
    assert indices == [8]


def test_reads_that_come_during_a_round_wait_for_the_next_one() -> None:
    reads, first, second = ReadRounds(), list[int](), list[int]()
    reads.ask(first.append)
    number = reads.begin(7, OTHERS)
    assert number is not None
    reads.ask(second.append)
    assert reads.begin(8, OTHERS) is None
    assert reads.under_way() == number
    reads.confirm("h1", number)
    assert (first, second) == ([7], [])
    following = reads.begin(9, OTHERS)
    assert following is not None
    reads.confirm("h1", number)
    assert second == [], "a confirmation of an earlier round says nothing about this one"
    reads.confirm("h1", following)
    assert second == [9]


def test_a_leader_that_lost_its_office_confirms_nothing() -> None:
    reads, indices = ReadRounds(), list[int]()
    reads.ask(indices.append)
    number = reads.begin(7, OTHERS)
    assert number is not None
    reads.forget()
    reads.confirm("h1", number)
    assert indices == []
    assert reads.under_way() is None


def test_waiting_reads_are_bounded() -> None:
    reads = ReadRounds()
    assert all(reads.ask(lambda _: None) for _ in range(MAX_WAITING_READS))
    assert not reads.ask(lambda _: None)


def given_commands(submissions: Submissions) -> list[bytes]:
    return [submission.command for submission in submissions.hand_over(lambda _: True)]


async def test_a_command_is_handed_over_once_per_route() -> None:
    submissions = Submissions()
    submission = submissions.enter(("c", 1), b"command")
    submissions.take_route(H1_LEADS)
    assert given_commands(submissions) == [b"command"]
    submissions.take_route(H1_LEADS)
    assert given_commands(submissions) == []
    submissions.take_route(("h1", 5, 1))
    assert given_commands(submissions) == [b"command"], "a new term"
    submissions.take_route(None)
    submissions.take_route(("h1", 5, 2))
    assert given_commands(submissions) == [b"command"], "a new connection"
    submissions.answered(("c", 1), b"answer")
    assert submission.answer == b"answer"


async def test_what_is_not_taken_waits_and_was_not_handed_over() -> None:
    submissions = Submissions()
    submission = submissions.enter(("c", 1), b"command")
    submissions.hand_over(lambda _: False)
    assert not submission.handed_over
    assert given_commands(submissions) == [b"command"]
    assert submission.handed_over


async def test_a_forwarded_command_is_repeated_after_a_while() -> None:
    submissions, sent = Submissions(), list[bytes]()

    def give(command: bytes) -> bool:
        sent.append(command)
        return True

    submissions.enter(("c", 1), b"command")
    submissions.take_route(H1_LEADS)
    submissions.forward(give, now_s=100.0)
    submissions.forward(give, now_s=100.0 + FORWARD_AGAIN_S / 2)
    assert len(sent) == 1
    submissions.forward(give, now_s=100.0 + 3 * FORWARD_AGAIN_S)
    assert len(sent) == 2


async def test_two_callers_of_one_command_wait_for_one_answer() -> None:
    submissions = Submissions()
    first, second = submissions.enter(("c", 1), b"x"), submissions.enter(("c", 1), b"x")
    assert first is second
    submissions.leave(first)
    assert given_commands(submissions) == [b"x"]
    submissions.leave(second)
    submissions.take_route(H1_LEADS)
    assert given_commands(submissions) == []


async def test_answers_are_found_in_a_state_that_arrived_whole() -> None:
    submissions = Submissions()
    known, unknown = submissions.enter(("c", 1), b"x"), submissions.enter(("c", 2), b"y")
    submissions.look_up(lambda _, number: b"answer" if number == 1 else None)
    assert known.answer == b"answer"
    assert unknown.answer is None


def test_what_waits_at_the_same_moment_travels_together_within_bounds() -> None:
    submissions, entries = Submissions(), list[bytes]()
    commands = {
        number: encode_command(Command("tree.noop", None, "c", number)) for number in range(MAX_ENTRY_COMMANDS + 1)
    }
    big = encode_command(Command("tree.noop", "x" * MAX_ENTRY_BYTES, "c", 10_000))
    for number, command in {**commands, 10_000: big}.items():
        submissions.enter(("c", number), command)

    def give(entry: bytes) -> bool:
        entries.append(entry)
        return len(entries) < 3

    submissions.hand_over(give)
    assert [len(decode(entry)) for entry in entries] == [MAX_ENTRY_COMMANDS, 1, 1]
    assert given_commands(submissions) == [big], "the one that was not taken"


def test_everybody_who_waits_is_woken_once() -> None:
    submissions, woken = Submissions(), list[str]()
    submission = submissions.enter(("c", 1), b"command")
    submission.waiting += [lambda: woken.append("first"), lambda: woken.append("second")]
    submissions.answered(("c", 1), b"answer")
    submissions.give_up()
    assert woken == ["first", "second"]


def test_a_deadline_wakes_whoever_still_waits_and_nobody_else() -> None:
    submissions, deadlines, woken = Submissions(), WakeTimes(), list[int]()
    wakes: dict[int, Callable[[], None]] = {}
    for number in (1, 2, 3):
        submission = submissions.enter(("c", number), b"command")
        wakes[number] = partial(woken.append, number)
        submission.waiting.append(wakes[number])
        step = deadlines.add(submission, wakes[number], at_s=10.0 * number)
        if number == 2:
            deadlines.remove(submission, wakes[number], step)
    assert deadlines.next_s() == pytest.approx(10.0, abs=0.03)
    deadlines.wake_due(9.9)
    assert woken == []
    deadlines.wake_due(deadlines.next_s() or 0.0)
    assert woken == [1]
    submissions.answered(("c", 3), b"answer")
    deadlines.wake_due(100.0)
    assert woken == [1, 3], "an answer and a deadline wake once"
    assert deadlines.next_s() is None


def test_another_version_of_pysyncobj_is_refused() -> None:
    program = "import pysyncobj.version; pysyncobj.version.VERSION = '0.3.99'; import batonpass.tree.raft.raft"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode != 0
    assert "pysyncobj==0.3.17" in result.stderr
