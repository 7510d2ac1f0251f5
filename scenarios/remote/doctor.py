"""`baton doctor`: what is wrong with this machine, these files and this instance, and what to do about it."""

from dataclasses import asdict
from pathlib import Path
from typing import Final

import click

from batonpass.scenarios.common.options import FiniteRange
from batonpass.scenarios.remote.connection import RemoteServer, show
from batonpass.scenarios.remote.findings import (
    Finding,
    FindingState,
    check_config,
    check_disk,
    check_instance,
    check_machine,
)

__all__ = ["doctor"]

_COLOURS: Final = {FindingState.OK: "green", FindingState.WARNING: "yellow", FindingState.BAD: "red"}


@click.command(short_help="What is wrong with this machine, these files and this instance, and what to do.")
@click.option(
    "--config",
    "configs",
    multiple=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="A server's TOML file: its secrets, keys, addresses and disk are looked at. May be given again.",
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Where a log is to be kept: its room, and how long its disk takes for a sync.",
)
@click.option("--url", envvar="BATON_URL", show_envvar=True, metavar="URL", help="Of a homeserver that runs.")
@click.option(
    "--token-file",
    envvar="BATON_TOKEN_FILE",
    show_envvar=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="With the client token, where the homeserver is not on loopback.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=FiniteRange(min=0.1, max=600.0),
    default=10.0,
    metavar="SECONDS",
    help="For an answer. [default: 10]",
)
@click.option("--all", "wants_all", is_flag=True, help="Also what is well.")
@click.option("--json", "json_wanted", is_flag=True, help="All findings as JSON.")
def doctor(
    configs: tuple[Path, ...],
    directory: Path | None,
    url: str | None,
    token_file: Path | None,
    timeout_s: float,
    wants_all: bool,
    json_wanted: bool,
) -> int:
    """Look at this machine, and at the files and the instance that are named; say what is wrong, and what to do.

    It changes nothing. Without options it looks at the machine alone.

    \b
    Exit status:
      0  nothing is bad; there may be warnings
      1  something is bad
      2  wrong usage

    \b
    Examples:
      baton doctor
      baton doctor --url http://127.0.0.1:17103
      baton doctor --config playground/alpha.h1/config.toml --dir /var/lib/batonpass --all
    """
    found = list(check_machine())
    if directory is not None:
        found += check_disk(directory)
    for config in configs:
        found += check_config(config)
    if url is not None:
        with RemoteServer(url, token_file, timeout_s) as server:
            found += check_instance(url, lambda path: server.call("GET", path))
    is_bad = any(one.state is FindingState.BAD for one in found)
    if json_wanted:
        show([asdict(one) for one in found])
        return int(is_bad)
    for one in found:
        if wants_all or one.state is not FindingState.OK:
            _tell(one)
    counts = [sum(one.state is state for one in found) for state in (FindingState.BAD, FindingState.WARNING)]
    click.echo(f"{len(found)} things were looked at: {counts[0]} bad, {counts[1]} warnings")
    return int(is_bad)


def _tell(one: Finding) -> None:
    state = click.style(f"{one.state:<8}", fg=_COLOURS[one.state])
    click.echo(f"{state}{one.about}: {one.seen}")
    if one.remedy:
        click.echo(f"        → {one.remedy}")
