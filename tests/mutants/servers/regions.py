"""Servers that follow regions, and lack a guard."""

from batonpass.authority.model.regions import RegionTable
from batonpass.simserver.server.regions import RegionDuties

__all__ = ["ForgetsSleepers"]


class ForgetsSleepers(RegionDuties):
    """It never looks at entities that sleep."""

    def _look_at(self, name: str, table: RegionTable) -> None:
        pass
