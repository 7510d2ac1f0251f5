"""A long show with faults: `python -m tests.simserver.sync.followers.long_run --frames 100000 --kills 3 --seed 1`.

Prints what came of it as JSON, and ends with 1 if a frame number had two contents or a node went back.
"""

import argparse
import json
import sys
import time
from typing import Any

from tests.simserver.sync.followers.simulated_show import S, SimulatedShow, Weather, settings_of


def run_long(
    frames: int, kills: int, seed: int, mode: str = "state", nodes: int = 5, **settings: Any
) -> dict[str, Any]:
    """Run a show until so many frames; the controller dies `kills` times, once with the follower that had most."""
    names = [f"n{number:03}" for number in range(nodes)]
    weather = Weather(loss=0.02, duplication=0.01, delay_ms=(0.2, 5.0))
    show = SimulatedShow(names, settings_of(mode, **settings), seed, weather, keep=2_000)
    began = time.process_time()
    kill_at = [frames * (number + 1) // (kills + 1) for number in range(kills)]
    killed = list[dict[str, Any]]()
    faults_every = max(1, frames // 200)
    next_fault = faults_every
    while show.newest_frame < frames:
        show.run_for(0.05)
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
        "promotions": len(promotions),
        "promotion_p50_ms": round(promotions[len(promotions) // 2], 1) if promotions else None,
        "promotion_p99_ms": round(promotions[len(promotions) * 99 // 100], 1) if promotions else None,
        "promotion_max_ms": round(promotions[-1], 1) if promotions else None,
        "dropped": {
            name: sum(node.machine.counters[name] for node in show.nodes.values())
            for name in ("dropped_lost", "dropped_never_sent", "dropped_no_base", "dropped_passed_over", "diverged")
        },
        "two_contents": show.count("two_contents"),
        "processor_s": round(time.process_time() - began, 1),
    }


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
    given = parser.parse_args()
    result = run_long(given.frames, given.kills, given.seed, given.mode, given.nodes, fan_out=given.fan_out)
    sys.stdout.write(json.dumps(result, indent=1) + "\n")
    return 1 if result["faults"] or result["behind"] or result["two_contents"] else 0


if __name__ == "__main__":
    sys.exit(main())
