"""What a test asks of a running cluster waits for a lease that is just away; and what stays behind is named."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from anyio.from_thread import start_blocking_portal

from batonpass.scenarios.cluster.cluster import LocalCluster
from batonpass.scenarios.cluster.events import Kept
from batonpass.scenarios.players.rest_client import SILENT, ApiFailure
from batonpass.testing.running import RunningCluster, running_cluster

NAMES = ("alpha.h1", "alpha.s1", "alpha.s2")
PATIENCE_S = 60.0


class SilentInstance:
    """An instance that refuses some requests first, with these codes and reasons."""

    def __init__(self) -> None:
        self.refusals: list[str] = []
        self.asked: list[Any] = []

    async def call(self, _: str, method: str, path: str, body: Any = None) -> Any:
        if method == "PUT":
            return {}
        self.asked.append(body)
        is_transfer = path.endswith("/transfers")
        if self.refusals and is_transfer:
            return {"phase": "refused", "reason": self.refusals.pop()}
        if self.refusals:
            raise ApiFailure(self.refusals.pop(), "it is refused")
        return {"phase": "done", "reason": ""} if is_transfer else {"id": body["id"]}


@pytest.fixture
def instance() -> SilentInstance:
    return SilentInstance()


@pytest.fixture
def patience_s() -> float:
    return PATIENCE_S


@pytest.fixture
def cluster(instance: SilentInstance, patience_s: float) -> Iterator[RunningCluster]:
    servers = [SimpleNamespace(name=name) for name in NAMES]
    local = SimpleNamespace(servers=servers, homeserver_urls=lambda: {"alpha": ["http://127.0.0.1:1"]})
    with start_blocking_portal("trio") as portal:
        yield RunningCluster(portal, cast("LocalCluster", local), cast("Any", instance), patience_s)


def test_an_entity_is_created_once_its_server_has_a_lease(instance: SilentInstance, cluster: RunningCluster) -> None:
    instance.refusals = ["target_down", "target_down"]
    assert cluster.spawn("alpha.one", "ball", owner="alpha.ada") == {"id": "alpha.one"}
    assert [body["server"] for body in instance.asked] == ["alpha.s1"] * 3


@pytest.mark.parametrize(
    ("refusals", "patience_s", "told"),
    [(["full"], PATIENCE_S, "full"), (["target_down"] * 999, 0.1, "alpha.s1 could be given nothing for 0.1 s")],
)
def test_an_entity_that_is_not_created_is_told(
    instance: SilentInstance, cluster: RunningCluster, refusals: list[str], told: str
) -> None:
    instance.refusals = refusals
    with pytest.raises(ApiFailure, match=told):
        cluster.spawn("alpha.one", "ball", owner="alpha.ada")


@pytest.mark.parametrize("reason", sorted(SILENT))
def test_a_transfer_is_ordered_anew_where_a_server_was_silent(
    instance: SilentInstance, cluster: RunningCluster, reason: str
) -> None:
    instance.refusals = [reason]
    assert cluster.move("alpha.one", "alpha.s2")["phase"] == "done"
    first, second = (body["transfer_id"] for body in instance.asked)
    assert first != second


def test_a_transfer_that_is_refused_is_told(instance: SilentInstance, cluster: RunningCluster) -> None:
    instance.refusals = ["locked"]
    with pytest.raises(AssertionError, match="locked"):
        cluster.move("alpha.one", "alpha.s2")


@pytest.mark.parametrize("is_said", [False, True])
def test_a_directory_that_stays_after_a_failure_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path, is_said: bool
) -> None:
    @asynccontextmanager
    async def failing(_spec: Any, *, progress: Any, **_: Any) -> AsyncIterator[LocalCluster]:
        progress(Kept(tmp_path))
        if progress is not None:
            raise OSError("no more processes")
        yield cast("LocalCluster", None)

    monkeypatch.setattr(LocalCluster, "start", failing)
    with pytest.raises(OSError, match="no more"), running_cluster(directory=tmp_path if is_said else None):
        pass
    assert caplog.messages == ([] if is_said else [f"logs and state are kept in {tmp_path}"])
