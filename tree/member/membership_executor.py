"""Requests to change the members or the leader, from whichever member they are made at to the leader and back.

The leader decides at once whether a request is granted (`RaftCore` and `tree.net.membership` know the rules). What
follows takes time and several entries of the log, and continues without the asker. It only watches its own copy of the
log until the members are as it wanted them. So a request may be repeated, here or at another member, and is granted
again.
"""

from collections.abc import Callable
from typing import Any, Final

import trio

from batonpass.tree.data.errors import BadData
from batonpass.tree.net.membership import (
    Admit,
    Change,
    ChangeRefused,
    Configuration,
    Dismiss,
    Member,
    MemberRole,
    change_from_data_untrusted,
)
from batonpass.tree.raft.raft import RaftCore

__all__ = ["ChangeNotFinished", "MembershipExecutor"]

Message = dict[str, Any]

# Refusals that time alone can turn into a grant.
_TRY_AGAIN: Final = frozenset({"not_leader", "change_pending", "transfer_pending"})
_LOOK_AGAIN_S: Final = 0.02


class ChangeNotFinished(Exception):
    """The time was over before the members, or the leader, were as asked for; they may still become so.

    `code` is `timed_out`, or that of the last refusal that was worth another attempt. Ask again to wait on.
    """

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(f"{sentence} ({code})")
        self.code: Final = code
        self.sentence: Final = sentence


class _NoAnswer(ChangeRefused):
    """The leader was asked and did not answer; it may have granted the request."""


class MembershipExecutor:
    """One member's part in changing the members: it asks, and as leader it decides."""

    def __init__(
        self,
        name: str,
        raft: Callable[[], RaftCore | None],
        send: Callable[[str, Message], bool],
        wake: Callable[[], None],
        answer_within_s: float,
    ) -> None:
        """`raft` is None while the member does not run; `wake` makes the driver look; a lost answer is not waited for
        longer than `answer_within_s`."""
        self._name: Final = name
        self._raft: Final = raft
        self._send: Final = send
        self._wake: Final = wake
        self._answer_within_s: Final = answer_within_s
        self._answers: dict[int, Callable[[Message], None]] = {}
        self._next = 0
        self._news = trio.Event()
        self._is_removed = False

    def look(self, *, removed: bool = False) -> None:
        """The members are others now, or this member stops, perhaps because it was `removed`."""
        self._is_removed = self._is_removed or removed
        self._news.set()
        self._news = trio.Event()

    # --- asking ---------------------------------------------------------------------------------------------------

    async def admit(self, member: Member, replaces: str | None, timeout_s: float) -> None:
        """Until the member votes, and the one that it replaces is gone."""

        def settled(configuration: Configuration) -> bool:
            seat = configuration.seat(member.name)
            gone = replaces is None or configuration.seat(replaces) is None
            return seat is not None and seat.member == member and seat.role is MemberRole.VOTER and gone

        def unsettled(configuration: Configuration) -> str:
            seat = configuration.seat(member.name)
            if seat is None:
                return f"{member.name} is not admitted yet"
            if seat.role is MemberRole.VOTER:
                return f"{member.name} votes, but {replaces} is not dismissed yet"
            return (
                f"{member.name} is admitted and has not caught up yet, or cannot be reached at"
                f" {member.host}:{member.port}; it votes as soon as it has"
            )

        await self._pursue(Admit(member, replaces), settled, unsettled, timeout_s)

    async def dismiss(self, name: str, timeout_s: float) -> None:
        """Until the member is none any more."""
        await self._pursue(
            Dismiss(name),
            lambda configuration: configuration.seat(name) is None,
            lambda _: f"{name} is not dismissed yet",
            timeout_s,
        )

    async def _pursue(
        self,
        change: Change,
        settled: Callable[[Configuration], bool],
        unsettled: Callable[[Configuration], str],
        timeout_s: float,
    ) -> None:
        granted, in_doubt, code = False, False, "timed_out"
        with trio.move_on_after(timeout_s):
            while not granted:
                try:
                    await self._ask(change.to_data())
                    granted = True
                except ChangeRefused as refused:
                    in_doubt = in_doubt or isinstance(refused, _NoAnswer)
                    code = refused.code
                    if code in _TRY_AGAIN:
                        await trio.sleep(_LOOK_AGAIN_S)
                    elif in_doubt:
                        break  # it may be refused only because it was granted before, and is done
                    else:
                        raise
            code = "timed_out" if granted else code
            while not (self._is_removed and _lets_go(change, self._name)):
                if settled(self._running().configuration):
                    return
                await self._news.wait()
            return
        raft = self._raft()
        state = "this member does not run" if raft is None else unsettled(raft.configuration)
        raise ChangeNotFinished(code, f"after {timeout_s} s, {state}")

    async def transfer(self, name: str | None, timeout_s: float) -> str:
        """Until another member leads, or this one if it is named; who it is then."""
        began_with = self._running().leader_name()
        code = "timed_out"
        with trio.move_on_after(timeout_s):
            while True:
                leader = self._running().leader_name()
                if leader is not None and (leader == name or (name is None and began_with not in (None, leader))):
                    return leader
                began_with = began_with or leader
                try:
                    await self._ask(["transfer", name])
                except ChangeRefused as refused:
                    code = refused.code
                    if code not in _TRY_AGAIN and code != "is_leader":
                        raise
                await trio.sleep(_LOOK_AGAIN_S)
        raise ChangeNotFinished(code, f"after {timeout_s} s, {name or 'no other member'} has not taken the leadership")

    async def _ask(self, request: list[Any]) -> None:
        """Have the leader decide; raises `ChangeRefused`, with `not_leader` when it could not be asked."""
        raft = self._running()
        if raft.is_leader():
            self._decide_untrusted(request)
            self._wake()
            return
        leader = raft.leader_name()
        if leader is None:
            raise ChangeRefused("not_leader", "no leader is known")
        answered, answers = trio.Event(), list[Message]()

        def take(answer: Message) -> None:
            answers.append(answer)
            answered.set()

        self._next += 1
        number = self._next
        self._answers[number] = take
        try:
            if self._send(leader, {"type": "member_request", "round": number, "request": request}):
                self._wake()
                with trio.move_on_after(self._answer_within_s):
                    await answered.wait()
        finally:
            del self._answers[number]
        if not answers:
            raise _NoAnswer("not_leader", f"{leader} did not answer")
        if answers[0]["code"] is not None:
            raise ChangeRefused(answers[0]["code"][:64], answers[0]["sentence"][:1024])

    def take_answer(self, answer: Message) -> None:
        """The leader answered."""
        take = self._answers.get(answer["round"])
        if take is not None:
            take(answer)

    # --- deciding, as leader --------------------------------------------------------------------------------------

    def take_request_untrusted(self, sender: str, message: Message) -> None:
        """Another member asks; it is answered in any case."""
        code, sentence = None, ""
        try:
            self._decide_untrusted(message["request"])
        except ChangeRefused as refused:
            code, sentence = refused.code, refused.sentence
        self._send(sender, {"type": "member_answer", "round": message["round"], "code": code, "sentence": sentence})

    def _decide_untrusted(self, request: list[Any]) -> None:
        """Grant a request; raises `ChangeRefused`."""
        raft = self._running()
        if len(request) == 2 and request[0] == "transfer" and isinstance(request[1], str | None):
            raft.transfer_leadership(request[1])
            return
        try:
            change = change_from_data_untrusted(request)
        except BadData as error:
            raise ChangeRefused("bad_member", error.message) from error
        if isinstance(change, Admit) and _is_granted(raft.configuration, change) and raft.is_leader():
            return
        try:
            raft.propose_change(change)
        except ChangeRefused as refused:
            if refused.code != "is_leader":
                raise
            raft.transfer_leadership()
            raise ChangeRefused("transfer_pending", "the leader hands over its leadership before it goes") from refused

    def _running(self) -> RaftCore:
        raft = self._raft()
        if raft is None:
            raise ChangeRefused("not_running", "this member does not run")
        return raft


def _lets_go(change: Change, name: str) -> bool:
    """Whether this member goes by it, which is the last that happens: as the leader it may not learn more of it."""
    return change == Dismiss(name) or (isinstance(change, Admit) and change.replaces == name)


def _is_granted(configuration: Configuration, change: Admit) -> bool:
    """Whether this very member is in already, as after a request whose answer was lost, and maybe all is done."""
    seat = configuration.seat(change.member.name)
    if seat is None or seat.member != change.member:
        return False
    return change.replaces in (seat.replaces, None) or configuration.seat(change.replaces) is None
