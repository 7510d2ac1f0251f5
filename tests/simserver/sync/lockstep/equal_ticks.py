"""Equal clients raise no alarm: as many ticks as wanted, with loss, late joiners and hand-overs."""

from collections.abc import Callable
from typing import Final

from batonpass.simserver.sync.lockstep.driver import SimDriver
from tests.simserver.sync.lockstep.lossy_room import Chances, Counts, LossyRoom
from tests.simserver.sync.lockstep.meadow import Meadow

LONG: Final = Chances(come=0.01, go=0.004, hand_over=0.001)


class AlarmRaised(AssertionError):
    """The stream told of a desync, or two hashes of a tick differed, though all clients were of one kind."""


def run_equal(
    seed: int,
    ticks: int,
    *,
    chances: Chances = LONG,
    new_game: Callable[[], SimDriver] = Meadow,
    told: Callable[[Counts], object] = lambda _: None,
) -> Counts:
    """Run until as many client-ticks had the hash of another client.

    Args:
        seed: of all that is drawn.
        ticks: how many client-ticks.
        chances: of what happens.
        new_game: each client's driver.
        told: is called after each tick of the stream.

    Raises:
        AlarmRaised: with the seed, and the tick.
    """
    room = LossyRoom(seed, new_game, chances=chances)
    for _ in range(3):
        room.come()
    while room.counts.equal < ticks:
        room.tick()
        if room.stream.machine.desync is not None or room.counts.first_differing is not None:
            raise AlarmRaised(f"seed {seed}: {room.stream.machine.desync}, {room.counts}")
        told(room.counts)
    return room.counts
