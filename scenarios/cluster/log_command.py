"""`baton logs`: what the servers of a local cluster have written, in the order of time."""

import heapq
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, TextIO

import click

from batonpass.authority.names import BadName, check_name

__all__ = ["logs", "merged"]

_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_LOOK_S: Final = 0.2


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
@click.option("--follow", "-f", is_flag=True, help="Go on with what comes, until Ctrl-C.")
def logs(servers: tuple[str, ...], directory: Path, lines: int, level: str | None, follow: bool) -> int:
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
    opened = {name: file.open(encoding="utf-8", errors="replace") for name, file in chosen.items()}
    for name, line in merged({name: deque(_entries(file, least), maxlen=lines) for name, file in opened.items()}):
        click.echo(f"{name:<{width}}  {line}")
    while follow:
        for name, line in merged({name: list(_entries(file, least)) for name, file in opened.items()}):
            click.echo(f"{name:<{width}}  {line}")
        time.sleep(_LOOK_S)  # noqa: TID251 - a command of its own, in which nothing else runs
    for file in opened.values():
        file.close()
    return 0


def _shown(name: str) -> str:
    try:
        return check_name(name)
    except BadName:
        return repr(name)


def _entries(file: TextIO, least: tuple[str, ...]) -> Iterator[str]:
    """What was logged from where the file was read to, of one of the `least` levels if there are any."""
    for entry in _all_entries(file):
        level = entry.split(" ", 2)[1:2]
        if not least or (level and level[0] in least):
            yield entry


def _all_entries(file: TextIO) -> Iterator[str]:
    """One by one; a traceback belongs to the line before it."""
    entry = ""
    while line := file.readline():
        is_first = len(line) > 4 and line[:4].isdigit() and line[4] == "-"
        if is_first and entry:
            yield entry
        entry = line.rstrip("\n") if is_first else f"{entry}\n{line.rstrip()}".lstrip("\n")
    if entry:
        yield entry


def merged(entries: Mapping[str, Iterable[str]]) -> Iterator[tuple[str, str]]:
    """The entries of all servers by time, each with whose it is; those of one server stay in their order."""

    def timed(name: str, lines: Iterable[str]) -> Iterator[tuple[str, str, str]]:
        latest = ""
        for line in lines:
            # What has no time of its own was written right after what has.
            latest = max(latest, line.partition(" ")[0]) if line[:4].isdigit() else latest
            yield latest, name, line

    for _, name, line in heapq.merge(*(timed(name, lines) for name, lines in entries.items()), key=lambda one: one[:2]):
        yield name, line
