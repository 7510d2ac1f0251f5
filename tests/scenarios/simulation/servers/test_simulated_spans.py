"""What simulated servers tell of hand-overs while whole clusters fail: each start has one stop, and they fit."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.actors.core.telemetry import HANDLER_FAILED, Event, Telemetry
from batonpass.authority.model.rows import Rows
from batonpass.authority.node.spans import (
    ADOPTION,
    ARRIVAL,
    BULK,
    DECISION,
    DEPARTURE,
    FREEZE,
    GROUP,
    PRECOPY,
    SPANS,
    STAGING,
    TAKEOVER,
    Spans,
    takeover_id,
)
from batonpass.authority.procedures.failover import RECOVERY_PROCEDURES
from batonpass.scenarios.simulation.servers.mixes import MIXES
from batonpass.scenarios.simulation.servers.parts import ServersParts
from batonpass.scenarios.simulation.servers.run import simulate
from tests.budget import examples

# Of those mixes together every span, and every way in which they are sure to end.
ENDING: Final = ("large", "together", "lossy", "leases", "convoys", "everything")
TAKEN_OVER: Final = ("deaths", "crashes", "power")

OUTCOMES: Mapping[Event, set[str]] = {
    PRECOPY: {"copied", "unanswered"},
    DEPARTURE: {"retired", "resumed", "dropped", "stepped_down"},
    FREEZE: {"retired", "resumed", "dropped", "stepped_down"},
    STAGING: {"staged", "given_up", "superseded"},
    ARRIVAL: {"activated", "dropped"},
    DECISION: {"committed", "refused", "pending", "failed"},
    GROUP: {"committed", "refused", "failed"},
    BULK: {"done", "one_by_one", "failed"},
    TAKEOVER: {"adopted", "again", "lost", "ended", "left_office"},
    ADOPTION: {"adopted", "another_life", "without_copy", "unreadable"},
}
KEYS = {"server", "span", "transfer_id", "entity", "source", "target", "case", "mode", "fence", "outcome", "reason"}


@dataclass
class Life:
    """One life of a server: what it has told, and by their numbers the spans that have not stopped."""

    spans: Spans
    open: dict[int, tuple[Event, str, str]] = field(default_factory=dict)
    stopped: list[tuple[Event, Mapping[str, float], Mapping[str, Any]]] = field(default_factory=list)

    def heard(self, event: Event, measurements: Mapping[str, float], metadata: Mapping[str, Any], _: Any) -> None:
        prefix, key = event[:-1], (event[:-1], metadata["transfer_id"], metadata["entity"])
        assert metadata.keys() == KEYS
        assert metadata["server"] == self.spans.server
        if event[-1] == "start":
            assert metadata["outcome"] == ""
            assert metadata["span"] not in self.open
            self.open[metadata["span"]] = key
            return
        assert self.open.pop(metadata["span"], None) == key, f"{key} stops, and has not started, or has stopped"
        assert metadata["outcome"] in OUTCOMES[prefix], (prefix, metadata["outcome"])
        assert measurements["duration_s"] >= 0
        self.stopped.append((prefix, measurements, metadata))


@dataclass
class Recorder:
    """Listens to every life of every server of a run."""

    lives: list[Life] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def spans(self, server: str, now_ns: Callable[[], int]) -> Spans:
        telemetry = Telemetry(lambda: now_ns() / 1e9)
        spans = Spans(telemetry, server, now_ns)
        life = Life(spans)
        events = [(*prefix, word) for prefix in SPANS for word in ("start", "stop")]
        telemetry.attach("recorder", events, life.heard)
        telemetry.attach("failures", HANDLER_FAILED, self._failed)
        self.lives.append(life)
        return spans

    def _failed(self, _event: Event, _measurements: Any, metadata: Mapping[str, Any], _config: Any) -> None:
        self.failures.append(f"{metadata['event']}: {metadata['error']!r}")

    def stops(self, prefix: Event) -> Iterator[tuple[Mapping[str, float], Mapping[str, Any]]]:
        return ((m, metadata) for life in self.lives for what, m, metadata in life.stopped if what == prefix)


@dataclass
class Takeovers:
    """Listens to the log of a run: under which names entities were taken over, and declared lost."""

    adopted: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)

    def procedures(self) -> dict[str, Any]:
        return {f"recovery.{name}": self._heard(f"recovery.{name}") for name in ("adopted", "lost")}

    def _heard(self, procedure: str) -> Callable[[Rows, Mapping[str, Any]], Any]:
        def run(rows: Rows, args: Mapping[str, Any]) -> Any:
            done = RECOVERY_PROCEDURES[procedure](rows, args)
            epochs = {item["entity"]: item["epoch"] for item in args["items"]}
            if procedure == "recovery.adopted":
                # The target has it under the epoch after the raised one.
                self.adopted |= {takeover_id(entity, epochs[entity] - 1) for entity in done}
            else:
                self.lost |= {takeover_id(entity, epochs[entity]) for entity in done}
            return done

        return run


@cache
def heard(mix: str, seed: int) -> Recorder:
    """What a run told, which several look at: a run of a seed is always the same."""
    return recorded(mix, seed)


def recorded(mix: str, seed: int, procedures: Mapping[str, Any] | None = None) -> Recorder:
    recorder = Recorder()
    outcome = simulate(MIXES[mix], seed, ServersParts(spans=recorder.spans, procedures=procedures or {}))
    assert not outcome.violations, f"{mix}, seed {seed}: {outcome.violations}"
    assert not recorder.failures, f"{mix}, seed {seed}: {recorder.failures}"
    return recorder


def check(recorder: Recorder, what: str) -> None:
    for life in recorder.lives:
        assert len(life.open) == life.spans.open, f"{what}: what is open is what has started and not stopped"
    # What the old and the new authority tell of one transfer is told under one id, which both sides have.
    left = {(metadata["transfer_id"], metadata["entity"]) for _, metadata in recorder.stops(DEPARTURE)}
    left |= {key[1:] for life in recorder.lives for key in life.open.values() if key[0] == DEPARTURE}
    came = {(m["transfer_id"], m["entity"]) for _, m in recorder.stops(ARRIVAL) if m["outcome"] == "activated"}
    assert came <= left, f"{what}: {came - left} came from nowhere"


@pytest.mark.parametrize("mix", ENDING)
@settings(max_examples=1, deadline=None)
@given(seed=st.integers(0, 1_000))
def test_each_start_has_one_stop_whatever_happens(mix: str, seed: int) -> None:
    recorder = heard(mix, seed)
    check(recorder, f"{mix}, seed {seed}")
    assert any(True for _ in recorder.stops(DEPARTURE)), f"{mix}, seed {seed}"


@pytest.mark.parametrize("mix", TAKEN_OVER)
@settings(max_examples=examples(8, fewest=2), deadline=None)
@given(seed=st.integers(0, 1_000))
def test_each_takeover_of_a_run_has_its_span(mix: str, seed: int) -> None:
    check_takeovers(mix, seed)


def test_runs_of_deaths_have_takeovers_and_losses_to_tell_of() -> None:
    runs = [check_takeovers(mix, 11) for mix in TAKEN_OVER]
    assert all(run.adopted for run in runs)
    assert any(run.lost for run in runs)


def check_takeovers(mix: str, seed: int) -> Takeovers:
    what, log = f"{mix}, seed {seed}", Takeovers()
    recorder = recorded(mix, seed, log.procedures())
    check(recorder, what)
    stopped = Counter((m["transfer_id"], m["outcome"]) for _, m in recorder.stops(TAKEOVER))
    # A homeserver that was killed says nothing more, and one that leaves office has not heard how it ends.
    unheard = {key[1] for life in recorder.lives for key in life.open.values() if key[0] == TAKEOVER}
    unheard |= {takeover for takeover, outcome in stopped if outcome == "left_office"}
    for told, outcome in ((log.adopted, "adopted"), (log.lost, "lost")):
        assert {one for one in told - unheard if not stopped[one, outcome]} == set(), f"{what}: {outcome}"
    assert [one for one in stopped if one[1] in ("adopted", "again", "ended") and stopped[one] > 1] == [], what
    return log


def test_what_has_become_quiet_has_no_open_departure() -> None:
    recorder = heard("lossy", 3)
    last = {life.spans.server: life for life in recorder.lives}
    still = [key for life in last.values() for key in life.open.values() if key[0] != ARRIVAL]
    assert still == []


def test_runs_of_few_mixes_have_spans_of_every_kind() -> None:
    seen: set[Event] = set()
    for seed, mix in product((2, 0), ("large", "convoys", "together", "leases", "everything")):
        recorder = heard(mix, seed)
        seen |= {prefix for prefix in SPANS if any(True for _ in recorder.stops(prefix))}
        if seen == set(SPANS):
            return
    pytest.fail(f"no run has a span of {set(SPANS) - seen}")


def test_to_listen_changes_nothing() -> None:
    assert (
        simulate(MIXES["leases"], 5, ServersParts(spans=Recorder().spans)).trace == simulate(MIXES["leases"], 5).trace
    )
