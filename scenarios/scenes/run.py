"""`baton run scenes`: a renderer and its scenes, each a process, one stage after the other and then double-buffered."""

import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
import trio

from batonpass.scenarios.cases.cases import machine, versions
from batonpass.scenarios.common.errors import EnvironmentFailed
from batonpass.scenarios.common.options import FiniteRange, html_file_option, json_file_option
from batonpass.scenarios.report.model import RunFacts
from batonpass.scenarios.scenes.judge import WAYS, WayFigures, WayRecord, figures_of, problems_of_way
from batonpass.scenarios.scenes.plan import SceneBehaviour, ScenesPlan, SceneSpot, spots_of
from batonpass.scenarios.scenes.records import read_renderer, read_spans

__all__ = ["ScenesResult", "command", "problems_of", "result_data", "run_scenes"]

_KIND: Final = "batonpass.scenes"
_READY: Final = "ready"
_START_S: Final = 60.0
_END_S: Final = 60.0
_PATIENCE_S: Final = 90.0


@dataclass(frozen=True)
class ScenesResult:
    """What both ways have measured."""

    plan: ScenesPlan
    facts: RunFacts
    ways: Mapping[str, WayRecord]

    def figures(self, way: str) -> WayFigures:
        """The figures of one way."""
        return figures_of(self.plan, self.ways[way])

    @property
    def gain(self) -> float | None:
        """How many times as often the first scene computes if double-buffered; None if it computed nothing."""
        naive, double_buffered = (self.figures(way).first_frames_per_s for way in WAYS)
        return double_buffered / naive if naive else None


def problems_of(result: ScenesResult) -> tuple[str, ...]:
    """What is wrong with a run; empty when it passed."""
    return tuple(problem for name, way in result.ways.items() for problem in problems_of_way(result.plan, name, way))


async def run_scenes(
    plan: ScenesPlan,
    *,
    progress: Callable[[int, int], None] = lambda _way, _at: None,
    page: Callable[[str], None] | None = None,
) -> ScenesResult:
    """Run a plan in both ways, one after the other.

    Args:
        plan: what is run.
        progress: told how many seconds of which way are over.
        page: told the URL of the live page of each way, while it runs; None: there is none.

    Raises:
        EnvironmentFailed: a process did not begin, or failed.
    """
    started_at = datetime.now(UTC)  # noqa: TID251 — the date on the report; nothing is computed from it
    ways = {}
    for number, way in enumerate(WAYS):
        with tempfile.TemporaryDirectory(prefix="batonpass-scenes-") as directory:
            ways[way] = await _run_way(plan, way, Path(directory), partial(progress, number), page)
    facts = RunFacts(versions=dict(versions()), seed=plan.seed, machine=dict(machine()), started_at=started_at)
    return ScenesResult(plan, facts, ways)


async def _run_way(
    plan: ScenesPlan,
    way: str,
    directory: Path,
    progress: Callable[[int], None],
    page: Callable[[str], None] | None,
) -> WayRecord:
    socket, record = directory / "renderer", directory / "renderer.json"
    arguments = [str(socket), str(record), json.dumps(asdict(plan)), way, "page" if page else "none"]
    async with trio.open_nursery() as nursery:
        display = await nursery.start(partial(_started, "display", arguments, with_output=True))
        url = await _until_ready(display)
        if page is not None:
            page(url)
        ended = []
        for spot in spots_of(plan):
            scene = await nursery.start(partial(_started, "program", _scene_arguments(plan, spot, socket, directory)))
            if spot.behaviour is SceneBehaviour.GOOD:
                ended.append(scene)
        nursery.start_soon(_tick, plan, progress)
        with trio.move_on_after(_PATIENCE_S + plan.seconds) as patience:
            await display.wait()
        if patience.cancelled_caught or display.returncode or not record.exists():
            raise EnvironmentFailed(f"the renderer has not measured anything: its exit status is {display.returncode}")
        progress(int(plan.seconds))
        # Scenes end as their renderer does, and write their records.
        with trio.move_on_after(_END_S):
            for scene in ended:
                await scene.wait()
        nursery.cancel_scope.cancel()
    files = {spot.name: directory / f"{spot.name}.json" for spot in spots_of(plan)}
    return WayRecord(read_renderer(record), {name: read_spans(file) for name, file in files.items() if file.exists()})


def _scene_arguments(plan: ScenesPlan, spot: SceneSpot, socket: Path, directory: Path) -> list[str]:
    said = json.dumps([spot.name, spot.behaviour, *spot.place])
    return [str(socket), str(directory / f"{spot.name}.json"), said, str(plan.scene_ms)]


async def _started(
    module: str,
    arguments: list[str],
    *,
    with_output: bool = False,
    task_status: trio.TaskStatus[trio.Process] = trio.TASK_STATUS_IGNORED,
) -> None:
    """A process of this room, which is killed if this is cancelled."""
    command = [sys.executable, "-m", f"batonpass.scenarios.scenes.{module}", *arguments]
    output = subprocess.PIPE if with_output else None
    process: trio.Process | None = None
    try:
        process = await trio.lowlevel.open_process(command, stdin=subprocess.DEVNULL, stdout=output)
        task_status.started(process)
        await process.wait()
    finally:
        if process is not None and process.returncode is None:
            with trio.CancelScope(shield=True):
                process.kill()
                await process.wait()


async def _until_ready(display: trio.Process) -> str:
    """The URL of its page, if it has one."""
    said = b""
    with trio.move_on_after(_START_S):
        while display.stdout is not None and not said.endswith(b"\n") and (more := await display.stdout.receive_some()):
            said += more
    ready, _, url = said.decode().rstrip("\n").partition(" ")
    if ready != _READY:
        raise EnvironmentFailed(
            f"the renderer did not begin within {_START_S:g} s: its exit status is {display.poll()}"
        )
    return url


async def _tick(plan: ScenesPlan, progress: Callable[[int], None]) -> None:
    for second in range(1, int(plan.seconds)):
        await trio.sleep(1.0)
        progress(second)
    await trio.sleep_forever()


def result_data(result: ScenesResult) -> dict[str, Any]:
    """The result as JSON data."""
    problems = problems_of(result)
    return {
        "kind": _KIND,
        "passed": not problems,
        "problems": list(problems),
        **result.facts.model_dump(mode="json"),
        "plan": asdict(result.plan),
        "gain": result.gain,
        "ways": {
            way: asdict(result.figures(way))
            | {"orders": [asdict(each) for each in record.renderer.orders], "graphs": record.renderer.graphs}
            for way, record in result.ways.items()
        },
    }


# ---- the command ----


@click.command(name="scenes")
@click.option("--scenes", type=click.IntRange(1, 64), default=20, show_default=True, help="Each is a process.")
@click.option("--players", type=click.IntRange(1, 100), default=3, show_default=True, help="Who walk among them.")
@click.option("--seconds", type=FiniteRange(1.0, 3_600.0), default=5.0, show_default=True, help="For each way.")
@click.option("--rate", type=click.IntRange(1, 240), default=60, show_default=True, help="Refreshes per second.")
@click.option("--scene-ms", type=FiniteRange(0.0, 1_000.0), default=10.0, show_default=True, help="A scene's Update.")
@click.option("--gpu-ms", type=FiniteRange(0.0, 1_000.0), default=10.0, show_default=True, help="The GPU's Render.")
@click.option("--quota-ms", type=FiniteRange(0.01, 1_000.0), default=1.0, show_default=True, help="Of each Receive.")
@click.option("--seed", type=int, help="Of places and walks. [default: a new one, printed with the report]")
@click.option("--page", "with_page", is_flag=True, help="Serve a live page of the scenes, and print its URL.")
@html_file_option()
@json_file_option("Write the report as JSON.")
def command(
    with_page: bool, html_file: Path | None, json_file: Path | None, seed: int | None, **of_the_plan: Any
) -> int:
    """Run a renderer and its scenes in two ways: each stage waits for the one before, and double-buffered.

    Of six scenes and more, one is slow, one falls silent and one floods: they slow themselves alone. Exit status 1 if a
    scene computed nothing, the order of scenes or stages was wrong, or nothing was drawn.

    \b
    Examples:
      baton run scenes                                      20 scenes, 3 players, 5 seconds for each way
      baton run scenes --scenes 1 --html scenes.html        one scene, and a page with the timelines of both
      baton run scenes --page --seconds 600                 look at the scenes in a browser while they run
      baton run scenes --scene-ms 30 --seed 7               scenes that take two refreshes, and walks to repeat
    """
    from batonpass.scenarios.cli.progress import RunScreen
    from batonpass.scenarios.scenes.page import scenes_page, scenes_table

    plan = ScenesPlan(seed=random.SystemRandom().getrandbits(32) if seed is None else seed, **of_the_plan)
    screen = RunScreen([f"{way}, seconds" for way in WAYS], int(plan.seconds))
    with screen:
        page = (lambda url: click.echo(f"live page: {url}", err=True)) if with_page else None
        result = trio.run(partial(run_scenes, plan, progress=screen.progress, page=page))
    html, data = (html_file, partial(scenes_page, result)), (json_file, partial(result_data, result))
    return screen.show_result(scenes_table(result), problems_of(result), html, data)
