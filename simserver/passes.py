"""Signing the passes of entities that leave directly: those that leave together share one signature.

Who leaves alone does not wait for others: the first pass after a pause is signed at once, and what comes in the same
turn of the scheduler at its end. A signature cannot be taken back, so it is made when the message leaves, and for
nobody whose departure is over by then.
"""

from collections.abc import Callable
from typing import Final

from actors.clock import Clock
from authority.certificates import PassCertificate
from authority.sealing import Sealer
from crypto import jose
from simserver.departing import Departure
from simserver.reports import Spawn

__all__ = ["Passes"]

Signed = Callable[[str, str, str, PassCertificate], None]
"""Told of a token, who signed it, with which key, and what it says."""


def _nobody(_token: str, _signer: str, _kid: str, _certificate: PassCertificate) -> None:
    """Nobody wants to know."""


_QUIET_NS: Final = 2_000_000
_MOST: Final = 128


class Passes:
    """`send` is told of each departure whose pass is signed, with the number of its attempt."""

    def __init__(self, sealer: Sealer, clock: Clock, spawn: Spawn, send: Callable[[Departure, int], None]) -> None:
        self._sealer: Final = sealer
        self._clock: Final = clock
        self._spawn: Final = spawn
        self._send: Final = send
        self.signed: Signed = _nobody
        """Told of every pass that was signed. Whoever reads certificates here sets this: they come back."""
        self._waiting: list[tuple[Departure, int]] = []
        self._signed_ns = -_QUIET_NS

    def forget(self) -> None:
        """Whoever was to sign what waits is gone; it is tried again when nobody answers."""
        self._waiting.clear()

    def sign(self, departure: Departure, attempt: int) -> None:
        """Sign the pass of an entity, now or together with others, and have it sent."""
        self._waiting.append((departure, attempt))
        is_alone = len(self._waiting) == 1
        is_quiet = self._clock.monotonic_ns() - self._signed_ns >= _QUIET_NS
        if is_alone and (is_quiet or not self._spawn(self._sign_all)):
            self._sign_waiting()

    async def _sign_all(self) -> None:
        self._sign_waiting()

    def _sign_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._signed_ns = self._clock.monotonic_ns()
        open_ones = [(departure, attempt) for departure, attempt in waiting if not departure.machine.over]
        for start in range(0, len(open_ones), _MOST):
            together = open_ones[start : start + _MOST]
            passes = [departure.pass_certificate() for departure, _ in together]
            claims = [one.to_claims() for one in passes]
            tokens = jose.sign_all(claims, sender=self._sealer.identity, sender_id=self._sealer.name)
            for (departure, attempt), one, token in zip(together, passes, tokens, strict=True):
                self.signed(token, self._sealer.name, self._sealer.identity.public.signing_kid, one)
                departure.passed_by(token)
                self._send(departure, attempt)
