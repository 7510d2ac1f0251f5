"""Signing the passes of entities that leave directly: those that leave together share one signature.

An entity that leaves alone does not wait for others. The first pass after a pause is signed at once, and what comes in
the same turn of the scheduler at its end. Where several left together a moment ago, with a tick, several more will with
the next one. There the first waits for the others, which the scheduler lets tick over several turns. So all of them
share their signature, their parcel and the parcel of their answers, and none has the costs of one to itself. A
signature cannot be taken back, so it is made when the message leaves, and not for a departure that is over by then.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from batonpass.actors.base.clock import Clock
from batonpass.authority.trust.certificates import PassCertificate
from batonpass.authority.wire.sealing import Sealer
from batonpass.crypto import jose
from batonpass.simserver.net.timer import SpawnTask
from batonpass.simserver.transfer.source.departure import Departure

__all__ = ["PassSigning"]


class Signed(Protocol):
    """Told of a token, who signed it, with which key, what it says, and perhaps the chain that it extends."""

    def __call__(
        self, token: str, signer: str, kid: str, certificate: PassCertificate, before: Sequence[str] = ()
    ) -> None: ...


_QUIET_NS: Final = 2_000_000
_MOST: Final = 128
# The time after several have left together in which the next are expected to do so too: with one of the next ticks.
_LATELY_NS: Final = 200_000_000
# No pass waits longer than this for others that come one by one; less than half a tick at 20 Hz.
_GATHER_NS: Final = 20_000_000


class PassSigning:
    """`send` is told of each departure whose pass is signed: the number of its attempt, and whether it is alone.

    `signed` is told of every pass that was signed: the reader of certificates here will see them again.
    """

    def __init__(
        self,
        sealer: Sealer,
        clock: Clock,
        spawn: SpawnTask,
        send: Callable[[Departure, int, bool], None],
        signed: Signed,
    ) -> None:
        self._sealer: Final = sealer
        self._clock: Final = clock
        self._spawn: Final = spawn
        self._send: Final = send
        self._signed: Final = signed
        self._waiting: list[tuple[Departure, int]] = []
        self._signed_ns = -_QUIET_NS
        # When several were signed together.
        self._company_ns = -_LATELY_NS

    def forget(self) -> None:
        """The task that was to sign what waits is gone; it is tried again when no answer comes."""
        self._waiting.clear()

    def sign(self, departure: Departure, attempt: int) -> None:
        """Sign the pass of an entity, now or together with others, and have it sent."""
        self._waiting.append((departure, attempt))
        if departure.plan.freeze_budget_ms:
            # Its time is counted, so it does not wait for others.
            self._sign_waiting()
            return
        if len(self._waiting) > 1:
            # The first one sees to it.
            return
        is_quiet, is_alone, now_ns = self._pace()
        until_ns = now_ns if is_alone else now_ns + _GATHER_NS
        if (is_quiet and is_alone) or not self._spawn(self._sign_all, until_ns):
            self._sign_waiting()

    def _pace(self) -> tuple[bool, bool, int]:
        """Whether no entity was passed a moment ago, and none in a batch lately; and the time."""
        now_ns = self._clock.monotonic_ns()
        return now_ns - self._signed_ns >= _QUIET_NS, now_ns - self._company_ns >= _LATELY_NS, now_ns

    async def _sign_all(self, until_ns: int) -> None:
        """Sign what waits as soon as none has joined for a turn of the scheduler, or it is as late as that."""
        before = 0
        while before < len(self._waiting) < _MOST and self._clock.monotonic_ns() < until_ns:
            before = len(self._waiting)
            # In each turn trio runs every task once, in any order: after two of them every task has run in between.
            await self._clock.sleep_s(0)
            await self._clock.sleep_s(0)
        self._sign_waiting()

    def _sign_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._signed_ns = self._clock.monotonic_ns()
        open_ones = [(departure, attempt) for departure, attempt in waiting if not departure.machine.over]
        is_alone = len(open_ones) == 1
        if len(open_ones) > 1:
            self._company_ns = self._signed_ns
        for start in range(0, len(open_ones), _MOST):
            together = open_ones[start : start + _MOST]
            passes = [departure.pass_certificate() for departure, _ in together]
            claims = [one.to_claims() for one in passes]
            tokens = jose.sign_all(claims, sender=self._sealer.identity, sender_id=self._sealer.name)
            for (departure, attempt), one, token in zip(together, passes, tokens, strict=True):
                before = () if not is_alone else departure.holding.chain
                departure.passed_by(token)
                self._send(departure, attempt, is_alone)
                self._signed(token, self._sealer.name, self._sealer.identity.public.signing_kid, one, before)
