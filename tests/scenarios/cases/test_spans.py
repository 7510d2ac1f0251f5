"""Spans of hand-overs between real processes, told by a module that the servers' configuration names."""

import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio

from batonpass.authority.node.config import TelemetrySettings
from batonpass.authority.node.spans import ARRIVAL, DECISION, DEPARTURE, FREEZE, STAGING
from batonpass.scenarios.cases.cases import CASES, CasePlan, Run, open_run
from batonpass.scenarios.cli.main import run_command
from batonpass.scenarios.cluster.blueprint import to_toml
from batonpass.scenarios.cluster.cluster import LocalCluster
from batonpass.scenarios.cluster.topology import ClusterSpec
from tests.homeserver.served import homeserver_config, new_ports
from tests.scenarios.asked import LIMIT_S, PATIENCE_S, come, limited

pytestmark = limited

# Nobody dies here: only a machine that has much else to do would end a lease.
SPEC = ClusterSpec(
    instances={"alpha": 1},
    simservers=2,
    lease_term_s=60.0,
    log_level="WARNING",
    telemetry_handlers=("spans_in_a_file:attach",),
)
PLANS: Mapping[tuple[str, str], CasePlan] = {(plan.case, plan.transport): plan for plan in CASES if plan.case != "1"}
LISTENER = """
import json
from pathlib import Path

from batonpass.authority.node.spans import SPANS


def attach(telemetry, name):
    file = Path(__file__).with_name(f"{name}.spans").open("a", buffering=1)

    def write(event, measurements, metadata, _config):
        file.write(json.dumps([event, dict(measurements), dict(metadata)]) + "\\n")

    telemetry.attach("file", [(*span, word) for span in SPANS for word in ("start", "stop")], write)
"""
# Of seconds as floats, in milliseconds.
NEAR = 1e-3


@dataclass
class Told:
    """What one server has told of one span."""

    start: Mapping[str, Any]
    stop: Mapping[str, Any]
    metadata: Mapping[str, Any]

    @property
    def started_ms(self) -> float:
        return float(self.start["monotonic_time_s"] * 1000)

    @property
    def stopped_ms(self) -> float:
        return float(self.stop["monotonic_time_s"] * 1000)


def spans_of(transfer_id: str, directory: Path) -> dict[tuple[str, ...], Told]:
    """By their names, what all servers together have told of one transfer; of what came again, the first."""
    starts: dict[tuple[str, ...], Any] = {}
    told: dict[tuple[str, ...], Told] = {}
    for file in sorted(directory.glob("*.spans")):
        for line in file.read_text().splitlines():
            event, measurements, metadata = json.loads(line)
            if metadata["transfer_id"] != transfer_id:
                continue
            prefix = tuple(event[:-1])
            if event[-1] == "start":
                starts.setdefault(prefix, measurements)
            else:
                told.setdefault(prefix, Told(starts[prefix], measurements, metadata))
    return told


async def moved(run: Run, entity: str, case: str, transport: str, mode: str = "eager") -> dict[str, Any]:
    """A transfer, and what is said of it when it is over.

    Of a repeated one neither hops nor phases are known as a whole: another one follows it.
    """
    plan = PLANS[case, transport]

    async def whole() -> dict[str, Any]:
        measured = await run.move(entity, plan.staged() if mode == "staged" else plan)
        view: dict[str, Any] = await run.client.call("alpha", "GET", f"/v1/transfers/{measured.transfer_id}")
        return view

    return await come(whole, lambda view: not view["repeated"], what=f"a transfer of {entity} that is not repeated")


async def test_spans_of_real_transfers_add_up_to_the_phases_that_are_told_when_they_are_over(tmp_path: Path) -> None:
    (tmp_path / "spans_in_a_file.py").write_text(LISTENER)
    paths = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH", ""))))
    with trio.fail_after(LIMIT_S):
        async with (
            # Servers that are not ended in order leave spans without their ends.
            LocalCluster.start(SPEC, environment={"PYTHONPATH": paths}, grace_s=PATIENCE_S) as cluster,
            open_run(cluster, 7, patience_s=PATIENCE_S) as run,
        ):
            await run.spawn("alpha.through-home", "alpha.s1")
            await run.spawn("alpha.passed", "alpha.s1")
            body = {"group": ["alpha.s1", "alpha.s2"]}
            await run.client.call("alpha", "PUT", "/v1/entities/alpha.passed/delegation", body)
            by_home = [await moved(run, "alpha.through-home", "2", way) for way in ("rest", "link")]
            by_pass = [await moved(run, "alpha.passed", "3", "link") for _ in range(2)]
            staged = await moved(run, "alpha.through-home", "2", "link", "staged")

    for view in by_home:
        spans, phases = spans_of(view["id"], tmp_path), view["timings_ms"]
        check(view, spans)
        freeze, decision, arrival = spans[FREEZE], spans[DECISION], spans[ARRIVAL]
        assert decision.metadata["outcome"] == "committed"
        assert decision.started_ms - freeze.started_ms == pytest.approx(phases["request"], abs=NEAR)
        assert decision.stop["rule_s"] * 1000 == pytest.approx(phases["rule"], abs=NEAR)
        assert decision.stop["commit_s"] * 1000 == pytest.approx(phases["commit"], abs=NEAR)
        assert arrival.stopped_ms - decision.stopped_ms == pytest.approx(phases["activation"], abs=NEAR)
        assert STAGING not in spans
    for view in by_pass:
        spans, phases = spans_of(view["id"], tmp_path), view["timings_ms"]
        check(view, spans)
        assert spans[ARRIVAL].stop["duration_s"] * 1000 == pytest.approx(phases["activation"], abs=NEAR)
        assert spans[DEPARTURE].started_ms <= spans[FREEZE].started_ms
    spans = spans_of(staged["id"], tmp_path)
    check(staged, spans)
    assert spans[STAGING].metadata["outcome"] == "staged"
    assert spans[STAGING].stopped_ms <= spans[DECISION].started_ms
    assert unpaired(tmp_path) == Counter()


def check(view: Mapping[str, Any], spans: Mapping[tuple[str, ...], Told]) -> None:
    """What old and new authority say, whichever way it took."""
    departure, freeze, arrival = spans[DEPARTURE], spans[FREEZE], spans[ARRIVAL]
    outcomes = [span.metadata["outcome"] for span in (departure, freeze, arrival)]
    assert outcomes == ["retired", "retired", "activated"]
    assert {span.metadata["entity"] for span in spans.values()} == {view["entity"]}
    assert {(span.metadata["source"], span.metadata["target"]) for span in spans.values()} == {
        (view["source"], view["target"])
    }
    assert {span.metadata["case"] for span in (departure, arrival)} == {"3" if view["sub"] else "2"}
    assert departure.stop["hops"] == view["hops"]
    assert arrival.metadata["fence"] == [view["epoch"], view["sub"]]
    assert arrival.stopped_ms - freeze.started_ms == pytest.approx(view["timings_ms"]["total"], abs=NEAR)
    assert arrival.started_ms - freeze.started_ms == pytest.approx(view["timings_ms"]["state"], abs=NEAR)
    assert arrival.stop["gap_ticks"] == freeze.stop["gap_ticks"]


def unpaired(directory: Path) -> Counter[str]:
    """Starts without a stop, and stops without a start: servers that are stopped in order leave none."""
    open_now: Counter[str] = Counter()
    for file in directory.glob("*.spans"):
        for line in file.read_text().splitlines():
            event, _, metadata = json.loads(line)
            key = f"{metadata['server']} {event[1]} {metadata['transfer_id']} {metadata['entity']}"
            open_now[key] += 1 if event[-1] == "start" else -1
    return Counter({key: count for key, count in open_now.items() if count})


def test_a_server_whose_listener_cannot_be_found_does_not_start_and_says_so_in_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with new_ports() as ports:
        config = homeserver_config(tmp_path, ports).model_copy(
            update={"telemetry": TelemetrySettings(handlers=("no_such_module:attach",))}
        )
    file = tmp_path / "alpha.h1.toml"
    file.write_text(to_toml(config.model_dump(mode="json", exclude_none=True)))
    assert run_command(["homeserver", "--config", str(file)]) == 2
    out, err = capfd.readouterr()
    assert "telemetry.handlers: no_such_module:attach cannot be loaded: ModuleNotFoundError" in err
    assert (out, len(err.strip().splitlines())) == ("", 1)
