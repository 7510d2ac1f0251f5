"""Several applications in one system (OTP's word): parts of a program that start, are configured and end as wholes.

    DATABASE = ApplicationSpec("database", database_tree, config={"url": "sqlite:"})
    WEB = ApplicationSpec("web", web_tree, depends_on=["database"], config={"port": 8080}, permanent=True)

    async with Applications([DATABASE, WEB], {"web": {"port": 80}}).open("node", "web") as system: ...

`tree` is called with the configuration of its application, and returns the supervisor on top of it. What an application
depends on is started before it, and ended after it, in reverse order at the end of the block too. A tree that ends by
itself, because its top supervisor gave up, is not started again. The others go on, unless it is `permanent`: then the
system ends, and the block raises `RestartLimitReached`. What an application has to do last of all is done by a service
that is the first child of its tree.

`run_application` is for a process that is one tree, and says how it ends.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any, Final, final

from batonpass.actors.core.checks import several
from batonpass.actors.core.restart import Restart
from batonpass.actors.core.supervisor import Supervisor
from batonpass.actors.core.system import System

if TYPE_CHECKING:
    from batonpass.actors.core.children import ChildSpec
    from batonpass.actors.core.telemetry import Telemetry

__all__ = ["ApplicationError", "ApplicationSpec", "Applications"]


class ApplicationError(Exception):
    """What the applications are to be makes no sense; the sentence says why."""


@final
@dataclass(frozen=True, slots=True)
class ApplicationSpec:
    """One application; `config` are all its settings, with the values that count where no others are given."""

    name: str
    tree: Callable[[Mapping[str, Any]], ChildSpec]
    depends_on: Sequence[str] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    permanent: bool = False


@final
class Applications:
    """See the head of the module."""

    def __init__(self, specs: Sequence[ApplicationSpec], config: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        """`config` has, by application, what is other than in its specification.

        Raises `ApplicationError` for two of one name, for a dependency, an application or a setting that there is not,
        and for a circle of dependencies. Raises `TypeError` for what is no specification.
        """
        given = several(ApplicationSpec, "specs of applications", specs)
        self._specs: Final = {spec.name: spec for spec in given}
        self._config: Final = config or {}
        if len(self._specs) < len(given):
            raise ApplicationError(f"two applications have one name: {sorted(spec.name for spec in given)}")
        for spec in given:
            self._known(spec.depends_on, f"{spec.name!r} depends on")
        self._known(self._config, "there is configuration for")
        for name, values in self._config.items():
            if unknown := values.keys() - self._specs[name].config.keys():
                raise ApplicationError(f"the application {name!r} has no setting {sorted(unknown)[0]!r}")
        try:
            order = list(TopologicalSorter({spec.name: spec.depends_on for spec in given}).static_order())
        except CycleError as error:
            raise ApplicationError(
                f"applications depend on each other in a circle: {' > '.join(error.args[1])}"
            ) from None
        self._order: Final = {name: place for place, name in enumerate(order)}

    def _known(self, names: Sequence[str] | Mapping[str, Any], what: str) -> None:
        for name in names:
            if name not in self._specs:
                raise ApplicationError(f"{what} {name!r}, and there is no such application")

    @asynccontextmanager
    async def open(self, system_name: str, *names: str, telemetry: Telemetry | None = None) -> AsyncIterator[System]:
        """A system in which these run, and what they depend on, for the length of the block.

        Its root supervisor belongs to them: it starts nothing again. Raises what `System.open` and
        `ensure_all_started` do.
        """
        async with System.open(system_name, max_restarts=0, telemetry=telemetry) as system:
            for name in names:
                await self.ensure_all_started(system, name)
            yield system

    async def ensure_all_started(self, system: System, name: str) -> list[str]:
        """Start what `name` depends on, then itself; the names of those that did not run before, in order.

        If one does not start, those that were started for it are ended again, and `StartError` is raised.
        """
        self._known([name], "start of")
        runs = await self.running(system)
        started: list[str] = []
        try:
            for each in sorted({name, *self._below(name)} - set(runs), key=self._order.__getitem__):
                await self._start(system, self._specs[each])
                started.append(each)
        except BaseException:
            for each in reversed(started):
                await Supervisor.terminate_child(system.root, each)
            raise
        return started

    async def stop(self, system: System, name: str) -> list[str]:
        """End `name`, and before it what depends on it; the names of those that ran, in the order of their ends."""
        self._known([name], "stop of")
        runs = await self.running(system)
        ended = [each for each in reversed(runs) if each == name or name in self._below(each)]
        for each in ended:
            await Supervisor.terminate_child(system.root, each)
        return ended

    async def running(self, system: System) -> list[str]:
        """The names of those that run, in start order."""
        children = await Supervisor.which_children(system.root)
        return [child.id for child in children if child.id in self._specs and child.status == "running"]

    async def _start(self, system: System, spec: ApplicationSpec) -> None:
        config = {**spec.config, **self._config.get(spec.name, {})}
        restart = Restart.PERMANENT if spec.permanent else Restart.TEMPORARY
        child = replace(spec.tree(config), id=spec.name, restart=restart)
        if spec.name in [old.id for old in await Supervisor.which_children(system.root)]:
            await Supervisor.delete_child(system.root, spec.name)
        await system.start_child(child)

    def _below(self, name: str) -> set[str]:
        """What it depends on, directly or not."""
        found, left = set[str](), list(self._specs[name].depends_on)
        while left:
            if (each := left.pop()) not in found:
                found.add(each)
                left += self._specs[each].depends_on
        return found
