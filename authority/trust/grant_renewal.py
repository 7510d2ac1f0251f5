"""Renewed grants that came after the entity had gone on: they still make its chain shorter when it comes by again.

A chain of direct passes grows with every pass until the log has learned of them and renews the grant. An entity that
moves faster than that would outrun every grant. So a renewal names the pass that it reaches to, and takes the place of
the chain up to there wherever the chain is met with later.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from batonpass.authority.trust.certificates import DelegationGrant, shortened
from batonpass.crypto.bounded_tables import LruTable

__all__ = ["MAX_RENEWALS", "Renewals"]

MAX_RENEWALS: Final = 4096
"""What is forgotten leaves a chain longer, until the next renewal."""


class Renewals:
    """The latest renewal for each entity; the longest unused are forgotten first."""

    def __init__(self) -> None:
        self._kept: LruTable[str, tuple[str, DelegationGrant]] = LruTable(MAX_RENEWALS)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return ((entity, token) for entity, (token, _) in self._kept.items())

    def keep(self, entity: str, token: str, grant: DelegationGrant) -> None:
        """Keep a verified grant, if it renews one, and no later one is known."""
        known = self._kept.get(entity)
        if not grant.replaces or (known is not None and known[1].fence >= grant.fence):
            return
        self._kept[entity] = token, grant

    def applied(self, entity: str, chain: Sequence[str], group: Sequence[str]) -> tuple[str, ...]:
        """The chain with the renewal that fits it in its place; as it is if there is none for it and this group."""
        token, grant = self._kept.get(entity, ("", None))
        if grant is None or tuple(grant.group) != tuple(group):
            return tuple(chain)
        return shortened(chain, token, grant.replaces)
