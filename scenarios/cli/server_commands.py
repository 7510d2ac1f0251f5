"""`baton homeserver`, `baton simserver` and `baton relay`: one server, in this process.

As in `cli.main`, each imports what it needs when it runs.
"""

import gc
import logging
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batonpass.scenarios.common.ending import leave_sigterm_alone

if TYPE_CHECKING:
    from batonpass.authority.node.config import ServedSettings

__all__ = ["LOG_LEVEL", "homeserver", "key_and_value", "relay", "simserver"]

LOG_LEVEL = click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False)


def _server_options(command: Callable[..., int]) -> Callable[..., int]:
    """The options that all servers share: where the configuration is, and what overrides it."""
    options = (
        click.option(
            "--config",
            "config_file",
            required=True,
            type=click.Path(dir_okay=False, path_type=Path),
            help="The TOML file.",
        ),
        click.option("--name", metavar="INSTANCE.LOCAL", help="Override its name."),
        click.option("--listen", metavar="HOST:PORT", help="Override where REST listens."),
        click.option("--directory", metavar="DIR", help="Override where its state lives."),
        click.option("--set", "settings", multiple=True, metavar="FIELD=VALUE", help="Override any field, dotted."),
        click.option("--log-level", type=LOG_LEVEL, help="Override it."),
        click.option("--parent-pipe", is_flag=True, help="End when stdin, a pipe held by the parent, closes."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command(short_help="Run one homeserver.")
@_server_options
@click.option("--link", metavar="HOST:PORT", help="Override where the UDP link listens.")
def homeserver(**flags: Any) -> int:
    """Run one homeserver: a member of an instance's log, with its REST interface."""
    with _starting(flags):
        from batonpass.homeserver.config import HomeserverConfig
        from batonpass.scenarios.common.import_path import look_here_first

        look_here_first()
        config = HomeserverConfig.load(flags["config_file"], _overrides(flags))
        _start_logging(config)
        from batonpass.homeserver.server.main import main as serve
    return serve(config)


@click.command(short_help="Run one simulation server.")
@_server_options
@click.option("--link", metavar="HOST:PORT", help="Override where the UDP link listens.")
def simserver(**flags: Any) -> int:
    """Run one simulation server: entities as actors, and their hand-over."""
    with _starting(flags):
        from batonpass.scenarios.common.import_path import look_here_first
        from batonpass.simserver.server.config import SimserverConfig

        look_here_first()
        config = SimserverConfig.load(flags["config_file"], _overrides(flags))
        _start_logging(config)
        from batonpass.simserver.server.main import main as serve
    return serve(config)


@click.command(short_help="Run one relay.")
@_server_options
def relay(**flags: Any) -> int:
    """Run one relay: it passes sealed messages on between instances and can read none of them."""
    with _starting(flags):
        from batonpass.homeserver.config import RelayConfig

        config = RelayConfig.load(flags["config_file"], _overrides(flags))
        _start_logging(config)
        from batonpass.homeserver.server.relay import main as serve
    return serve(config)


@contextmanager
def _starting(flags: dict[str, Any]) -> Iterator[None]:
    """Around everything that a server does before it serves, which is mostly importing."""
    leave_sigterm_alone()
    # First of all: an orphan shall not even finish its imports.
    if flags["parent_pipe"]:
        from batonpass.scenarios.cluster.subreaper import die_with_parent

        die_with_parent()
    # Imports make some 150,000 objects and hardly any garbage. Not looking for it saves an eighth of the start-up time,
    # and what is frozen afterwards is never looked through again while the server serves.
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()


def _overrides(flags: dict[str, Any]) -> dict[str, Any]:
    overrides: dict[str, Any] = dict(key_and_value(setting) for setting in flags["settings"])
    overrides |= {field: flags[field] for field in ("name", "directory", "log_level") if flags[field] is not None}
    for flag, field in (("listen", "rest"), ("link", "link")):
        if flags.get(flag) is not None:
            overrides[f"{field}.host"], overrides[f"{field}.port"] = _host_and_port(f"--{flag}", flags[flag])
    return overrides


def _start_logging(config: "ServedSettings") -> None:
    import time

    from batonpass.scenarios.cli.log_lines import log_handler

    logging.Formatter.converter = time.gmtime
    level = config.log_level
    logging.basicConfig(level=level.upper(), handlers=[log_handler(config.log_format, config.name)])
    if level.upper() != "DEBUG":
        # It reports every request that it makes, several for each hand-over.
        logging.getLogger("httpx").setLevel(logging.WARNING)


def _host_and_port(flag: str, text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit():
        raise click.UsageError(f"{flag} {text!r} is not HOST:PORT, for example 127.0.0.1:8080")
    return host.strip("[]"), int(port)


def key_and_value(text: str) -> tuple[str, Any]:
    """What `KEY=VALUE` says. Raises click.UsageError."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise click.UsageError(f"{text!r} is not KEY=VALUE")
    try:
        # A TOML value if it is one (4, true, [1, 2]), else the text as it stands, so that words need no quotes.
        return key, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key, value
