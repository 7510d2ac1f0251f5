"""How much a consumer asks for, and when it asks for more: the arithmetic of one subscription (pure).

A consumer asks for `maximum` events at first. It handles what comes in batches of at most `maximum - minimum`. When
what is pending has fallen to `minimum` it asks for as much as brings it back to `maximum`. So there are never more than
`maximum` events on their way or waiting. And there are never so few asked for that the producer would have to wait for
a consumer which still has work. Source: GenStage's documentation of `max_demand` and `min_demand`.
"""

from typing import Final, NamedTuple, final

__all__ = ["DEFAULT_MAX_DEMAND", "ExcessEvents", "Portion", "SubscriptionDemand"]

DEFAULT_MAX_DEMAND: Final = 1000
"""GenStage's."""


class ExcessEvents(Exception):
    """A producer sent more than it was asked for: it is broken, and so is every promise about memory."""

    def __init__(self, received: int, pending: int) -> None:
        super().__init__(
            f"a producer sent {received} events when only {pending} were asked for; a producer may send less than"
            " it was asked for, or later, but never more"
        )


class Portion(NamedTuple):
    """A batch of `size` events to handle; when that is done, ask for `ask` more."""

    size: int
    ask: int


@final
class SubscriptionDemand:
    """The demand of one subscription. `pending` events are asked for, or will be when a portion is handled."""

    __slots__ = ("maximum", "minimum", "pending")

    def __init__(self, maximum: int = DEFAULT_MAX_DEMAND, minimum: int | None = None) -> None:
        """`minimum` defaults to half of `maximum`. Raises `ValueError` unless 0 <= minimum < maximum."""
        self.maximum = maximum
        self.minimum = maximum // 2 if minimum is None else minimum
        if not 0 <= self.minimum < self.maximum:
            raise ValueError(
                f"max_demand {maximum} and min_demand {self.minimum} make no demand:"
                " min_demand must be at least 0 and less than max_demand"
            )
        self.pending = 0

    def begin(self) -> int:
        """Start: how many to ask for."""
        self.pending = self.maximum
        return self.maximum

    def receive(self, count: int) -> list[Portion]:
        """`count` events came: how to handle them. Raises `ExcessEvents`."""
        if count > self.pending:
            raise ExcessEvents(count, self.pending)
        portions = []
        while count:
            size = min(count, self.maximum - self.minimum)
            count -= size
            self.pending -= size
            ask = 0
            if self.pending <= self.minimum:
                ask = self.maximum - self.pending
                self.pending = self.maximum
            portions.append(Portion(size, ask))
        return portions
