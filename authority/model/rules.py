"""Who may have an entity: the master's three rules, locks and kinds of request, decided from the record alone.

The rule says what happens when a player who is neither owner nor master asks for ownership (seed 002, glossary).
`allow` grants at once, `deny` refuses at once, `ask` puts the question to the master. Beside it stand HLA's two
conditional services (IEEE 1516.1, 7.9 and 7.13). A request *if available* takes only what has no owner and never puts a
question, and an owner may give something up *if wanted* only. Locks are UnrealGDK's tokens: named and counted.
"""

from enum import StrEnum

from batonpass.authority.model.records import EntityRecord, Rule, Want

__all__ = ["Decision", "decide", "is_locked_against", "locks_out"]


class Decision(StrEnum):
    """What becomes of a request for ownership; all but `granted` and `asked` are reason codes of its refusal."""

    GRANTED = "granted"
    ASKED = "asked"
    DENIED = "denied"
    LOCKED = "locked"
    NOT_AVAILABLE = "not_available"
    NOT_MASTER = "not_master"


def decide(
    record: EntityRecord, requester: str, want: Want = Want.BY_RULE, *, is_master_gone: bool = False
) -> Decision:
    """What becomes of `requester`'s request, as the record stands; the first line that fits counts.

    Owner and master need no leave: the one has the entity already, the other may change the rule and the owner at any
    time. A lock stops the master too, unless it forces its way. What has no owner, and as master a server that was
    removed (`is_master_gone`) is available whatever that one wanted. No master is left that could want anything else.
    """
    if want is Want.FORCED:
        return Decision.GRANTED if requester == record.master else Decision.NOT_MASTER
    if requester == record.owner:
        return Decision.GRANTED
    if locks_out(record, requester, want, is_master_gone=is_master_gone):
        return Decision.LOCKED
    if requester == record.master or _is_left(record, want, is_master_gone=is_master_gone):
        return Decision.GRANTED
    if record.rule is Rule.DENY:
        return Decision.DENIED
    if want is Want.IF_AVAILABLE:
        return Decision.NOT_AVAILABLE if record.owner else Decision.GRANTED
    return Decision.GRANTED if record.rule is Rule.ALLOW else Decision.ASKED


def locks_out(record: EntityRecord, requester: str, want: Want, *, is_master_gone: bool) -> bool:
    """As `is_locked_against`, of a request of this kind; see `decide`."""
    is_left = _is_left(record, want, is_master_gone=is_master_gone)
    return is_locked_against(record, requester, but_by=record.master if is_left else "")


def is_locked_against(record: EntityRecord, requester: str, but_by: str = "") -> bool:
    """Whether a player, `but_by` aside, has a lock on who owns the entity; the owner itself is not in its own way."""
    return requester != record.owner and any(lock.by != but_by for lock in record.locks.values())


def _is_left(record: EntityRecord, want: Want, *, is_master_gone: bool) -> bool:
    return is_master_gone and want is Want.IF_AVAILABLE and not record.owner
