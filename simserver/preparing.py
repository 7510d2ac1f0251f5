"""What a direct hand-over can have ready before its entity stands still: the signed pass and the sealed message.

Both are of one state. An entity has a new one with a tick, twenty times a second, or with an input; to sign and seal
takes half a millisecond. So who leaves alone signs and seals first and is frozen in the next turn of the scheduler:
if nothing has happened to the entity in between, nor to the key of the server, what was made leaves at once. Else it
is thrown away, and made anew of what was frozen. A pass that nobody was sent gives nobody anything.

Who leaves in company does not: there a signature and a seal are shared, and the time of the servers counts more than
that of one freeze.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from actors.clock import Clock
from authority.messages import INLINE_STATE_BYTES, DirectHandoff, Parcel
from authority.outgoing import Mode
from authority.sealing import Sealer
from simserver.courier import Courier
from simserver.departing import Departure, Plan
from simserver.holdings import Holding
from simserver.passes import Pass, Passes
from simserver.reports import Spawn

__all__ = ["Preparations"]


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A pass and the sealed message that brings it, of the departure that there would have been at that moment."""

    of: Departure
    signed: Pass
    message: DirectHandoff
    sealed: Parcel

    def fits(self, departure: Departure) -> bool:
        """Whether this departure would say the same."""
        ours, frozen = self.of.frozen, departure.frozen
        return (
            (frozen.tick, frozen.fence, frozen.state_hash) == (ours.tick, ours.fence, ours.state_hash)
            and departure.plan is self.of.plan
            and departure.target_incarnation == self.of.target_incarnation
            and departure.holding.chain is self.signed.before
        )


class Preparations:
    """The direct hand-overs of one server that are about to begin; sends what they consist of.

    `goes_directly` says whether an entity may, and `sketch` gives the departure that there would be if it were frozen
    now.
    """

    def __init__(
        self,
        sealer: Sealer,
        courier: Courier,
        clock: Clock,
        spawn: Spawn,
        goes_directly: Callable[[Plan, Holding], bool],
        sketch: Callable[[Plan, Holding], Departure],
    ) -> None:
        self._courier: Final = courier
        self._clock: Final = clock
        self.passes: Final = Passes(sealer, clock, spawn, self.send)
        self._spawn: Final = spawn
        self._goes_directly: Final = goes_directly
        self._sketch: Final = sketch
        # Of those whose turn to be frozen is the next one.
        self._waiting: set[str] = set()
        # At most one for each that is just being frozen.
        self._prepared: dict[str, _Prepared] = {}

    def __contains__(self, entity: str) -> bool:
        return entity in self._waiting

    def begun_ns(self, entity: str) -> int:
        """When something was made ready for this entity, which is frozen now; 0 if nothing was."""
        prepared = self._prepared.get(entity)
        return 0 if prepared is None else prepared.of.frozen.frozen_ns

    def forget(self) -> None:
        """Whoever was to freeze them is gone; they are ordered again. What was to be signed is tried again."""
        self.passes.forget()
        self._waiting.clear()
        self._prepared.clear()

    def begin(self, plan: Plan, holding: Holding, freeze: Callable[[], None]) -> bool:
        """Prepare for a hand-over, if it may be, and have `freeze` called in the next turn; whether it will be."""
        if self._waiting or not self._may_be(plan, holding) or not self._spawn(self._freeze_soon, plan.entity, freeze):
            return False
        self._waiting.add(plan.entity)
        departure = self._sketch(plan, holding)
        # What goes along with the state may be large.
        if len(departure.frozen.state) <= INLINE_STATE_BYTES // 2:
            self._prepared[plan.entity] = self._prepare(departure)
        return True

    def _may_be(self, plan: Plan, holding: Holding) -> bool:
        return (
            plan.mode is Mode.EAGER
            and not (plan.grouped or plan.in_company or plan.ahead)
            and self._goes_directly(plan, holding)
            and holding.life.state_bytes <= INLINE_STATE_BYTES // 2
            and self.passes.is_quiet()
            and self._courier.is_at_hand(plan.target)
        )

    def _prepare(self, departure: Departure) -> _Prepared:
        signed = self.passes.sign_ahead(departure)
        departure.passed_by(signed.token)
        message = departure.direct(with_state=True)
        sealed = self._courier.seal_ahead(message, departure.base, departure.plan.target)
        return _Prepared(departure, signed, message, sealed)

    async def _freeze_soon(self, entity: str, freeze: Callable[[], None]) -> None:
        # Ticks and inputs that are due have the same turn.
        await self._clock.own_turn()
        self._waiting.discard(entity)
        try:
            freeze()
        finally:
            self._prepared.pop(entity, None)

    def leaves(self, departure: Departure) -> bool:
        """Send what was made ready for this departure, if there is anything and it still is what it would say."""
        prepared = self._prepared.pop(departure.plan.entity, None)
        if prepared is None:
            return False
        # So that who measures can count what was done before the freeze, whether it is of use or not.
        begun_ns = prepared.of.frozen.frozen_ns
        departure.trace = departure.base = departure.base.mark(departure.source, "preparing", begun_ns)
        if not (prepared.fits(departure) and self.passes.is_current(prepared.signed)):
            return False
        departure.passed_by(prepared.signed.token)
        self._send(departure, prepared.message, sealed=prepared.sealed)
        self.passes.has_left(prepared.signed)
        return True

    def send(self, departure: Departure, attempt: int, hurry: bool = True) -> None:
        """Send the state and the chain; without the state where the target has it. As `Courier.send`."""
        message = departure.direct(with_state=departure.plan.mode is Mode.EAGER or attempt > 1)
        self._send(departure, message, hurry=hurry)

    def _send(
        self, departure: Departure, message: DirectHandoff, *, hurry: bool = True, sealed: Parcel | None = None
    ) -> None:
        to = departure.plan.target
        if self._courier.send(message, departure.base, to, on_path=True, hurry=hurry, sealed=sealed):
            departure.counters.update(requests=1, state_bytes=len(message.state))
