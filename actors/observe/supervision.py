"""/v1/supervision: the supervision tree of a node as it is now, with what was started again lately, and why.

An answer is one supervisor, a page of its children, and of each supervisor below it at most `FOLDED` children: those
have pages of their own, by their pid. So an answer is bounded in a tree of any size, and shows all of a small one. It
has names, classes, numbers, and the first words of reasons, as logs have them.
"""

import json
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator
from itertools import islice
from typing import Annotated, Any, Final, Literal, NamedTuple

import trio
from fastapi import Query
from pydantic import BaseModel, Field

from batonpass.actors.base.exact_keys import plain
from batonpass.actors.core.children import path_of, spec_of
from batonpass.actors.core.process import Process
from batonpass.actors.core.restart import LoggedRestart
from batonpass.actors.core.server_process import ServerProcess
from batonpass.actors.core.supervisor import Child, Supervisor
from batonpass.actors.core.system import System
from batonpass.actors.http.app import ApiError
from batonpass.actors.http.routes import Routes
from batonpass.actors.observe import sys
from batonpass.actors.observe.display import picture

__all__ = [
    "FOLDED",
    "MAX_ROWS",
    "SUPERVISION_PATH",
    "FirstChild",
    "ManyChildren",
    "SupervisionView",
    "UnderPid",
    "supervision_of",
    "supervision_routes",
]

SUPERVISION_PATH: Final = "/v1/supervision"
RECENT_S: Final = 3600.0
MAX_CHILDREN: Final = 200
"""Of the supervisor that was asked for, in one answer."""
FOLDED: Final = 20
"""Children of a supervisor below the one that was asked for."""
MAX_ROWS: Final = 1000
"""Of one answer; beyond it only children of the supervisor that was asked for are shown."""
_REASON_CHARACTERS: Final = 300

State = Literal["starting", "running", "suspended", "exiting", "restarting", "stopped"]
Tree = tuple[Hashable, ...]


class SupervisedActor(BaseModel):
    """One child of a supervisor, or the supervisor that was asked for."""

    pid: int | None = Field(description="null while it does not run")
    id: str = Field(description="by which its supervisor knows it; its label, if no supervisor does")
    depth: int = Field(description="how far below the supervisor that was asked for")
    kind: sys.Kind | None = Field(description="null while it does not run")
    module: str = Field(description="the class of its server; empty for services")
    state: State
    children: int
    waiting: int = Field(description="messages in its mailbox")
    mailbox_limit: int
    age_s: float = Field(description="of its present life")
    restarts: int = Field(description="in the last hour, of those with its id together, as far as they are kept")
    reason: str = Field(description="why it was started again last, in that time; empty if it was not")
    restarted_s: float | None = Field(description="how many seconds ago that was")


class SupervisorAbove(BaseModel):
    """One of those above the supervisor that was asked for."""

    pid: int
    id: str


class SupervisionView(BaseModel):
    """A supervisor, and a page of what is below it, from the top down and in the order of starting."""

    node: str
    actors: int = Field(description="of the whole node")
    restarts: int = Field(description="of the whole node in the last hour, of its last 2,000")
    above: list[SupervisorAbove] = Field(description="from the root down")
    top: SupervisedActor
    first: int = Field(description="how many of its children come before this page")
    below: list[SupervisedActor] = Field(
        description="of those deeper than 1, at most 20 of each supervisor, and none once there are 1,000"
    )
    next: int | None = Field(description="`first` of the next page; null if this is the last one")


UnderPid = Annotated[int | None, Query(ge=1, le=2**53, description="the pid of a supervisor; without it the root")]
FirstChild = Annotated[int, Query(ge=0, le=10_000_000, description="how many of its children to leave out")]
ManyChildren = Annotated[int, Query(ge=1, le=MAX_CHILDREN, description="how many of its children at most")]


def supervision_routes(get_system: Callable[[], System | None]) -> Routes:
    """The route of one node. `get_system` has no answer while that is still starting."""
    routes = Routes(tags=["actors"])

    @routes.get(SUPERVISION_PATH)
    async def supervision(under: UnderPid = None, first: FirstChild = 0, limit: ManyChildren = 50) -> SupervisionView:
        """A supervisor of this node and a page of what is below it: state, mailbox, restarts and why."""
        return supervision_of(get_system(), under, first, limit)

    return routes


def supervision_of(system: System | None, under: int | None, first: int, limit: int) -> SupervisionView:
    """A page of the tree of a node. Raises `ApiError`: it is still starting, or no such actor runs."""
    if system is None:
        raise ApiError(503, "not_ready", "this server is still starting its actors")
    top = system.root.process if under is None else system.process(under)
    if top is None:
        raise ApiError(404, "unknown_actor", f"no actor with the pid {under} runs here (any more)", under)
    return _Looker(system).view(top, first, limit)


class _Kin(NamedTuple):
    """A child as its supervisor has it; without a process it does not run."""

    id: Hashable
    process: Process | None
    state: State | None = None


class _Looker:
    """One look at a system."""

    def __init__(self, system: System) -> None:
        self._system: Final = system
        self._now_s: Final = trio.current_time()
        recent = system.restarts.since(self._now_s - RECENT_S)
        self._room = MAX_ROWS
        self._all: Final = len(recent)
        self._counts: Final = Counter(one.path for one in recent)
        self._last: Final[dict[Tree, LoggedRestart]] = {one.path: one for one in recent}

    def view(self, top: Process, first: int, limit: int) -> SupervisionView:
        path = path_of(top)
        kin = _kin(top)
        rows = [row for child in islice(_named(kin), first, first + limit) for row in self._rows(child, path, 1)]
        above, process = list[SupervisorAbove](), top.parent
        while process is not None:
            above.append(SupervisorAbove(pid=process.pid, id=_id(process)))
            process = process.parent
        return SupervisionView(
            node=self._system.name,
            actors=self._system.count,
            restarts=self._all,
            above=above[::-1],
            top=self._row(_Kin(_id(top), top), path, 0),
            first=first,
            below=rows,
            next=first + limit if first + limit < len(kin) else None,
        )

    def _rows(self, child: _Kin, above: Tree, depth: int) -> Iterator[SupervisedActor]:
        path = (*above, child.id)
        yield self._row(child, path, depth)
        self._room -= 1
        if child.process is not None:
            for below in islice(_named(_kin(child.process)), FOLDED if self._room > 0 else 0):
                yield from self._rows(below, path, depth + 1)

    def _row(self, child: _Kin, path: Tree, depth: int) -> SupervisedActor:
        last = self._last.get(path)
        more: dict[str, Any] = {"pid": None, "kind": None, "module": "", "state": child.state or "stopped"}
        more |= {"children": 0, "waiting": 0, "mailbox_limit": 0, "age_s": 0.0}
        if child.process is not None and child.process.alive:
            status = sys.get_status(child.process.ref, with_state=False)
            names = ("kind", "module", "waiting", "mailbox_limit", "age_s")
            more |= {name: getattr(status, name) for name in names}
            more |= {"pid": status.ref.pid, "state": status.condition, "children": len(_kin(child.process))}
        return SupervisedActor(
            id=_text(child.id),
            depth=depth,
            restarts=self._counts[path],
            reason="" if last is None else last.reason[:_REASON_CHARACTERS],
            restarted_s=None if last is None else round(self._now_s - last.at_s, 1),
            **more,
        )


def _kin(process: Process) -> Collection[Any]:
    """Its children, not looked at yet: there may be very many, of which few are shown."""
    server = process.server if isinstance(process, ServerProcess) else None
    # In place of one that is traced there is another one.
    supervisor = getattr(server, "server", server)
    if isinstance(supervisor, Supervisor):
        return supervisor.family
    return (process.children or {}).items()


def _named(kin: Collection[Any]) -> Iterator[_Kin]:
    for one in kin:
        if isinstance(one, Child):
            yield _Kin(one.spec.id, one.process, "restarting" if one.restarting else "stopped")
            continue
        process, known_as = one
        spec = spec_of(known_as)
        yield _Kin(process.label if spec is None else spec.id, process, "restarting")


def _id(process: Process) -> str:
    path = path_of(process)
    return _text(path[-1]) if path else "root"


def _text(value: Hashable) -> str:
    shown = picture(plain(value))
    return shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)
