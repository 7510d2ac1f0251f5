"""Whom a member is in contact with, and whom it lets in. Pure.

A member lets in whom the newest configuration that it knows of lists. It knows of configurations from its log. A member
that was away for long may not know a single address that is still good; so a peer that proves itself to it, and knows a
newer configuration, tells it (the *hint*). A hint opens doors and nothing else: the log decides who votes.

Members of other procedures are not let in at all: they would make another tree of the same log.

Two members that disagree find out who is behind by the index of the configuration: each says in its greeting since
which one it is a member. Someone who is not listed here, and does not claim to be of a newer configuration, was
removed. It is told so after it has proved itself, because it stops then, and only a member may cause that.
"""

from dataclasses import replace
from typing import Final

from batonpass.tree.net.frames import Greeting, GreetingVerdict
from batonpass.tree.net.membership import NO_CONFIGURATION, Configuration, Member, MemberRole

__all__ = ["NOT_ADMITTED", "REMOVED", "WRONG_MACHINE", "Roster"]

NOT_ADMITTED: Final = "not_admitted"
REMOVED: Final = "removed_member"
WRONG_MACHINE: Final = "wrong_machine"


class Roster:
    """What one member knows about who the members are."""

    def __init__(self, me: Greeting, members: tuple[Member, ...], *, joining: bool) -> None:
        """`members` are those of the instance, or, while `joining`, the addresses to knock at; this one among both."""
        self._me: Final = me
        self._joining: Final = joining
        self._doors: Final = {member.name: member for member in members if member.name != me.name}
        self._newest = NO_CONFIGURATION
        self._since = -1

    def adopt(self, configuration: Configuration) -> None:
        """The log, or a proven member, tells of a configuration; an older one than is known says nothing new."""
        if configuration.seat(self._me.name) is not None:
            self._since = max(self._since, configuration.index)
        if configuration.index >= self._newest.index:
            self._newest = configuration

    @property
    def contacts(self) -> dict[str, Member]:
        """The other members to be connected to, by name; before anything is known, the doors to knock at."""
        if self._newest is NO_CONFIGURATION:
            return dict(self._doors)
        return {seat.name: seat.member for seat in self._newest.seats if seat.name != self._me.name}

    def admits(self, name: str) -> bool:
        """Whether a proven member of this name may stay connected."""
        return self._newest is NO_CONFIGURATION or self._newest.seat(name) is not None

    def greeting(self, *, probe: bool) -> Greeting:
        """How this member introduces itself now."""
        me = self._me
        return replace(me, probe=probe, since=self._since, joining=self._joining)

    def hint_for(self, greeting: Greeting) -> Configuration | None:
        """What a proven peer should know, if it is behind."""
        return self._newest if greeting.since < self._newest.index else None

    def judge(self, greeting: Greeting, expected: str | None) -> GreetingVerdict:
        """The verdict on a greeting, before anything is proved: what is wrong with it first.

        `expected` is whom this member dialled, if it did.
        """
        me, name = self._me, greeting.name
        who = f"{name[:64]!r} (a {greeting.kind[:32]} of instance {greeting.instance[:64]!r})"
        if greeting.protocol != me.protocol:
            return GreetingVerdict(
                "wrong_version", f"{who} speaks protocol {greeting.protocol}; {me.name} speaks {me.protocol}"
            )
        if greeting.kind != me.kind:
            return GreetingVerdict("wrong_kind", f"{who} cannot replicate with {me.name}, which is a {me.kind}")
        if greeting.instance != me.instance:
            return GreetingVerdict("wrong_instance", f"{who} is not of instance {me.instance!r}, as {me.name} is")
        if expected is not None and name != expected:
            return GreetingVerdict("unknown_member", f"{who} answers at the address of {expected!r}")
        if greeting.machine != me.machine:
            # The same entries would leave two trees, and no member would be told.
            theirs = repr(greeting.machine[:64]) if greeting.machine else "those of a release that does not name them"
            return GreetingVerdict(
                WRONG_MACHINE,
                f"{who} applies the log by other procedures, {theirs}, than {me.name}, {me.machine!r}; run one release"
                " on all members of an instance",
            )
        return self._judge_name(greeting, who)

    def _judge_name(self, greeting: Greeting, who: str) -> GreetingVerdict:
        seat = self._newest.seat(greeting.name)
        comes_empty = greeting.joining and greeting.since < 0
        if seat is not None and seat.role is MemberRole.VOTER and comes_empty:
            return GreetingVerdict(
                "lost_memory",
                f"{who} is a voter and comes without its log; remove it first, so that it cannot vote twice, and then"
                " add it again",
            )
        if self.admits(greeting.name) or self._is_behind(greeting):
            return GreetingVerdict()
        if comes_empty:
            return GreetingVerdict(NOT_ADMITTED, f"{who} is not a member yet; add it, and it will be let in")
        if self._newest.index == greeting.since == 0:
            return GreetingVerdict(
                "unknown_member", f"{who} is not among the members that {self._me.name} is configured with"
            )
        return GreetingVerdict()  # until it has proved who it is

    def judge_proven(self, greeting: Greeting) -> GreetingVerdict:
        """The verdict when the peer has proved to be who it said."""
        if self.admits(greeting.name) or self._is_behind(greeting):
            return GreetingVerdict()
        return GreetingVerdict(
            REMOVED,
            f"{greeting.name!r} is not a member of instance {self._me.instance!r} any more, says {self._me.name}, which"
            f" knows of the change {self._newest.index}. Stop it for good, or move its directory away and add it again",
        )

    def _is_behind(self, greeting: Greeting) -> bool:
        return greeting.since > self._newest.index
