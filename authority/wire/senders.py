"""Which server may say what: for each message of each kind of server one rule, looked at before anything is done.

A message that has no rule is refused, so that nothing is taken by omission. Rules are about who speaks; what a message
says is checked where it is done. Two rules leave more to that place. What a certificate proves may be brought by
whichever server has it. An answer counts if it is the answer of a server that was asked.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol

from batonpass.authority.errors import MessageError
from batonpass.authority.model.records import DirectoryRow, Role
from batonpass.authority.names import instance_of
from batonpass.authority.wire.entity import (
    Despawn,
    Despawned,
    OwnerHint,
    OwnerRequest,
    OwnerWord,
    Release,
    Spawn,
    Spawned,
)
from batonpass.authority.wire.lease import LeaseInquiry, Renew
from batonpass.authority.wire.messages import AuthorityRequest, EntityMessageAnswers, EntityMessages
from batonpass.authority.wire.neighbours import ContactClaim, GhostInterest
from batonpass.authority.wire.placement import Census, CensusRequest, LoadReport, Moves
from batonpass.authority.wire.queries import (
    HeldInquiry,
    LogInquiry,
    LogShown,
    Passed,
    StageInquiry,
    Stranded,
)
from batonpass.authority.wire.recovery import Adopt, Adopted, Collect, Collected
from batonpass.authority.wire.regions import RegionReport, RegionWord
from batonpass.authority.wire.shows import ShowMembers, ShowNode
from batonpass.authority.wire.standing import StandingInquiry, StandingWord
from batonpass.authority.wire.transfer import (
    Activate,
    Activated,
    AdmitRequest,
    ContactHandoff,
    Decline,
    Delegation,
    DirectHandoff,
    ForwardInputs,
    Grant,
    HandoffAbort,
    HandoffReply,
    HandoffRequest,
    Order,
    Precopied,
    Precopy,
    Report,
    Reserve,
    Reserved,
    Staged,
    StageDiscard,
    StageState,
    StateTransfer,
)

__all__ = ["HOMESERVER_SENDERS", "SIMSERVER_SENDERS", "RoleLookup", "Says", "SenderRule", "SenderRules"]


class Says(StrEnum):
    """Who may say a message: a sentence for people, and the whole of a rule but for which field it is about."""

    OWN_HOMESERVER = "a homeserver of the receiver's instance"
    HOME = "a homeserver of the home instance of every entity that it names"
    HOMESERVER = "a homeserver of any instance"
    OWN_SIMSERVER = "a simulation server of the receiver's instance"
    SIMSERVER = "a simulation server of any instance"
    SERVER = "a simulation server or homeserver of any instance"
    ITSELF = "the server that it is about"
    FOR_ITS_SERVER = "the server that it is about, or a homeserver of that server's instance"
    ASKED = "the server that was asked for it: what was not asked for is dropped"
    PROVED = "whichever server has the certificates in it"


_WITHOUT_ROLE: Final = frozenset({Says.ASKED, Says.PROVED})


@dataclass(frozen=True, slots=True)
class SenderRule:
    """Who may say a message, and of which server or entities, by the names of its fields (`items.entity`)."""

    says: Says
    about: str = ""

    def named(self, message: Any) -> tuple[str, ...]:
        """The names of the servers or entities that the message is about."""
        found: Iterable[Any] = (message,)
        for field in self.about.split(".") if self.about else ():
            values = [getattr(one, field) for one in found]
            found = [name for value in values for name in (value if isinstance(value, tuple | list) else (value,))]
        return tuple(found) if self.about else ()


class RoleLookup(Protocol):
    """What is known of names: see `simserver.net.home_client` and `homeserver.names.directory`."""

    async def row(self, name: str) -> DirectoryRow | None:
        """The row of a name that is in the directory now, or None; raises if it cannot be looked up."""

    async def role_of(self, name: str) -> Role | None:
        """The role of a name. What it once was it stays, so any row tells, and it is known for longer."""


@dataclass(frozen=True)
class SenderRules:
    """The rules of one kind of server (`receiver`, with its article), by type of message."""

    receiver: str
    rules: Mapping[type[Any], SenderRule]

    def rule_of(self, message: Any) -> SenderRule:
        """Raises `MessageError`: such a server takes no such message."""
        rule = self.rules.get(type(message))
        if rule is None:
            raise MessageError(f"{self.receiver} takes no {message.type}")
        return rule

    async def check(self, message: Any, sender: str, instance: str, roles: RoleLookup) -> None:
        """Whether `sender` may say this to a server of `instance`.

        Raises:
            MessageError: it may not, or such a server takes no such message.
            Whatever `roles` raises: it cannot be looked up now.
        """
        rule = self.rule_of(message)
        if rule.says in _WITHOUT_ROLE or (rule.says in _ABOUT_SERVERS and rule.named(message) == (sender,)):
            return
        if rule.says is Says.SIMSERVER:
            # Entities go from one to the other also while no homeserver answers.
            self.check_role(message, sender, instance, await roles.role_of(sender))
            return
        row = await roles.row(sender)
        self.check_role(message, sender, instance, None if row is None else row.role)

    def check_role(self, message: Any, sender: str, instance: str, role: Role | None) -> None:
        """As `check`, with the role of the sender; None if it has none."""
        rule = self.rule_of(message)
        why_not = _why_not(rule, rule.named(message), sender, instance, role)
        if why_not:
            raise MessageError(f"{sender} {why_not}")


_ABOUT_SERVERS: Final = frozenset({Says.ITSELF, Says.FOR_ITS_SERVER})
_ROLES: Final[Mapping[Says, tuple[frozenset[Role], str]]] = {
    Says.OWN_HOMESERVER: (frozenset({Role.HOMESERVER}), "homeserver"),
    Says.HOME: (frozenset({Role.HOMESERVER}), "homeserver"),
    Says.HOMESERVER: (frozenset({Role.HOMESERVER}), "homeserver"),
    Says.OWN_SIMSERVER: (frozenset({Role.SIMSERVER}), "simulation server"),
    Says.SIMSERVER: (frozenset({Role.SIMSERVER}), "simulation server"),
    Says.SERVER: (frozenset({Role.SIMSERVER, Role.HOMESERVER}), "server"),
    Says.ITSELF: (frozenset(), ""),
    Says.FOR_ITS_SERVER: (frozenset({Role.HOMESERVER}), ""),
}
"""The roles that a rule asks for, and what a server is called that has them."""


def _why_not(rule: SenderRule, named: tuple[str, ...], sender: str, instance: str, role: Role | None) -> str:
    """What a sender is not that it would have to be, after its name; empty if it may say the message."""
    if rule.says in _WITHOUT_ROLE or (rule.says in _ABOUT_SERVERS and named == (sender,)):
        return ""
    roles, called = _ROLES[rule.says]
    places = _places(rule.says, named, instance)
    if role in roles and (places is None or places == {instance_of(sender)}):
        return ""
    if rule.says in _ABOUT_SERVERS:
        return f"does not speak for {', '.join(named)}"
    return f"is no {called} of {', '.join(sorted(places))}" if places else f"is no {called}"


def _places(says: Says, named: tuple[str, ...], instance: str) -> set[str] | None:
    """The instances of which a sender must be, of each of them; None for any."""
    if says in (Says.OWN_HOMESERVER, Says.OWN_SIMSERVER):
        return {instance}
    return {instance_of(name) for name in named} if says in (Says.HOME, Says.FOR_ITS_SERVER) else None


SIMSERVER_SENDERS: Final = SenderRules(
    "a simulation server",
    {
        Activate: SenderRule(Says.PROVED),
        Activated: SenderRule(Says.ASKED),
        Adopt: SenderRule(Says.HOME, "items.entity"),
        CensusRequest: SenderRule(Says.OWN_HOMESERVER),
        Collect: SenderRule(Says.HOME, "items.entity"),
        ContactClaim: SenderRule(Says.OWN_SIMSERVER),
        Delegation: SenderRule(Says.PROVED),
        Despawn: SenderRule(Says.HOME, "entity"),
        DirectHandoff: SenderRule(Says.PROVED),
        EntityMessageAnswers: SenderRule(Says.ASKED),
        EntityMessages: SenderRule(Says.SIMSERVER),
        ForwardInputs: SenderRule(Says.SIMSERVER),
        GhostInterest: SenderRule(Says.OWN_SIMSERVER),
        Grant: SenderRule(Says.PROVED),
        HandoffReply: SenderRule(Says.OWN_HOMESERVER),
        LogShown: SenderRule(Says.HOMESERVER),
        Moves: SenderRule(Says.OWN_HOMESERVER),
        Order: SenderRule(Says.HOME, "entity"),
        OwnerHint: SenderRule(Says.SIMSERVER),
        OwnerWord: SenderRule(Says.HOME, "entity"),
        Precopied: SenderRule(Says.ASKED),
        Precopy: SenderRule(Says.SIMSERVER),
        RegionWord: SenderRule(Says.OWN_HOMESERVER),
        Release: SenderRule(Says.HOME, "entity"),
        Reserve: SenderRule(Says.SIMSERVER),
        Reserved: SenderRule(Says.ASKED),
        ShowMembers: SenderRule(Says.SIMSERVER),
        ShowNode: SenderRule(Says.SIMSERVER),
        Spawn: SenderRule(Says.HOME, "entity"),
        StageDiscard: SenderRule(Says.SIMSERVER),
        StageState: SenderRule(Says.SIMSERVER),
        Staged: SenderRule(Says.ASKED),
        StandingInquiry: SenderRule(Says.HOME, "entities"),
        StateTransfer: SenderRule(Says.SIMSERVER),
    },
)
"""What a simulation server takes in parcels, and of whom."""

HOMESERVER_SENDERS: Final = SenderRules(
    "a homeserver",
    {
        Adopted: SenderRule(Says.ASKED),
        AdmitRequest: SenderRule(Says.HOME, "entity"),
        AuthorityRequest: SenderRule(Says.SERVER),
        Census: SenderRule(Says.OWN_SIMSERVER),
        Collected: SenderRule(Says.ASKED),
        ContactHandoff: SenderRule(Says.FOR_ITS_SERVER, "source"),
        Decline: SenderRule(Says.FOR_ITS_SERVER, "source"),
        Despawned: SenderRule(Says.ASKED),
        HandoffAbort: SenderRule(Says.FOR_ITS_SERVER, "source"),
        HandoffRequest: SenderRule(Says.FOR_ITS_SERVER, "source"),
        HeldInquiry: SenderRule(Says.FOR_ITS_SERVER, "server"),
        LeaseInquiry: SenderRule(Says.HOMESERVER),
        LoadReport: SenderRule(Says.OWN_SIMSERVER),
        LogInquiry: SenderRule(Says.HOMESERVER),
        OwnerRequest: SenderRule(Says.SERVER),
        Passed: SenderRule(Says.SERVER),
        RegionReport: SenderRule(Says.OWN_SIMSERVER),
        Renew: SenderRule(Says.ITSELF, "server"),
        Report: SenderRule(Says.FOR_ITS_SERVER, "source"),
        Spawned: SenderRule(Says.ASKED),
        StageInquiry: SenderRule(Says.FOR_ITS_SERVER, "target"),
        StandingWord: SenderRule(Says.ASKED),
        Stranded: SenderRule(Says.FOR_ITS_SERVER, "target"),
    },
)
"""What a homeserver takes in parcels, over the link or REST, and of whom; answers to its own questions come by REST."""
