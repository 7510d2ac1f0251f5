"""`baton play`: drive an entity from the terminal, with keys or with a script."""

import json
import os
import sys
import termios
import tty
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TextIO

import click
import trio
from rich.console import Console
from rich.live import Live
from rich.table import Table

from batonpass.actors.http.client import trusted_authorities
from batonpass.client.client import PlayerClient, connect
from batonpass.client.home import HomeFailure
from batonpass.client.input_stream import EntityGone
from batonpass.client.steering import Steering
from batonpass.client.watch import EntityWatch, WatchRefused
from batonpass.crypto.errors import KeyFileError
from batonpass.crypto.key_store import KeyStore
from batonpass.scenarios.common.errors import RemoteRefused
from batonpass.scenarios.common.keys_directory import keys_directory
from batonpass.scenarios.common.options import QualifiedName
from batonpass.scenarios.remote.connection import RemoteServer, remote_options
from batonpass.scenarios.remote.keyboard import ARENA_KEYS, BadScript, Give, KeyDecoder, Pause, script_line
from batonpass.scenarios.remote.watch import plain_state, told, update_row

__all__ = ["play"]

_REDRAW_S: Final = 0.2
_RATE_HZ: Final = 5.0
_STATE_CHARS: Final = 60
_READ_BYTES: Final = 64
_END: Final = "q"
_player = partial(remote_options, "the client token; none is needed", "BATON_TOKEN_FILE")


class _KeyInput(click.ParamType[tuple[str, bytes]]):
    """`KEY=HEX`: the input that a key gives."""

    name = "KEY=HEX"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, bytes]:
        key, _, digits = str(value).partition("=")
        try:
            data = bytes.fromhex(digits)
        except ValueError:
            self.fail(f"{value!r:.60} is no KEY=HEX, as in up=0081", param, ctx)
        if not key or key == _END or "=" not in str(value):
            self.fail(f"{value!r:.60} is no KEY=HEX, as in up=0081; the key {_END} ends", param, ctx)
        return key, data


@click.command(short_help="Drive an entity from the terminal, wherever it is simulated.")
@click.argument("entity", type=QualifiedName())
@click.option("--player", type=QualifiedName(), required=True, help="Who drives: the owner of the entity.")
@click.option(
    "--keys",
    "keys_folder",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="The folder of the player's keys, as `baton keys new` makes it.",
)
@click.option("--key", "bound", type=_KeyInput(), multiple=True, help="What a key gives, in place of the arena's.")
@click.option(
    "--script",
    type=click.File("r", lazy=True),
    help="Lines in place of keys: a key, hexadecimal digits, or `wait SECONDS`; - is stdin, which it is in a pipe.",
)
@click.option("--json", "json_wanted", is_flag=True, help="A line of JSON for each change and each applied input.")
@_player()
def play(
    server: RemoteServer,
    entity: str,
    player: str,
    keys_folder: Path,
    bound: tuple[tuple[str, bytes], ...],
    script: TextIO | None,
    json_wanted: bool,
) -> int:
    """Drive ENTITY with keys until q or Ctrl-C, and see where it is simulated and what was applied.

    Keys give the inputs of the arena's robots: arrows drive, space stops. Worlds of your own understand other bytes:
    say with --key what a key gives. A script ends when all that it gave is applied and no failure can take it back.

    \b
    Exit status:
      0  ended by q, or the script is done
      1  the player does not own the entity, or there is none (the error names it)
      2  wrong usage, or a line of the script makes no sense
      3  the homeserver cannot be reached
      130  Ctrl-C

    \b
    Examples:
      baton play alpha.robot-7 --player alpha.ada --keys ada
      printf 'right\\nwait 2\\nspace\\n' | baton play alpha.robot-7 --player alpha.ada --keys ada --json
      baton play alpha.ball-1 --player alpha.ada --keys ada --key up=831a000f42400000
    """
    try:
        identity = KeyStore(keys_directory(keys_folder)).load_ring().identity
    except KeyFileError as error:
        raise click.UsageError(f"--keys: {error}") from error
    keys = {**ARENA_KEYS, **dict(bound)}
    if script is None and not sys.stdin.isatty():
        script = sys.stdin
    screen = _Json() if json_wanted else _Terminal() if script is None else _Lines()

    async def run() -> None:
        async with connect(server.url, player=player, identity=identity, context=trusted_authorities()) as client:
            given = _typed(keys) if script is None else _written(script, keys)
            await _Drive(client, entity, screen).run(given)

    try:
        with _raw_terminal() if script is None else _as_it_is():
            trio.run(run)
    except (BaseExceptionGroup, HomeFailure, PermissionError, EntityGone, WatchRefused) as error:
        raise _told(error) from error
    return 0


def _told(error: BaseException) -> BaseException:
    """What went wrong, on the command line; of several things at once, the first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    match error:
        case BadScript():
            return click.UsageError(str(error))
        case EntityGone():
            return RemoteRefused("not_found", str(error))
        case PermissionError():
            return RemoteRefused("not_owner", str(error))
        case HomeFailure() | WatchRefused():
            return told(error)
        case _:
            return error


# --- what is given ----------------------------------------------------------------------------------------------------


async def _written(script: TextIO, keys: Mapping[str, bytes]) -> AsyncIterator[Give | Pause]:
    """What a script says, line by line as it comes. Raises BadScript."""
    while line := await trio.to_thread.run_sync(script.readline, abandon_on_cancel=True):
        step = script_line(line, keys)
        if step is not None:
            yield step


async def _typed(keys: Mapping[str, bytes]) -> AsyncIterator[Give | Pause]:
    """What is typed, until the key that ends."""
    decoder, terminal = KeyDecoder(), sys.stdin.fileno()
    while True:
        await trio.lowlevel.wait_readable(terminal)
        data = os.read(terminal, _READ_BYTES)
        for key in decoder.feed(data):
            if key == _END:
                return
            if key in keys:
                yield Give(keys[key])
        if not data:
            return


@contextmanager
def _raw_terminal() -> Iterator[None]:
    """Keys come as they are typed, and are not shown; Ctrl-C stays what it is."""
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


@contextmanager
def _as_it_is() -> Iterator[None]:
    yield


# --- what is shown ----------------------------------------------------------------------------------------------------


class _Json:
    """A line of JSON for each change, and for each input that is applied."""

    def __enter__(self) -> "_Json":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, row: dict[str, Any], steering: Steering) -> None:
        """The entity as it is now."""
        click.echo(json.dumps({"event": "seen", **row}, ensure_ascii=False))

    def applied(self, entity: str, number: int, data: bytes, tick: int) -> None:
        """An input was applied, by this tick at the latest."""
        row = {"event": "applied", "entity": entity, "number": number, "data": data.hex(), "tick": tick}
        click.echo(json.dumps(row))


class _Lines(_Json):
    """The same for people: a line when the server changes, and for each input that is applied."""

    def __init__(self) -> None:
        self._server = ""

    def show(self, row: dict[str, Any], steering: Steering) -> None:
        """Say so, if another server simulates it."""
        if row["server"] != self._server:
            self._server = row["server"]
            click.echo(f"{row['entity']}  {self._server}  tick {row['tick']} ({row['ticks']:+})")

    def applied(self, entity: str, number: int, data: bytes, tick: int) -> None:
        """Say so."""
        click.echo(f"{entity}  input {number} ({data.hex() or 'empty'}) applied by tick {tick}")


class _Terminal(_Json):
    """A table that stays where it is."""

    def __init__(self) -> None:
        self._live = Live(console=Console(highlight=False), auto_refresh=False)
        self._moves = 0
        self._server = ""
        self._drawn_s = -_REDRAW_S
        self._shown: tuple[dict[str, Any], Steering] | None = None

    def __enter__(self) -> "_Terminal":
        self._live.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._live.__exit__(*error)

    def show(self, row: dict[str, Any], steering: Steering) -> None:
        """Draw it anew, now and then."""
        if self._server not in ("", row["server"]):
            self._moves += 1
        self._server = row["server"]
        self._shown = row, steering
        if trio.current_time() - self._drawn_s >= _REDRAW_S:
            self._draw(row, steering)

    def applied(self, entity: str, number: int, data: bytes, tick: int) -> None:
        """The table says how many, at once."""
        if self._shown is not None:
            self._draw(*self._shown)

    def _draw(self, row: dict[str, Any], steering: Steering) -> None:
        self._drawn_s, stream = trio.current_time(), steering.stream
        state = json.dumps(plain_state(row["state"]), ensure_ascii=False)
        given = f"{stream.acknowledged - stream.floor} applied, {stream.sent - stream.acknowledged} waiting"
        table = Table(show_header=False, box=None, pad_edge=False)
        for name, value in (
            (row["entity"], f"{row['server']}, tick {row['tick']}"),
            ("inputs", given),
            ("hand-overs", str(self._moves)),
            ("state", state if len(state) <= _STATE_CHARS else state[:_STATE_CHARS] + "…"),
            ("", f"arrows drive, space stops, {_END} ends"),
        ):
            table.add_row(name, value)
        self._live.update(table, refresh=True)


# --- the drive --------------------------------------------------------------------------------------------------------


class _Drive:
    def __init__(self, client: PlayerClient, entity: str, screen: _Json) -> None:
        self._client, self._entity, self._screen = client, entity, screen

    async def run(self, steps: AsyncIterator[Give | Pause]) -> None:
        """Give what comes, and show what becomes of it, until it ends and all of it will stay."""
        steering = await self._client.steer(self._entity)
        watch = await self._client.watch(entity=self._entity, rate_hz=_RATE_HZ)
        given, numbers = trio.open_memory_channel[tuple[int, bytes]](1024)
        with self._screen:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._look, watch, steering)
                nursery.start_soon(self._confirm, numbers, steering)
                last = 0
                async for step in steps:
                    if isinstance(step, Pause):
                        await trio.sleep(step.seconds)
                        continue
                    last = await steering.give(step.data)
                    await given.send((last, step.data))
                await given.aclose()
                if last:
                    await steering.durable(last)
                watch.close()

    async def _look(self, watch: EntityWatch, steering: Steering) -> None:
        async for change in watch:
            if change.is_gone:
                raise EntityGone(f"{self._entity} was deleted")
            self._screen.show(update_row(change), steering)

    async def _confirm(self, numbers: trio.MemoryReceiveChannel[tuple[int, bytes]], steering: Steering) -> None:
        async for number, data in numbers:
            self._screen.applied(self._entity, number, data, await steering.applied(number))
