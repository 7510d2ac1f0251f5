"""Servers whose ghosts lack a guard."""

from batonpass.simserver.neighbours.host import HostedNeighbours

__all__ = ["KeepsSilentPeers"]


class KeepsSilentPeers(HostedNeighbours):
    """It shows the ghosts of a server of which nothing is heard."""

    def _forget_silent(self, now_ns: int) -> None:
        pass
