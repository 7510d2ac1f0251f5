"""Random walks through `handover_model`: whatever may happen, in an order drawn from a seed."""

from collections.abc import Callable
from random import Random

from batonpass.authority.model.records import Rule
from tests.authority.handover_model import HandoverWorld
from tests.authority.model_server import MASTER, SERVERS, STRANGER, TARGETS, Variant


def random_walk(seed: int, variant: Variant | None = None, steps: int = 120) -> None:
    """A run that follows from `seed` alone: `steps` steps of disorder, then order.

    Raises:
        Broken: a safety sentence does not hold.
    """
    dice = Random(seed)
    world = HandoverWorld(variant)
    # How bad this run's network is.
    weights = {
        "deliver": 30,
        "repeat": dice.choice((0, 3, 12)),
        "drop": dice.choice((0, 2, 8)),
        "tick": 6,
        "time": dice.choice((2, 8)),
        "order": 4,
        "again": 2,
        "wander": 2,
        "rule": 1,
        "delegate": 2,
        "admission": 1,
        "others": dice.choice((0, 2)),
        "part": dice.choice((0, 0, 1)),
    }
    names, chances = list(weights), list(weights.values())
    try:
        for _ in range(steps):
            take_step(world, dice.choices(names, chances)[0], dice)
        world.local_admission = True
        world.settle()
    finally:
        world.close()


def take_step(world: HandoverWorld, name: str, dice: Random) -> None:
    """One named step with diced details."""
    place = dice.randrange(1000)
    steps: dict[str, Callable[[], None]] = {
        "deliver": lambda: world.deliver(place),
        "repeat": lambda: world.repeat(place),
        "drop": lambda: world.drop(place),
        "tick": world.tick,
        "time": lambda: world.time_passes(dice.choice((0.1, 0.3, 1.0))),
        "order": lambda: world.order(
            dice.choices(TARGETS, (5, 5, 5, 1, 1))[0],
            direct=dice.random() < 0.5,
            requester=dice.choice(("", MASTER, STRANGER)),
            staged=dice.random() < 0.4,
        ),
        "again": lambda: world.order_again(place),
        "wander": lambda: world.wander(dice.choice(SERVERS), dice.choice(SERVERS), direct=dice.random() < 0.5),
        "rule": lambda: world.change_rule(dice.choice(list(Rule))),
        "delegate": world.delegate,
        "admission": lambda: setattr(world, "local_admission", not world.local_admission),
        "others": lambda: world.others_move(dice.randrange(1, 4)),
        "part": world.part_from_another_history,
    }
    steps[name]()
