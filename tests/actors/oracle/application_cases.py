"""The recorded lines about applications."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from batonpass.actors import Agent, ChildSpec, StartError, SupervisorSpec, System
from batonpass.actors.core.children import ActorSpec
from batonpass.actors.supervision.applications import ApplicationError, Applications, ApplicationSpec
from tests.actors.oracle.lines import Raw, oracle

started: list[tuple[str, Any]] = []


def tree(name: str, config: Mapping[str, Any]) -> ChildSpec:
    if name == "bad":
        raise OSError("no disk")
    started.append((name, config.get("size")))
    return SupervisorSpec(name, [ActorSpec("agent", Agent, lambda: name)], name=name)


def made(name: str, *depends_on: str, **config: Any) -> ApplicationSpec:
    return ApplicationSpec(name, partial(tree, name), depends_on, config)


def ours() -> Applications:
    started.clear()
    specs = [made("a_db", size=1), made("b_web", "a_db", size=2), made("c_shop", "b_web", "a_db"), made("bad")]
    return Applications([*specs, made("d_fails", "c_shop", "bad")], {"b_web": {"size": 20}})


async def answer(system: System, applications: Applications, name: str) -> tuple[str, Any]:
    try:
        return "ok", await applications.ensure_all_started(system, name)
    except (ApplicationError, StartError, OSError) as error:
        return "error", error


@oracle("app: ensure_all_started", "{:ok, [:a_db, :b_web, :c_shop]}")
async def all_started(_system: System) -> Any:
    async with ours().open("apps") as system:
        return await answer(system, ours(), "c_shop")


@oracle("app: what they were started with, in order", "[a_db: 1, b_web: 20, c_shop: nil]")
async def configured(_system: System) -> Any:
    async with ours().open("apps", "c_shop"):
        return started


@oracle("app: ensure_all_started of what runs", "{:ok, []}")
async def started_twice(_system: System) -> Any:
    applications = ours()
    async with applications.open("apps", "c_shop") as system:
        return await answer(system, applications, "c_shop")


@oracle("app: ensure_all_started of what is not known", ":error")
async def unknown(_system: System) -> Any:
    async with ours().open("apps") as system:
        return (await answer(system, ours(), "nobody"))[0]


@oracle("app: ensure_all_started of one of which a dependency fails, and what runs after", "{:error, []}")
async def failed(_system: System) -> Any:
    applications = ours()
    async with applications.open("apps") as system:
        answered = (await answer(system, applications, "d_fails"))[0]
        return answered, await applications.running(system) or Raw("[]")


@oracle("app: what runs after a temporary one was killed", "[:a_db, :c_shop]")
async def killed(_system: System) -> Any:
    applications = ours()
    async with applications.open("apps", "c_shop") as system:
        system.named("b_web").kill()
        return await applications.running(system)
