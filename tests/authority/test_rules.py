"""Ask, deny, allow: what happens when somebody asks for ownership."""

import pytest

from authority.rules import Decision, Rule, decide


@pytest.mark.parametrize("rule", Rule)
@pytest.mark.parametrize("who", ["alpha.owner", "alpha.master"])
def test_owner_and_master_need_nobodys_leave(rule: Rule, who: str) -> None:
    assert decide(rule, requester=who, owner="alpha.owner", master="alpha.master") is Decision.GRANTED


@pytest.mark.parametrize(
    ("rule", "decision"),
    [(Rule.ALLOW, Decision.GRANTED), (Rule.DENY, Decision.DENIED), (Rule.ASK, Decision.ASKED)],
)
def test_for_everybody_else_the_rule_decides(rule: Rule, decision: Decision) -> None:
    assert decide(rule, requester="alpha.bob", owner="alpha.owner", master="alpha.master") is decision
