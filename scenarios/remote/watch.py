"""`baton watch`: entities as they change, wherever they are simulated."""

import json
from functools import partial
from math import isfinite
from typing import Any, Final

import click
import trio

from batonpass.actors.http.client import trusted_authorities
from batonpass.client.client import PlayerClient, connect
from batonpass.client.home import HomeFailure
from batonpass.client.watch import EntityUpdate, EntityWatch, WatchRefused
from batonpass.scenarios.common.errors import EnvironmentFailed, RemoteRefused
from batonpass.scenarios.common.options import FiniteRange, QualifiedName
from batonpass.scenarios.remote.connection import RemoteServer, remote_options

__all__ = ["plain_state", "told", "update_row", "watch"]

_STATE_CHARS: Final = 120
# Doors have to be found and opened before anything is shown.
_PATIENCE_S: Final = 10.0
_reader = partial(remote_options, "the client token; none is needed", "BATON_TOKEN_FILE")


class _Area(click.ParamType[tuple[list[float], float]]):
    """`X,Y,RADIUS`: the middle of an area, of one to three numbers, and how far it reaches."""

    name = "X,Y,RADIUS"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[list[float], float]:
        try:
            *centre, radius = map(float, str(value).split(","))
        except ValueError:
            self.fail(f"{value!r:.60} is no area: give numbers, as in 10,20,5", param, ctx)
        if not 1 <= len(centre) <= 3 or radius < 0:
            self.fail(f"{value!r:.60} is no area: one to three numbers, and a radius from 0 up", param, ctx)
        return centre, radius


@click.command(short_help="Watch entities as they change, wherever they are simulated.")
@click.argument("entities", nargs=-1, type=QualifiedName())
@click.option("--owner", type=QualifiedName(), help="All entities of this player.")
@click.option("--pattern", help="All whose names match: * is any text, ? any character.")
@click.option("--area", type=_Area(), help="All in an area, as the world says positions.")
@click.option("--around", type=QualifiedName(), help="All around this entity, as it goes; with --radius.")
@click.option("--radius", type=FiniteRange(min=0), default=10.0, show_default=True, help="How far --around reaches.")
@click.option(
    "--rate",
    "rate_hz",
    type=FiniteRange(min=0, min_open=True),
    default=2.0,
    show_default=True,
    help="States a second of each entity; entities tick 20 times.",
)
@click.option("--seconds", type=FiniteRange(min=0, min_open=True), help="End so long after the first that is shown.")
@click.option("--json", "json_wanted", is_flag=True, help="A line of JSON for each change.")
@_reader()
def watch(
    server: RemoteServer,
    entities: tuple[str, ...],
    owner: str | None,
    pattern: str | None,
    area: tuple[list[float], float] | None,
    around: str | None,
    radius: float,
    rate_hz: float,
    seconds: float | None,
    json_wanted: bool,
) -> int:
    """Show ENTITIES as they change, until Ctrl-C: their states, where they are simulated, and who owns them.

    Ask any homeserver of their instance; it says where each entity is, and hand-overs and failovers are followed from
    there. A client looks on as an observer, which servers permit on loopback (`player_observers`). Needs no token.

    \b
    Exit status:
      0  --seconds are over
      1  an entity does not exist, or a server does not show it (the error names it)
      2  wrong usage
      3  the homeserver cannot be reached
      130  Ctrl-C

    \b
    Examples:
      baton watch alpha.ball-1
      baton watch --pattern 'alpha.ball-*' --rate 5
      baton watch --around alpha.ball-1 --radius 2000000
      baton watch alpha.ball-1 --seconds 10 --json | jq .state
    """
    asked: list[dict[str, Any]] = [{"entity": entity} for entity in entities]
    asked += [{"owner": owner}] if owner else []
    asked += [{"pattern": pattern}] if pattern else []
    asked += [{"centre": area[0], "radius": area[1]}] if area else []
    asked += [{"around": around, "radius": radius}] if around else []
    if not asked:
        raise click.UsageError("say what to watch: an entity, --owner, --pattern, --area or --around")
    trio.run(_watch, server.url, asked, rate_hz, seconds, json_wanted)
    return 0


async def _watch(
    url: str, asked: list[dict[str, Any]], rate_hz: float, seconds: float | None, json_wanted: bool
) -> None:
    look = _Look(seconds)
    try:
        with look.scope:
            async with connect(url, context=trusted_authorities()) as client, trio.open_nursery() as nursery:
                look.has_begun()
                for one in asked:
                    nursery.start_soon(_show, client, one, rate_hz, json_wanted, look)
    except* (HomeFailure, WatchRefused) as group:
        raise told(group) from group
    if not look.has_seen:
        raise EnvironmentFailed("nothing was shown: is there such an entity, and is its server up?")


class _Look:
    """For how long is looked: from the first state on that is shown, for which is waited longer."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds: Final = seconds
        self.scope: Final = trio.CancelScope()
        self.has_seen = False

    def has_begun(self) -> None:
        """There is a connection."""
        if self._seconds is not None:
            self.scope.deadline = trio.current_time() + self._seconds + _PATIENCE_S

    def sees(self) -> None:
        """Something is shown."""
        if not self.has_seen and self._seconds is not None:
            self.scope.deadline = trio.current_time() + self._seconds
        self.has_seen = True


def told(error: BaseException) -> Exception:
    """What a client's failure, or the first one of a group of them, is on the command line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    code = getattr(error, "code", "")
    if code == "unreachable":
        return EnvironmentFailed(str(error))
    text = str(error).removeprefix(f"{code}: ")
    return RemoteRefused(
        code, f"{text}: `baton watch --pattern '*'` shows those that there are" if code == "not_found" else text
    )


async def _show(client: PlayerClient, asked: dict[str, Any], rate_hz: float, json_wanted: bool, look: _Look) -> None:
    seen: EntityWatch = await client.watch(rate_hz=rate_hz, **asked)
    async for change in seen:
        look.sees()
        click.echo(json.dumps(update_row(change), ensure_ascii=False) if json_wanted else _line(change))


def update_row(change: EntityUpdate) -> dict[str, Any]:
    """A change as JSON has it."""
    entity = change.entity
    return {
        "entity": entity.name,
        "kind": entity.kind,
        "gone": change.is_gone,
        "server": change.server,
        "owner": entity.owner,
        "epoch": entity.fence[0],
        "sub": entity.fence[1],
        "tick": entity.tick,
        "ticks": change.ticks,
        "state": plain_state(entity.state),
    }


def _line(change: EntityUpdate) -> str:
    entity = change.entity
    if change.is_gone:
        return f"{entity.name}  gone"
    state = json.dumps(plain_state(entity.state), ensure_ascii=False)
    shown = state if len(state) <= _STATE_CHARS else state[:_STATE_CHARS] + "…"
    owner = entity.owner or "nobody"
    fence = f"epoch {entity.fence[0]} tick {entity.tick} ({change.ticks:+})"
    return f"{entity.name}  {change.server}  {fence}  {owner}  {shown}"


def plain_state(value: Any) -> Any:
    """A state as JSON can say it: bytes in hexadecimal, and what JSON does not have as Python shows it."""
    match value:
        case dict():
            return {key if isinstance(key, str) else repr(key): plain_state(each) for key, each in value.items()}
        case list() | tuple():
            return [plain_state(each) for each in value]
        case bytes():
            return value.hex()
        case float() if not isfinite(value):
            return repr(value)
        case None | bool() | int() | float() | str():
            return value
        case _:
            return repr(value)
