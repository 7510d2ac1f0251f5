"""Servers that lack one guard of the rule by which inputs of owners alone are taken."""

from collections.abc import Sequence
from typing import Any, Final

from batonpass.homeserver.node.composition import Kinds
from batonpass.homeserver.transfer.certificates import Certification
from batonpass.scenarios.simulation.servers.parts import ServersParts
from batonpass.simserver.owners.lookup import OwnerHints
from batonpass.simserver.transfer.target.arrivals import Arrivals

__all__ = ["OWNER_MUTANTS"]


class _Silent(OwnerHints):
    """Forgets of which owner it heard when the entity was not there any more."""

    def missed(self, entity: str, owner_rev: int) -> None:
        return


class _Forgets(Arrivals):
    def __init__(self, *args: Any, **how: Any) -> None:
        super().__init__(*args, **how)
        self.hints.__class__ = _Silent


class _Trusting(Certification):
    """Takes a server that came by direct passes to know what the log knew when it learned of these."""

    def owner_rev_of(self, chain: Sequence[str]) -> int:
        return 2**63 - 1


OWNER_MUTANTS: Final[Sequence[tuple[str, str, ServersParts]]] = (
    (
        "passed-owners",
        "of an owner who came after a direct pass, and before its report, no server hears",
        ServersParts(arrivals=_Forgets, home=Kinds(certification=_Trusting)),
    ),
)
"""Name, what is missing, and the servers that lack it."""
