"""Which server counts as hot: one that has said so for a while, and still is with what was ordered off it."""

from collections.abc import Callable

from tests.homeserver.transfer.test_refused_orders import COOL, SOURCE, Instance


def hot(entities: int = 18) -> Instance:
    instance = Instance(drained=())
    instance.tick_ppm[SOURCE] = 900_000
    for number in range(entities):
        instance.put(f"alpha.e{number:02}")
    return instance


def says(instance: Instance, tick_ppm: Callable[[float], int]) -> None:
    """What the first server reports depends on the time."""
    report = instance.report

    def changing() -> None:
        instance.tick_ppm[SOURCE] = tick_ppm(instance.clock.now_s)
        report()

    instance.clock.in_between = changing


async def test_one_report_of_a_pause_moves_nobody() -> None:
    """A server that stood still for two seconds says that its ticks took twice what there is, once."""
    instance = hot()
    says(instance, lambda now_s: 2_000_000 if 102.0 <= now_s < 103.2 else 400_000)
    await instance.runs(30)
    assert instance.orders == []


async def test_who_stays_hot_is_relieved_once() -> None:
    """It reports 0.9 until 2.5 s after the order, and 0.65 from then on: five of 18 are enough, and none goes twice."""
    instance = hot()
    says(instance, lambda now_s: 900_000 if not instance.orders or now_s < instance.orders[0][0] + 2.5 else 650_000)
    await instance.runs(30)
    assert len(instance.orders) == 5
    assert set(instance.ordered_to(COOL).values()) == {1}
    assert 1.5 <= instance.orders[0][0] - 100.0 <= 4.0


async def test_who_is_as_hot_as_before_though_something_was_moved_gives_up_more() -> None:
    """What was expected did not come: its other entities have become more expensive."""
    instance = hot()
    await instance.runs(8)
    assert len(instance.orders) > 5
