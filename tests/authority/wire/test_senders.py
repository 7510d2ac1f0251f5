"""Who may say what: every message, said by every kind of sender, to both kinds of servers.

`EXPECTED` is written down apart from the rules that servers have. A new message fails the first test until it has a
row, there and in `batonpass.authority.wire.senders`. After a change, write the table of the documentation anew:

    python -m tests.authority.wire.test_senders
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from batonpass.authority.errors import MessageError
from batonpass.authority.model.records import DirectoryRow, Role
from batonpass.authority.wire import transfer as messages
from batonpass.authority.wire.senders import HOMESERVER_SENDERS, SIMSERVER_SENDERS, Says, SenderRules
from tests.authority.message_strategies import TRANSFER_KINDS, of_kind
from tests.budget import examples
from tests.guards.guards import GUARDS

PAGE: Final = Path(__file__).parents[3] / "docs" / "reference" / "threats.md"
BEGIN: Final = "<!-- senders: made by tests/authority/wire/test_senders.py -->"
END: Final = "<!-- end of senders -->"

ENTITY: Final = "alpha.ball"
ITS_SERVER: Final = "alpha.s1"
SENDERS: Final[Mapping[str, tuple[str, Role | None]]] = {
    "own homeserver": ("alpha.h1", Role.HOMESERVER),
    "homeserver elsewhere": ("beta.h1", Role.HOMESERVER),
    "the server it is about": (ITS_SERVER, Role.SIMSERVER),
    "another incarnation of it": (ITS_SERVER, Role.SIMSERVER),
    "another simulation server": ("alpha.s2", Role.SIMSERVER),
    "simulation server elsewhere": ("beta.s1", Role.SIMSERVER),
    "player": ("alpha.ada", Role.PLAYER),
    "relay": ("alpha.relay", None),
    "removed server": ("alpha.s3", None),
    "stranger": ("beta.mallory", None),
}
"""Names and roles, as a server of alpha knows them, of those that may say something about `ENTITY` and `ITS_SERVER`.

A relay says nothing of its own: what it carries is sealed by others. Another incarnation of a server has the server's
name and keys, so no rule tells it apart. Messages of which it matters have the incarnation in them: see
`test_a_message_of_another_incarnation_is_told_apart_by_what_it_says`.
"""

HOME: Final = {"own homeserver"}
HOMES: Final = HOME | {"homeserver elsewhere"}
OURS: Final = {"the server it is about", "another incarnation of it", "another simulation server"}
SIMSERVERS: Final = OURS | {"simulation server elsewhere"}
ITSELF: Final = {"the server it is about", "another incarnation of it"}
FOR_IT: Final = HOME | ITSELF
ANYBODY: Final = set(SENDERS)
"""What is asked for, or proved by certificates: whichever sender there is, the message itself is looked at."""

SIMSERVER: Final[Mapping[type[BaseModel], set[str]]] = {
    messages.Activate: ANYBODY,
    messages.Activated: ANYBODY,
    messages.EntityMessageAnswers: ANYBODY,
    messages.EntityMessages: SIMSERVERS,
    messages.Adopt: HOME,
    messages.CensusRequest: HOME,
    messages.Collect: HOME,
    messages.Delegation: ANYBODY,
    messages.Despawn: HOME,
    messages.DirectHandoff: ANYBODY,
    messages.ForwardInputs: SIMSERVERS,
    messages.GhostInterest: OURS,
    messages.ContactClaim: OURS,
    messages.Grant: ANYBODY,
    messages.HandoffReply: HOME,
    messages.LogShown: HOMES,
    messages.Moves: HOME,
    messages.Order: HOME,
    messages.OwnerHint: SIMSERVERS,
    messages.OwnerWord: HOME,
    messages.Precopied: ANYBODY,
    messages.Precopy: SIMSERVERS,
    messages.RegionWord: HOME,
    messages.Release: HOME,
    messages.Reserve: SIMSERVERS,
    messages.Reserved: ANYBODY,
    messages.ShowMembers: SIMSERVERS,
    messages.ShowNode: SIMSERVERS,
    messages.Spawn: HOME,
    messages.StageDiscard: SIMSERVERS,
    messages.StageState: SIMSERVERS,
    messages.Staged: ANYBODY,
    messages.StandingInquiry: HOME,
    messages.StateTransfer: SIMSERVERS,
}
HOMESERVER: Final[Mapping[type[BaseModel], set[str]]] = {
    messages.Adopted: ANYBODY,
    messages.AdmitRequest: HOME,
    messages.Census: OURS,
    messages.Collected: ANYBODY,
    messages.Decline: FOR_IT,
    messages.Despawned: ANYBODY,
    messages.HandoffAbort: FOR_IT,
    messages.HandoffRequest: FOR_IT,
    messages.ContactHandoff: FOR_IT,
    messages.HeldInquiry: FOR_IT,
    messages.LeaseInquiry: HOMES,
    messages.LoadReport: OURS,
    messages.LogInquiry: HOMES,
    messages.AuthorityRequest: HOMES | SIMSERVERS,
    messages.OwnerRequest: HOMES | SIMSERVERS,
    messages.Passed: HOMES | SIMSERVERS,
    messages.RegionReport: OURS,
    messages.Renew: ITSELF,
    messages.Report: FOR_IT,
    messages.Spawned: ANYBODY,
    messages.StageInquiry: FOR_IT,
    messages.StandingWord: ANYBODY,
    messages.Stranded: FOR_IT,
}
ANSWERS: Final[frozenset[type[BaseModel]]] = frozenset(
    {
        messages.AdmitReply,
        messages.AuthorityWord,
        messages.Batch,
        messages.HeldWord,
        messages.LeaseWord,
        messages.LogWord,
        messages.NoAnswer,
        messages.RenewReply,
        messages.ReportReply,
        messages.StageWord,
    }
)
"""What comes as the answer to a question only, by the way on which that was asked, or holds other messages."""

TABLES: Final = [(SIMSERVER_SENDERS, SIMSERVER), (HOMESERVER_SENDERS, HOMESERVER)]
CELLS: Final = [
    pytest.param(rules, expected, kind, id=f"{rules.receiver}-{kind.__name__}")
    for rules, expected in TABLES
    for kind in TRANSFER_KINDS
]


class Directory:
    """What a server of alpha knows of names."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def role_of(self, name: str) -> Role | None:
        self.asked.append(name)
        return dict(SENDERS.values()).get(name)

    async def row(self, name: str) -> DirectoryRow | None:
        role = await self.role_of(name)
        return None if role is None else DirectoryRow(name=name, role=role, keys={"keys": []})


def about(message: Any, field: str, name: str) -> Any:
    """The message, about this server or entity; `items` are one."""
    if field == "entities":
        return message.model_copy(update={field: [name]})
    if field.startswith("items."):
        item = message.items[0].model_copy(update={field.removeprefix("items."): name})
        return message.model_copy(update={"items": [item]})
    return message.model_copy(update={field: name}) if field else message


def example(rules: SenderRules, kind: type[BaseModel], drawn: Any) -> Any:
    """A message of this kind that is about `ENTITY`, or about `ITS_SERVER`, as its rule has it."""
    rule = rules.rules.get(kind)
    if rule is None:
        return drawn
    name = ITS_SERVER if rule.says in (Says.ITSELF, Says.FOR_ITS_SERVER) else ENTITY
    return about(drawn, rule.about, name)


def may_say(rules: SenderRules, message: Any, sender: str) -> bool:
    try:
        trio.run(rules.check, message, SENDERS[sender][0], "alpha", Directory())
    except MessageError:
        return False
    return True


def test_every_message_has_a_row_or_is_an_answer_to_a_question() -> None:
    asked = set(SIMSERVER) | set(HOMESERVER)
    assert asked | ANSWERS == set(TRANSFER_KINDS)
    assert not asked & ANSWERS
    assert [set(rules.rules) for rules, _ in TABLES] == [set(expected) for _, expected in TABLES]


@pytest.mark.parametrize(("rules", "expected", "kind"), CELLS)
@given(data=st.data())
@settings(max_examples=examples(2, 2))
def test_a_message_is_taken_of_these_senders_and_of_no_other(
    rules: SenderRules, expected: Mapping[type[BaseModel], set[str]], kind: type[BaseModel], data: st.DataObject
) -> None:
    message = example(rules, kind, data.draw(of_kind(kind)))
    assert {sender for sender in SENDERS if may_say(rules, message, sender)} == expected.get(kind, set())


@pytest.mark.parametrize("kind", [messages.Collect, messages.Adopt])
@given(data=st.data())
@settings(max_examples=examples(3, 3))
def test_a_home_speaks_of_its_own_entities_alone(kind: type[BaseModel], data: st.DataObject) -> None:
    message: Any = example(SIMSERVER_SENDERS, kind, data.draw(of_kind(kind)))
    other = message.items[0].model_copy(update={"entity": "beta.ball"})
    assert not may_say(
        SIMSERVER_SENDERS, message.model_copy(update={"items": [*message.items, other]}), "own homeserver"
    )
    assert not may_say(SIMSERVER_SENDERS, message.model_copy(update={"items": []}), "own homeserver"), "of none"


def test_a_message_of_another_incarnation_is_told_apart_by_what_it_says() -> None:
    told_apart = {
        messages.Adopt: "adopt: in the life that was meant",
        messages.Collected: "an answer is that of the life that was asked",
        messages.Renew: "lease: the next incarnation is the next number",
        messages.Reserved: "a pass begins in the life that it names, with a lease",
        messages.Spawn: "spawn: in the life that was meant",
        messages.Stranded: "stranded: in the life that it was given in",
    }
    asked = set(SIMSERVER) | set(HOMESERVER)
    assert {kind for kind in asked if "incarnation" in kind.model_fields} == set(told_apart)
    assert set(told_apart.values()) <= {guard.name for guard in GUARDS}


async def test_what_is_proved_or_asked_for_costs_no_look_up_and_what_a_server_says_of_itself_neither() -> None:
    directory = Directory()
    for rules, _ in TABLES:
        for kind, rule in rules.rules.items():
            if rule.says in (Says.ASKED, Says.PROVED):
                await rules.check(kind.model_construct(), "beta.mallory", "alpha", directory)
    await HOMESERVER_SENDERS.check(messages.Report.model_construct(source=ITS_SERVER), ITS_SERVER, "alpha", directory)
    assert directory.asked == []


# --- the page ---------------------------------------------------------------------------------------------------------


def _table() -> str:
    lines = []
    for rules, expected in TABLES:
        lines += [f"What {rules.receiver} takes, and of whom:", "", "| message | of whom |", "|---|---|"]
        for kind in sorted(expected, key=lambda kind: kind.__name__):
            rule = rules.rules[kind]
            field = f" (`{rule.about}`)" if rule.about else ""
            lines.append(f"| `{kind.model_fields['type'].default}` | {rule.says}{field} |")
        lines.append("")
    return "\n".join(lines)


def _page() -> str:
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n\n{_table()}\n{END}{rest.split(END)[1]}"


def test_the_page_has_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == _page(), "python -m tests.authority.wire.test_senders"


if __name__ == "__main__":
    PAGE.write_text(_page(), encoding="utf-8")
