"""A long show with faults: `python -m tests.simserver.sync.followers.long_run --frames 100000 --kills 3 --seed 1`.

Prints what came of it as JSON, and ends with 1 if a frame number had two contents or a node went back.
"""

import argparse
import json
import sys
import time
from functools import partial
from typing import Any

from tests.simserver.sync.followers.simulated_show import S, SimulatedShow, Weather, settings_of

LATE = "late"


def run_long(
    frames: int,
    kills: int,
    seed: int,
    mode: str = "state",
    nodes: int = 5,
    *,
    join_at: int | None = None,
    first: int = 1,
    harms: int = 200,
    **settings: Any,
) -> dict[str, Any]:
    """Run a show until so many frames; the controller dies `kills` times, once with the follower that had most.

    Args:
        join_at: a node that was never there starts at this frame; how many frames later it has the same hash as all
            others is what it is about.
        first: the number of the first frame, as in a show that was taken over from a copy.
        harms: how often nodes are cut off, or authority is handed over.
    """
    names = [f"n{number:03}" for number in range(nodes)]
    weather = Weather(loss=0.02, duplication=0.01, delay_ms=(0.2, 5.0))
    settled = settings_of(mode, **settings)
    from_copy = partial(_first_of_copy, first)
    # Of a larger state most stays as it is, or a delta would be as long as the state, and never sent.
    state_bytes = 1_000 if mode == "delta" else 64
    show = SimulatedShow(names, settled, seed, weather, state_bytes=state_bytes, keep=2_000, first_of_copy=from_copy)
    began = time.process_time()
    kill_at = [frames * (number + 1) // (kills + 1) for number in range(kills)]
    killed = list[dict[str, Any]]()
    faults_every = max(1, frames // harms) if harms else 2 * frames
    next_fault = faults_every
    while show.newest_frame < frames:
        show.run_for(0.05)
        if join_at is not None and LATE not in show.nodes and show.newest_frame >= join_at:
            show.join(LATE)
        if kill_at and show.newest_frame >= kill_at[0]:
            kill_at.pop(0)
            gone = [show.controller]
            if len(killed) % 3 == 1:
                followers = [node for node in show.live() if node.name != show.controller]
                gone.append(max(followers, key=lambda node: max(node.applied, default=0)).name)
            for name in gone:
                show.kill(name)
                show.at(show.now_ns + 3 * S, lambda name=name: show.join(name))  # type: ignore[misc]
            killed.append({"frame": show.newest_frame, "nodes": gone})
        elif show.newest_frame >= next_fault:
            next_fault += faults_every
            _harm(show)
    show.isolated.clear()
    show.run_for(3.0)
    newest = {node.name: max(node.applied, default=0) for node in show.live()}
    promotions = sorted(show.promotions_ms)
    return {
        "mode": mode,
        "seed": seed,
        "frames": show.newest_frame,
        "nodes": nodes,
        "killed": killed,
        "epochs": show.epoch,
        "faults": show.faults[:10],
        "behind": {name: show.newest_frame - frame for name, frame in newest.items() if show.newest_frame - frame > 8},
        "frames_until_joined": show.join_frames,
        "kinds": dict(show.kinds),
        "late_node": _late_node(show),
        "promotions": len(promotions),
        "promotion_p50_ms": round(promotions[len(promotions) // 2], 1) if promotions else None,
        "promotion_p99_ms": round(promotions[len(promotions) * 99 // 100], 1) if promotions else None,
        "promotion_max_ms": round(promotions[-1], 1) if promotions else None,
        "promotion_phases_ms": _phases(show.promotion_phases_ms),
        "dropped": {
            name: sum(node.machine.counters[name] for node in show.nodes.values())
            for name in ("dropped_lost", "dropped_never_sent", "dropped_no_base", "dropped_passed_over", "diverged")
        },
        "two_contents": show.count("two_contents"),
        "processor_s": round(time.process_time() - began, 1),
    }


def _first_of_copy(first: int, show: SimulatedShow) -> int:
    return max(first, show.copy_limit)


def _late_node(show: SimulatedShow) -> dict[str, int] | None:
    """When it was started, its first frame with the hash that this frame has everywhere, and how many have it."""
    node = show.nodes.get(LATE)
    if node is None:
        return None
    equal = [frame for frame, digest in node.applied.items() if show.contents.get(frame) == digest]
    first = min(equal, default=-1)
    return {"started_at": node.joined_frame, "k": first - node.joined_frame, "equal": len(equal)}


def _phases(promotions: list[tuple[float, float, float]]) -> dict[str, dict[str, float]]:
    """Percentiles by nearest rank."""
    found = {}
    for name, each in zip(("first_begun", "computed", "everywhere"), zip(*promotions, strict=True), strict=False):
        ordered = sorted(each)
        found[name] = {f"p{share}": round(ordered[-(-len(ordered) * share // 100) - 1], 1) for share in (50, 95, 99)}
    return found


def _harm(show: SimulatedShow) -> None:
    """A node is cut off for a while, or the controller from the authority, or authority is handed over."""
    rng = show.rng
    name = rng.choice([node.name for node in show.live()])
    kind = rng.randrange(8)
    if kind == 0 and len(show.live()) > 2 and not show.no_authority:
        controller = show.controller
        show.no_authority.add(controller)

        def back() -> None:
            show.no_authority.discard(controller)
            show.tell(controller)

        show.at(show.now_ns + 2 * S, back)
    elif kind == 1 and name != show.controller and not show.no_authority:
        show.hand_over(name)
    else:
        show.isolate(name, show.now_ns + rng.randrange(S // 10, 2 * S))


def main() -> int:
    """Run as the arguments say."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--frames", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nodes", type=int, default=5)
    parser.add_argument("--fan-out", type=int, default=0)
    parser.add_argument("--mode", default="state")
    parser.add_argument("--join-at", type=int, help="a node that was never there starts at this frame")
    parser.add_argument("--harms", type=int, default=200, help="how often nodes are cut off or authority moves")
    given = parser.parse_args()
    flags = {"fan_out": given.fan_out, "join_at": given.join_at, "harms": given.harms}
    result = run_long(given.frames, given.kills, given.seed, given.mode, given.nodes, **flags)
    sys.stdout.write(json.dumps(result, indent=1) + "\n")
    return 1 if result["faults"] or result["behind"] or result["two_contents"] else 0


if __name__ == "__main__":
    sys.exit(main())
