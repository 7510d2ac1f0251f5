"""Reasons: the stable codes with which requests are refused, and the exceptions that carry them.

A code never changes its meaning. REST answers carry it as `code`, transfer messages as `reason`.
"""

from enum import StrEnum
from typing import Any

__all__ = ["MessageError", "Reason", "Refused", "UnregisteredSender"]


class Reason(StrEnum):
    """Why something was refused."""

    ALREADY_EXISTS = "already_exists"
    """The id is taken."""
    ASKED = "asked"
    """The rule is `ask`: the entity stays where it is until its master has answered the question of a contact."""
    ASK_EXPIRED = "ask_expired"
    """The master was asked and did not answer in time."""
    ATTACHED = "attached"
    """The entity has a parent or children that would stay behind: detach them first, or move what is above."""
    BAD_INVITATION = "bad_invitation"
    """The invitation is unknown, over, used up, or for players of other names."""
    CANCELLED = "cancelled"
    """The requester, or the master, took it back."""
    CAPACITY = "capacity"
    """The target has no room for the entity, or for a state of this size."""
    CYCLE = "cycle"
    """The parent would be below its own child."""
    DENIED = "denied"
    """The rule, or the master who was asked, said no."""
    DRAINING = "draining"
    """The server is drained: it takes no entities."""
    EXPIRED = "expired"
    """What was permitted was not begun for ten minutes, and many other transfers have come since."""
    FREEZE_BUDGET = "freeze_budget"
    """The entity would have been frozen for longer than it may, so it is resumed where it was."""
    FULL = "full"
    """A bounded table has no room for another row."""
    GONE = "gone"
    """The entity was deleted."""
    GROUP_FAILED = "group_failed"
    """Another member of the group was not ready in time."""
    HOME_UNREACHABLE = "home_unreachable"
    """The home instance of a server cannot be asked.

    Whether its lease is over, so no server takes its entities over; or whether it would have an entity, so that stays.
    """
    INCOMPATIBLE = "incompatible"
    """The target does not know the entity's kind, or a later version of its world has written the state.

    Or no server could read the state: it stays with the world that gave it.
    """
    KEY_CONFLICT = "key_conflict"
    """Other keys are pinned to this name."""
    LEASE_HELD = "lease_held"
    """Another process has the lease of this simulation server, until it is over."""
    LEASE_OVER = "lease_over"
    """The lease of this incarnation of the simulation server is over, or it never had one."""
    LOCKED = "locked"
    """A player holds a lock on who owns the entity."""
    MASTER_CHANGED = "master_changed"
    """Mastership changed between the master's permission and the commit; the new one is asked, if one was asked."""
    NO_DELEGATION = "no_delegation"
    """A server has passed it directly, and it was not delegated to both ends."""
    NOT_AVAILABLE = "not_available"
    """A player owns the entity, and it was asked for only if none does."""
    NOT_DRAINED = "not_drained"
    """The server is not drained, or not empty yet, so it cannot be removed."""
    NOT_FOUND = "not_found"
    """There is no such entity, server, player, lock or transfer."""
    NOT_HOLDER = "not_holder"
    """The server that asks does not have authority at the epoch that it named."""
    NOT_MASTER = "not_master"
    """Only the master may do this."""
    NOT_OWNER = "not_owner"
    """Only the owner may do this."""
    NOT_REQUESTER = "not_requester"
    """Only the requester, or the master, may do this."""
    NOT_WANTED = "not_wanted"
    """No player waits for the entity, and it was to be given up only if one does."""
    OUTSIDE_CELL = "outside_cell"
    """The border would not be within the cell that it is to cut."""
    OWNER_CHANGED = "owner_changed"
    """Ownership changed between the permission and the commit, or since the requester looked."""
    RULE_CHANGED = "rule_changed"
    """The rule changed between the permission and the commit."""
    SAME_SERVER = "same_server"
    """The target has authority already."""
    STALE_REVISION = "stale_revision"
    """A right has another revision than the one that was named: it was changed meanwhile."""
    TARGET_FAILED = "target_failed"
    """The target did not answer in time."""
    TARGET_DOWN = "target_down"
    """The lease of the target is over, or it has just come back, so it can be given nothing."""
    STATE_TOO_LARGE = "state_too_large"
    """The entity's state is larger than what a transfer carries (60 MiB)."""
    TOO_LATE = "too_late"
    """The transfer has its result already."""
    TOO_OFTEN = "too_often"
    """The requester has asked too often lately, for this entity or altogether."""
    TRANSFER_ID_TAKEN = "transfer_id_taken"
    """The transfer id belongs to another request: of another entity, target, requester, or with another `want`."""
    UNKNOWN_TARGET = "unknown_target"
    """No simulation server of this name is registered."""
    UNPROVEN = "unproven"
    """The entity was passed directly with a key that is not good any more: the server that has it is looked for."""
    WRONG_HOME = "wrong_home"
    """The record lives in another instance."""


class Refused(Exception):
    """A request was refused for a stated reason; nothing was changed."""

    def __init__(self, reason: Reason, sentence: str, **details: Any) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.sentence = sentence
        self.details = details


class MessageError(ValueError):
    """Bytes from a peer are not a message of this protocol. The peer is guilty; the message is dropped and counted."""


class UnregisteredSender(MessageError):
    """No server of the name that sealed this is registered: it never was, or it was removed and its process runs on."""
