"""Ports for servers on loopback that no other takes between choosing and binding.

Two things steal a port from a test cluster. The kernel gives it to an outgoing connection of some other process: so we
choose outside its ephemeral range. Another cluster chooses the same: so each chosen port stays *reserved* by a TCP
socket that is bound with SO_REUSEADDR and never listens. On Linux a server that also sets SO_REUSEADDR (as trio and our
HTTP server do) can bind and listen beside it, also again after a crash. A chooser, which probes without that option,
sees the port as taken.
"""

import socket
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self

from batonpass.scenarios.common.errors import EnvironmentFailed

__all__ = ["PortAllocator", "PortTaken", "ports_outside"]

_EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
# Above the registered services people run on their machines, and below the kernel's usual ephemeral range.
_PREFERRED_FIRST = 15_000
_FIRST_UNPRIVILEGED = 1_024
_LAST = 65_535
# A cluster needs a few dozen; in fewer than this, random choice would collide all the time.
_MIN_SPAN = 1_000
_MAX_TRIES = 500


class PortTaken(EnvironmentFailed):
    """A port is in use by another program, or none is free; the sentence names it and the remedy."""


def ports_outside(ephemeral_first: int, ephemeral_last: int) -> range:
    """The ports to choose from, given the range the kernel uses for outgoing connections (both ends included).

    Raises:
        PortTaken: the kernel's range leaves fewer than a thousand unprivileged ports.
    """
    candidates = (
        range(_PREFERRED_FIRST, ephemeral_first),
        range(max(ephemeral_last + 1, _FIRST_UNPRIVILEGED), _LAST + 1),
        range(_FIRST_UNPRIVILEGED, ephemeral_first),
    )
    for candidate in candidates:
        if len(candidate) >= _MIN_SPAN:
            return candidate
    raise PortTaken(
        f"the kernel uses ports {ephemeral_first} to {ephemeral_last} for outgoing connections, which leaves none for "
        "servers; run: sysctl net.ipv4.ip_local_port_range='32768 60999'"
    )


class PortAllocator:
    """The ports of one cluster, reserved until `close`.

    Args:
        rng: the dice; two clusters on one machine should not be given the same seed, though nothing breaks if they are.
        host: the loopback address the servers will bind.
    """

    def __init__(self, rng: Random, host: str = "127.0.0.1") -> None:
        first, last = (int(word) for word in _EPHEMERAL_RANGE.read_text().split())
        self._candidates = ports_outside(first, last)
        self._rng = rng
        self._host = host
        self._reservations: dict[int, socket.socket] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def choose(self) -> int:
        """A port that is free for TCP and UDP, and is ours from now on.

        Raises:
            PortTaken: hundreds of tries found none.
        """
        for _ in range(_MAX_TRIES):
            port = self._rng.choice(self._candidates)
            if port not in self._reservations:
                try:
                    # Without SO_REUSEADDR, so that the reservation of another cluster counts as taken.
                    self._reservations[port] = self._reserve(port, beside_others=False)
                except OSError:
                    continue
                return port
        raise PortTaken(
            f"no free port found on {self._host} between {self._candidates[0]} and {self._candidates[-1]} in "
            f"{_MAX_TRIES} tries; stop other clusters on this machine"
        )

    @property
    def held(self) -> frozenset[int]:
        """The ports that are ours already."""
        return frozenset(self._reservations)

    def claim(self, port: int) -> None:
        """Reserve this very port, which an earlier run of the cluster used.

        Raises:
            PortTaken: another program listens on it, or it was claimed before.
        """
        if port in self._reservations:
            raise PortTaken(f"port {port} is claimed twice by the same cluster")
        try:
            # With SO_REUSEADDR: connections of the earlier run may linger in TIME_WAIT.
            self._reservations[port] = self._reserve(port, beside_others=True)
        except OSError as error:
            raise PortTaken(f"port {port} on {self._host} is used by another program ({error.strerror})") from error

    def close(self) -> None:
        """Give all ports back."""
        for reservation in self._reservations.values():
            reservation.close()
        self._reservations.clear()

    def _reserve(self, port: int, *, beside_others: bool) -> socket.socket:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind((self._host, port))
        reservation = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, beside_others)
            reservation.bind((self._host, port))
            # From here on our servers, which set the option too, may bind beside the reservation.
            reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        except OSError:
            reservation.close()
            raise
        return reservation
