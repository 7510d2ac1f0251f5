"""Requests to change the members, seen from the member that asks: what is lost on the way is asked for again."""

from collections.abc import Callable
from typing import Any, cast

import pytest
import trio
import trio.testing

from batonpass.tree.member.membership_executor import ChangeNotFinished, MembershipExecutor
from batonpass.tree.net.membership import ChangeRefused, Configuration, Member
from batonpass.tree.raft.raft import RaftCore

A, B, C = (Member(name, "127.0.0.1", port) for port, name in enumerate("abc", start=7001))

Leader = Callable[[int], tuple[str | None, str] | None]


class _Follower:
    """The part of a follower's Raft that a steward looks at."""

    def __init__(self, *members: Member) -> None:
        self.configuration = Configuration.initial(members)

    def is_leader(self) -> bool:
        return False

    def leader_name(self) -> str:
        return "a"


def steward_of(follower: _Follower, leader: Leader) -> MembershipExecutor:
    """A steward whose n-th request (from 1) the leader answers with a code and a sentence, or not at all."""
    asked: list[int] = []

    def send(_name: str, message: dict[str, Any]) -> bool:
        asked.append(message["round"])
        answer = leader(len(asked))
        if answer is not None:
            code, sentence = answer
            membership_executor.take_answer({"round": message["round"], "code": code, "sentence": sentence})
        return True

    membership_executor = MembershipExecutor(
        "b", lambda: cast(RaftCore, follower), send, lambda: None, answer_within_s=0.4
    )
    return membership_executor


async def test_a_removal_whose_answer_was_lost_is_done_although_it_is_refused_when_asked_for_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    follower = _Follower(A, B)  # it has applied the removal of c, which the first request brought about
    membership_executor = steward_of(
        follower, lambda number: None if number == 1 else ("unknown_member", "'c' is not a member")
    )

    await membership_executor.dismiss("c", timeout_s=5.0)


async def test_it_waits_for_its_own_log_to_say_that_what_it_is_in_doubt_about_is_done(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    follower = _Follower(A, B, C)
    membership_executor = steward_of(
        follower, lambda number: None if number == 1 else ("unknown_member", "'c' is not a member")
    )

    async def apply_late() -> None:
        await trio.sleep(2.0)
        follower.configuration = Configuration.initial([A, B])
        membership_executor.look()

    nursery.start_soon(apply_late)
    await membership_executor.dismiss("c", timeout_s=5.0)
    assert trio.current_time() == pytest.approx(2.0, abs=0.1)


async def test_a_refusal_in_doubt_that_was_meant_is_told_when_the_time_is_over(
    autojump_clock: trio.testing.MockClock,
) -> None:
    membership_executor = steward_of(_Follower(A, B, C), lambda number: None if number == 1 else ("no_majority", "no"))

    with pytest.raises(ChangeNotFinished, match="no_majority"):
        await membership_executor.dismiss("c", timeout_s=5.0)


async def test_a_refusal_without_doubt_is_told_at_once(autojump_clock: trio.testing.MockClock) -> None:
    membership_executor = steward_of(_Follower(A, B), lambda _: ("unknown_member", "'c' is not a member"))

    with pytest.raises(ChangeRefused, match="unknown_member"):
        await membership_executor.dismiss("c", timeout_s=5.0)
    assert trio.current_time() < 0.1
