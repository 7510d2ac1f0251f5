"""Who may have an entity: the master's three rules, decided from the record alone.

The rule says what happens when somebody who is neither owner nor master asks for ownership (seed 002, glossary):
`allow` grants at once, `deny` refuses at once, `ask` puts the question to the master.
"""

from enum import StrEnum

__all__ = ["Decision", "Rule", "decide"]


class Rule(StrEnum):
    """What the master wants done when somebody else asks for ownership."""

    ASK = "ask"
    DENY = "deny"
    ALLOW = "allow"


class Decision(StrEnum):
    """What becomes of a request for ownership."""

    GRANTED = "granted"
    DENIED = "denied"
    ASKED = "asked"


def decide(rule: Rule, *, requester: str, owner: str, master: str) -> Decision:
    """Apply `rule` to a request by `requester`.

    Owner and master need nobody's leave: the one has the entity already, the other may change the rule and the owner
    at any time.
    """
    if requester in (owner, master):
        return Decision.GRANTED
    match rule:
        case Rule.ALLOW:
            return Decision.GRANTED
        case Rule.DENY:
            return Decision.DENIED
        case Rule.ASK:
            return Decision.ASKED
