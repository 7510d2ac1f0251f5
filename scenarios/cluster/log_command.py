"""`baton logs`: what the servers of a local cluster have written, in the order of time."""

import heapq
import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import itemgetter
from pathlib import Path
from typing import Final, NamedTuple, Self, TextIO

import click

from batonpass.authority.names import BadName, check_name

__all__ = ["LogEntry", "logs", "merged"]

_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_LOOK_S: Final = 0.2


class LogEntry(NamedTuple):
    """What was logged at once; `time` and `level` are empty where it does not say them."""

    time: str
    level: str
    text: str

    @classmethod
    def read(cls, text: str) -> Self:
        """From the lines of a log, whether for people or as JSON."""
        if text.startswith("{"):
            try:
                line = json.loads(text)
                return cls(str(line["time"]), str(line["level"]), text)
            except (ValueError, KeyError):
                return cls("", "", text)
        time, _, rest = text.partition(" ")
        return cls(time, rest.partition(" ")[0], text) if time[:4].isdigit() else cls("", "", text)


@click.command(short_help="What the servers of a cluster of `baton up --dir` have written.")
@click.argument("servers", nargs=-1, metavar="[SERVER]...")
@click.option(
    "--dir",
    "directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    required=True,
    help="That of the cluster.",
)
@click.option(
    "--lines", "-n", type=click.IntRange(0), default=100, show_default=True, help="The last ones of each server."
)
@click.option("--level", type=click.Choice(_LEVELS, case_sensitive=False), help="From this level on.")
@click.option("--search", metavar="TEXT", default="", help="Those that have it, such as the id of a transfer.")
@click.option("--follow", "-f", is_flag=True, help="Go on with what comes, until Ctrl-C.")
def logs(servers: tuple[str, ...], directory: Path, lines: int, level: str | None, search: str, follow: bool) -> int:
    """Show the last lines that each SERVER, or all of them, has written, in the order of time.

    \b
    Examples:
      baton logs --dir playground
      baton logs alpha.h1 alpha.s1 --dir playground --level warning --follow
    """
    found = {file.parent.name: file for file in sorted(directory.glob("*/server.log"))}
    for name in servers or found:
        if name not in found:
            raise click.UsageError(f"{directory} has no log of {_shown(name)}; it has {', '.join(found) or 'none'}")
    if not found:
        raise click.UsageError(f"{directory} has no logs: give the directory of a cluster (`baton up --dir`)")
    chosen = {name: found[name] for name in servers or found}
    width = max(map(len, chosen))
    least = _LEVELS[_LEVELS.index(level.upper()) :] if level else ()

    def wanted(entry: LogEntry) -> bool:
        return search in entry.text and (not least or entry.level in least)

    def print_all(entries: Mapping[str, Iterable[LogEntry]]) -> None:
        for name, entry in merged(entries):
            click.echo(f"{name:<{width}}  {entry.text}")

    opened = {name: file.open(encoding="utf-8", errors="replace") for name, file in chosen.items()}
    print_all({name: deque(_entries(file, wanted), maxlen=lines) for name, file in opened.items()})
    while follow:
        print_all({name: list(_entries(file, wanted)) for name, file in opened.items()})
        time.sleep(_LOOK_S)  # noqa: TID251 - a command of its own, in which nothing else runs
    for file in opened.values():
        file.close()
    return 0


def _shown(name: str) -> str:
    try:
        return check_name(name)
    except BadName:
        return repr(name)


def _entries(file: TextIO, wanted: Callable[[LogEntry], bool]) -> Iterator[LogEntry]:
    """What was logged from where the file was read to and is wanted; a traceback belongs to the line before it."""
    text = ""
    while line := file.readline():
        is_first = line.startswith("{") or (line[:4].isdigit() and line[4:5] == "-")
        if is_first and text and wanted(entry := LogEntry.read(text)):
            yield entry
        text = line.rstrip("\n") if is_first else f"{text}\n{line.rstrip()}".lstrip("\n")
    if text and wanted(entry := LogEntry.read(text)):
        yield entry


def merged(entries: Mapping[str, Iterable[LogEntry]]) -> Iterator[tuple[str, LogEntry]]:
    """The entries of all servers by time, each with whose it is; those of one server stay in their order."""

    def timed(name: str, some: Iterable[LogEntry]) -> Iterator[tuple[str, str, LogEntry]]:
        latest = ""
        for entry in some:
            # What has no time of its own was written right after what has.
            latest = max(latest, entry.time)
            yield latest, name, entry

    for _, name, entry in heapq.merge(*(timed(name, some) for name, some in entries.items()), key=itemgetter(0, 1)):
        yield name, entry
