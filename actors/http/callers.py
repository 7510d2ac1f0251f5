"""Who may call which route: one table for each kind of server, against which every route is held.

A route that the table does not have, or that asks for another right than the table says, makes no application. Its
server does not start, and no test of it passes.
"""

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final, cast
from weakref import WeakKeyDictionary

from fastapi import FastAPI
from fastapi.params import Depends

from batonpass.crypto.access_tokens import TokenRole

__all__ = ["ROLES", "Caller", "CallersDiffer", "RouteCallers", "asks_for", "check_callers"]


class Caller(StrEnum):
    """Who may call a route: a sentence for people, and the whole of a rule."""

    ANYBODY = "all"
    WAITING = "all; to wait for news: the roles server and operator"
    ONLOOKER = "all on loopback, or where `dashboard` says so; else the roles viewer, server and operator"
    VIEWER = "the roles viewer, server and operator"
    CLIENT = "the roles server and operator"
    AT_DOOR = "the roles server and operator; a player for itself, with the role player or at the door"
    PLAYER = (
        "the roles server and operator and, for a player, that player's proof; the role player with its own proof; and "
        "a player at the door for itself"
    )
    OPERATOR = "the role operator"
    JOINED = "all; what it says counts with a proof of the join token"
    SEALED = "all; what it says counts as the sealed message of a sender that may say it"


_PROGRAMS: Final = frozenset({TokenRole.SERVER, TokenRole.OPERATOR})
ROLES: Final[Mapping[Caller, frozenset[TokenRole]]] = {
    Caller.WAITING: _PROGRAMS,
    Caller.ONLOOKER: _PROGRAMS | {TokenRole.VIEWER},
    Caller.VIEWER: _PROGRAMS | {TokenRole.VIEWER},
    Caller.CLIENT: _PROGRAMS,
    Caller.AT_DOOR: _PROGRAMS | {TokenRole.PLAYER},
    Caller.PLAYER: _PROGRAMS | {TokenRole.PLAYER},
    Caller.OPERATOR: frozenset({TokenRole.OPERATOR}),
}
"""Which roles of a token are let in; of a caller that is not here none."""

_BY_THE_HEAD: Final = {
    Caller.VIEWER: Caller.VIEWER,
    Caller.ONLOOKER: Caller.ONLOOKER,
    Caller.CLIENT: Caller.CLIENT,
    Caller.AT_DOOR: Caller.AT_DOOR,
    Caller.PLAYER: Caller.AT_DOOR,
    Caller.OPERATOR: Caller.OPERATOR,
}
"""Whom a dependency of the route lets in, by the head of the request. Of all others the route itself sees."""

RouteCallers = Mapping[tuple[str, str], Caller]
"""The table: callers by method and path."""

_asked: Final[WeakKeyDictionary[Callable[..., Any], Caller]] = WeakKeyDictionary()


class CallersDiffer(Exception):
    """A route and the table of who may call it do not say the same."""


def asks_for(caller: Caller, dependency: Callable[..., Any]) -> None:
    """Note who it is that a dependency lets through."""
    _asked[dependency] = caller


def check_callers(app: FastAPI, table: RouteCallers) -> None:
    """Hold every route of an application against the table; call it after all routes.

    Raises:
        CallersDiffer: a route is not in the table, a row has no route, or a route asks for another right than its row.
    """
    missing = dict(table)
    for method, path, dependencies in _routes(app):
        if missing.pop((method, path), None) is None:
            raise CallersDiffer(f"{method} {path} has no row in the table of who may call what")
        wanted = {_BY_THE_HEAD.get(table[(method, path)])} - {None}
        asked = {_asked.get(cast(Any, one.dependency)) for one in dependencies} - {None}
        if asked != wanted:
            raise CallersDiffer(f"{method} {path} lets in {_named(asked)}, and the table says {_named(wanted)}")
    if missing:
        raise CallersDiffer(f"the table has routes that are not there: {sorted(missing)}")


def _named(callers: set[Caller | None]) -> str:
    return " and ".join(sorted(str(one) for one in callers)) or str(Caller.ANYBODY)


def _routes(app: FastAPI) -> Iterator[tuple[str, str, list[Depends]]]:
    """Method, path and dependencies of every route; HEAD is answered as GET."""
    for route in app.router.routes:
        dependencies: list[Depends] = list(getattr(route, "dependencies", ()))
        methods = set(getattr(route, "methods", None) or ("",))
        for method in sorted(methods - ({"HEAD"} if "GET" in methods else set())):
            yield method, str(getattr(route, "path_format", "")), dependencies
