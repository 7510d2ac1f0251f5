"""What a cluster tells about itself while it starts, runs and ends. Each event has a sentence for people."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from batonpass.scenarios.cluster.processes import ChildExit

__all__ = [
    "Added",
    "ClusterEvent",
    "Kept",
    "Left",
    "NotInPeace",
    "Progress",
    "Ready",
    "Removed",
    "ServerCrashed",
    "Started",
    "Stopping",
]


@dataclass(frozen=True)
class Started:
    """All processes are started; now they are waited for."""

    servers: int
    directory: Path

    @property
    def sentence(self) -> str:
        """For people."""
        return f"starting {self.servers} servers in {self.directory}"


@dataclass(frozen=True)
class Added:
    """A simulation server was added while the cluster ran, and is ready."""

    name: str

    @property
    def sentence(self) -> str:
        """For people."""
        return f"{self.name} is added"


@dataclass(frozen=True)
class Removed:
    """A simulation server was stopped for good."""

    name: str

    @property
    def sentence(self) -> str:
        """For people."""
        return f"{self.name} is removed; its files stay"


@dataclass(frozen=True)
class Ready:
    """One more server says that it is ready."""

    name: str
    ready: int
    servers: int
    after_s: float

    @property
    def sentence(self) -> str:
        """For people."""
        return f"{self.name} is ready after {self.after_s:.1f} s ({self.ready} of {self.servers})"


@dataclass(frozen=True)
class ServerCrashed:
    """A server ended without being asked; the others continue. By the command `again` it is started again."""

    exit: ChildExit
    again: str

    @property
    def sentence(self) -> str:
        """For people; several lines, with the end of the log."""
        return self.exit.report


@dataclass(frozen=True)
class Left:
    """A homeserver has ended because its instance let it go: it is no member any more."""

    name: str

    @property
    def sentence(self) -> str:
        """For people."""
        return f"{self.name} is no member of its instance any more and has ended; its files stay"


@dataclass(frozen=True)
class Stopping:
    """The servers are being asked to end."""

    servers: int

    @property
    def sentence(self) -> str:
        """For people."""
        return f"stopping {self.servers} servers"


@dataclass(frozen=True)
class NotInPeace:
    """A server that was asked to end did so with an error, or had to be killed."""

    exit: ChildExit

    @property
    def sentence(self) -> str:
        """For people."""
        return f"not an orderly end: {self.exit.report}"


@dataclass(frozen=True)
class Kept:
    """The directory of the cluster stays, for its logs."""

    directory: Path

    @property
    def sentence(self) -> str:
        """For people."""
        return f"logs and state are kept in {self.directory}"


ClusterEvent = Started | Ready | Added | Removed | ServerCrashed | Stopping | NotInPeace | Kept | Left
Progress = Callable[[ClusterEvent], None]
"""Called with each event as it happens. Must not raise."""
