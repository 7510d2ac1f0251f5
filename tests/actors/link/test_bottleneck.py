"""The window off loopback: it fills a path that loses at random, queues little, and leaves others their share."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.actors.link.bottleneck import Bottleneck
from batonpass.actors.link.congestion import CongestionWindow
from tests.actors.link.pipe import DATAGRAM_BYTES, Flow, Pipe, run

MAX_BYTES = 2 * 1024 * 1024
BOUNDS = (10 * DATAGRAM_BYTES, 2 * DATAGRAM_BYTES, MAX_BYTES)


def used(pipe: Pipe, flow: Flow, duration_s: float) -> float:
    """The share of what the path carries."""
    return flow.delivered_bytes / (pipe.bytes_per_s * duration_s / 2)


def alone(window: Bottleneck | CongestionWindow, pipe: Pipe, duration_s: float = 4.0) -> float:
    flow = Flow(window)
    run(pipe, [flow], duration_s)
    return used(pipe, flow, duration_s)


# Bytes a second, seconds there and back, and the buffer as a multiple of what the path holds.
PATHS = [(1e6, 0.04, 1.0), (3e6, 0.02, 0.3), (3e6, 0.02, 3.0), (5e6, 0.002, 1.0), (2e6, 0.1, 1.0)]


def pipe_of(path: tuple[float, float, float], lose: float = 0.0) -> Pipe:
    bytes_per_s, delay_s, buffers = path
    return Pipe(bytes_per_s, delay_s, max(int(bytes_per_s * delay_s * buffers), 6 * DATAGRAM_BYTES), lose)


@pytest.mark.parametrize("path", PATHS)
def test_a_path_that_loses_nothing_is_used(path: tuple[float, float, float]) -> None:
    assert alone(Bottleneck(*BOUNDS), pipe_of(path)) > 0.7


@pytest.mark.parametrize("path", PATHS)
def test_one_datagram_lost_in_a_hundred_costs_little(path: tuple[float, float, float]) -> None:
    lossy, lossless = (alone(Bottleneck(*BOUNDS), pipe_of(path, lose)) for lose in (0.01, 0.0))
    assert lossy > 0.7 * lossless
    assert lossy >= alone(CongestionWindow(*BOUNDS), pipe_of(path, 0.01)) - 0.02


def test_one_lost_in_thirty_still_leaves_more_than_halving_would() -> None:
    path = (3e6, 0.02, 1.0)
    assert alone(Bottleneck(*BOUNDS), pipe_of(path, 0.03)) > alone(CongestionWindow(*BOUNDS), pipe_of(path, 0.03))


def test_two_of_a_kind_share() -> None:
    pipe = pipe_of((3e6, 0.02, 1.0))
    flows = [Flow(Bottleneck(*BOUNDS)), Flow(Bottleneck(*BOUNDS), start_s=1.0)]
    run(pipe, flows, 10.0)
    shares = [used(pipe, flow, 10.0) for flow in flows]
    assert sum(shares) > 0.85
    assert min(shares) > 0.25


@pytest.mark.parametrize("buffers", [0.5, 1.0, 3.0])
def test_beside_one_that_halves_its_window_it_leaves_that_one_a_share(buffers: float) -> None:
    pipe = pipe_of((3e6, 0.02, buffers))
    ours, other = flows = [Flow(Bottleneck(*BOUNDS)), Flow(CongestionWindow(*BOUNDS), start_s=1.0)]
    run(pipe, flows, 10.0)
    # Where the buffer is small, both lose often, and the other one believes it every time.
    assert used(pipe, other, 10.0) > (0.45 if buffers >= 1 else 0.25)
    assert used(pipe, ours, 10.0) > 0.03


def test_after_the_beginning_it_queues_little() -> None:
    pipe = pipe_of((3e6, 0.02, 5.0))
    flow = Flow(Bottleneck(*BOUNDS))
    run(pipe, [flow], 2.0)
    pipe.most_queued_s = 0.0
    run_on = Flow(flow.window, start_s=2.1)
    run(pipe, [run_on], 6.0)
    assert pipe.most_queued_s < 1.5 * pipe.delay_s


def test_a_path_that_became_longer_is_filled_again() -> None:
    """The shortest round trip was another path's; after ten seconds it is looked for."""
    pipe = pipe_of((2e6, 0.02, 2.0))
    flow = Flow(Bottleneck(*BOUNDS))
    run(pipe, [flow], 2.0)
    pipe.delay_s = 0.2
    window = flow.window
    later = Flow(window, start_s=2.0)
    run(pipe, [later], 32.0)
    assert used(pipe, later, 32.0) > 0.5


@given(
    st.integers(0, 2**32),
    st.lists(st.sampled_from(["acked", "acked", "acked", "lost", "pause", "collapse"]), max_size=200),
)
def test_whatever_happens_it_keeps_its_bounds(seed: int, steps: list[str]) -> None:
    dice, now = random.Random(seed), 0.0
    window = Bottleneck(*BOUNDS)
    for step in steps:
        now += dice.choice([0.0, 0.0001, 0.01, 0.3])
        sent_s = now - dice.choice([0.0, 0.0001, 0.02, 1.0])
        size_bytes = dice.randrange(1, MAX_BYTES)
        match step:
            case "acked":
                window.on_acked(size_bytes, sent_s, now)
            case "lost":
                window.on_lost(size_bytes, sent_s, now)
            case "pause":
                now += 20.0
            case _:
                window.collapse()
                assert window.bytes == BOUNDS[1]
        assert BOUNDS[1] <= window.bytes <= MAX_BYTES


def test_after_a_collapse_it_grows_again() -> None:
    pipe = pipe_of((2e6, 0.02, 1.0))
    window = Bottleneck(*BOUNDS)
    run(pipe, [Flow(window)], 1.0)
    window.collapse()
    flow = Flow(window, start_s=1.0)
    run(pipe, [flow], 4.0)
    assert flow.delivered_bytes / (pipe.bytes_per_s * 2.0) > 0.7
