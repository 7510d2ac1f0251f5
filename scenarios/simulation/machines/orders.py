"""Orders to old authorities: said again until the log has a result, as `homeserver.transfer.order_retry` does it."""

from typing import TYPE_CHECKING, Final

from batonpass.authority.fence import Fence
from batonpass.authority.model.records import Phase
from batonpass.authority.wire.transfer import Order
from batonpass.scenarios.simulation.kernel.schedule import Schedule

if TYPE_CHECKING:
    from batonpass.scenarios.simulation.machines.home import MachineHome

__all__ = ["AGAIN_S", "MachineOrders"]

AGAIN_S: Final = 1.0


class MachineOrders:
    """The permitted transfers of one home instance that no server has begun, or not ended."""

    def __init__(self, home: "MachineHome", schedule: Schedule) -> None:
        self._home: Final = home
        self._schedule: Final = schedule
        self.waiting: Final[dict[str, None]] = {}

    def add(self, transfer_id: str) -> None:
        """A transfer was permitted."""
        self.waiting[transfer_id] = None
        self._order(transfer_id)

    def _order(self, transfer_id: str) -> None:
        home, transfer = self._home, self._home.transfer(transfer_id)
        if transfer is None or transfer.phase is not Phase.PERMITTED:
            del self.waiting[transfer_id]
            return
        self._schedule.after(AGAIN_S, lambda: self._order(transfer_id))
        record = home.record(transfer.entity)
        if home.is_away or not record.authority:
            return
        undecided_at = record.fence if transfer.direct else Fence(0)
        order = Order(
            transfer_id=transfer.id,
            entity=transfer.entity,
            target=transfer.target,
            direct=transfer.direct,
            mode="staged" if transfer.mode == "staged" else "eager",
            freeze_budget_ms=transfer.freeze_budget_ms,
            epoch=undecided_at.epoch,
            sub=undecided_at.sub,
        )
        home.send(record.authority, order)
