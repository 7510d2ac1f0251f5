"""What `baton run` shows while it works: the cluster coming up, then a progress bar per case."""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from batonpass.scenarios.cluster.cluster import LocalCluster
from batonpass.scenarios.cluster.events import ClusterEvent, Kept, Ready, ServerCrashed, Started
from batonpass.scenarios.report.files import write_atomically

__all__ = ["RunScreen"]

# What the report's table needs; a narrower terminal folds lines.
MIN_WIDTH = 100


class RunScreen:
    """Progress on stderr, results on stdout.

    Args:
        bars: the title of each bar, in order.
        total: what each bar counts to.
    """

    def __init__(self, bars: Sequence[str], total: int) -> None:
        self.console = _console(stderr=False)
        self._err = _console(stderr=True)
        self._titles = list(bars)
        self._total = total
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._err,
            disable=not self._err.is_terminal,
        )
        self._starting: TaskID | None = None
        self._bars: list[TaskID] = []

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()

    def show_result(
        self,
        table: RenderableType,
        problems: Sequence[str],
        html: tuple[Path | None, Callable[[], str]],
        data: tuple[Path | None, Callable[[], object]],
    ) -> int:
        """Print the table and what is wrong, and write the reports for which there is a file. The exit status.

        Args:
            table: the result.
            problems: what is wrong with it, a sentence each.
            html: the file for the page, and what makes the page.
            data: the file for the JSON, and what makes the data.
        """
        self.console.print(table)
        for problem in problems:
            self.console.print(f"[red]{problem}[/red]")
        html_file, page = html
        if html_file is not None:
            write_atomically(html_file, page())
            self.console.print(f"HTML report: {html_file}")
        json_file, made = data
        if json_file is not None:
            write_atomically(json_file, json.dumps(made(), indent=2) + "\n")
        return 1 if problems else 0

    def cluster_event(self, event: ClusterEvent) -> None:
        """Something happened to the cluster."""
        match event:
            case Started(servers=servers):
                self._err.print(Text(event.sentence, style="dim"), soft_wrap=True)
                self._starting = self._progress.add_task("starting servers", total=servers)
            case Ready(ready=ready) if self._starting is not None:
                self._progress.update(self._starting, completed=ready)
            case ServerCrashed() | Kept():
                self._err.print(Text(event.sentence, style="bold red" if isinstance(event, ServerCrashed) else "dim"))
            case _:
                pass

    def cluster_ready(self, cluster: LocalCluster) -> None:
        """Say who runs, with process ids: so that one can be killed and watched."""
        names = ", ".join(f"{server.name} {server.pid}" for server in cluster.servers)
        self._err.print(Text(f"{len(cluster.servers)} servers are ready (name pid): {names}", style="dim"))

    def say(self, sentence: str) -> None:
        """For what is this waiting?"""
        self._err.print(Text(sentence, style="dim"), soft_wrap=True)

    def progress(self, bar: int, done: int) -> None:
        """Bar number `bar` has come to `done`."""
        while len(self._bars) <= bar:
            title = self._titles[len(self._bars)]
            self._bars.append(self._progress.add_task(title, total=self._total))
        self._progress.update(self._bars[bar], completed=done)
        if done == self._total and not self._err.is_terminal:
            self._err.print(f"{self._titles[bar]}: {done} done")


def _console(*, stderr: bool) -> Console:
    console = Console(file=sys.stderr if stderr else sys.stdout)
    if console.width < MIN_WIDTH:
        console = Console(file=sys.stderr if stderr else sys.stdout, width=MIN_WIDTH)
    return console
