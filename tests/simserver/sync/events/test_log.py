"""The events of a stream, found by tick."""

from hypothesis import given
from hypothesis import strategies as st

from batonpass.simserver.sync.events.log import StreamLog
from batonpass.simserver.sync.events.messages import StreamEvent

ticks = st.lists(st.integers(1, 30), max_size=40).map(sorted)


def log_of(of: list[int]) -> StreamLog:
    return StreamLog(StreamEvent(tick, "move", "1", f"{number}") for number, tick in enumerate(of))


@given(ticks, st.integers(0, 31), st.integers(0, 31))
def test_what_is_found_is_what_looking_at_all_finds(of: list[int], known: int, tick: int) -> None:
    found = [event.body for event in log_of(of).between(known, tick)]
    assert found == [f"{number}" for number, when in enumerate(of) if known < when <= tick]


@given(ticks, st.integers(0, 31))
def test_what_is_dropped_is_gone_and_the_rest_is_whole(of: list[int], tick: int) -> None:
    log, fresh = log_of(of), log_of([])
    log.drop_before(tick)
    assert [event.body for event in log.between(0, 31)] == [
        f"{number}" for number, when in enumerate(of) if when > tick
    ]
    for event in log.between(0, 31):
        fresh.append(event)
    assert (log.oldest, log.size_bytes, len(log)) == (tick, fresh.size_bytes, len(fresh))


def test_finding_looks_at_few_events_however_many_there_are() -> None:
    looks = 0

    class Tick(int):
        def __gt__(self, other: object) -> bool:
            nonlocal looks
            looks += 1
            return int.__gt__(self, other)  # type: ignore[operator]

    log = StreamLog(StreamEvent(Tick(tick), "move", "1", "") for tick in range(50_000))
    assert len(log.between(49_990, 60_000)) == 9
    assert 0 < looks <= 40
