"""What `baton run sectors` shows while it works: the flights' own time, and how many aircraft are in the air."""

from datetime import UTC, datetime
from typing import Final

from rich.progress import TaskID

from batonpass.scenarios.cli.progress import RunScreen
from batonpass.scenarios.sectors.feed import FeedProgress
from batonpass.scenarios.sectors.plan import SectorsPlan

__all__ = ["SectorsScreen"]

# In a log a line now and then is enough.
LOG_EVERY_MINUTES: Final = 10


class SectorsScreen(RunScreen):
    """Progress on stderr, results on stdout. The bar counts minutes of the flights' time."""

    def __init__(self, plan: SectorsPlan) -> None:
        self._minutes = max(1, -(-(plan.end_ms - plan.start_ms) // 60_000))
        super().__init__(["flights' time, minutes"], self._minutes)
        self._start_ms = plan.start_ms
        self._bar: TaskID | None = None
        self._logged_minutes = -1

    def flown(self, progress: FeedProgress) -> None:
        """The flights have come so far."""
        text = (
            f"{datetime.fromtimestamp(progress.at_ms / 1000, UTC):%H:%M:%S}  {progress.flying:,} flying, "
            f"{progress.finished:,} finished, {progress.applied:,} positions"
        )
        minutes = min(self._minutes, -(-(progress.at_ms - self._start_ms) // 60_000))
        if self._bar is None:
            self._bar = self._progress.add_task(text, total=self._minutes)
        self._progress.update(self._bar, completed=minutes, description=text)
        if not self._err.is_terminal and minutes // LOG_EVERY_MINUTES > self._logged_minutes:
            self._logged_minutes = minutes // LOG_EVERY_MINUTES
            self._err.print(text)
