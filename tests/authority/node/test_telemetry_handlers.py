"""Functions that a configuration names to listen to a server's telemetry, and what is said of those that cannot."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from batonpass.actors.core.telemetry import Telemetry
from batonpass.actors.observe.metrics import CounterMetric
from batonpass.authority.node.config import ConfigError, Settings, TelemetrySettings
from batonpass.authority.node.metrics import open_metrics
from batonpass.authority.node.spans import DECISION, DEPARTURE, Spans
from batonpass.authority.node.telemetry_handlers import attach_listeners

MODULE = "listeners_of_a_test"
EVENT = (*DECISION, "start")


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    made = ModuleType(MODULE)
    monkeypatch.setitem(sys.modules, MODULE, made)
    return made


def test_each_is_called_once_with_the_hub_and_the_name(module: Any) -> None:
    calls: list[Any] = []
    module.one = lambda telemetry, name: telemetry.attach(name, EVENT, lambda *_: None)
    module.two = lambda *given: calls.append(given)
    telemetry = Telemetry(lambda: 0.0)
    attach_listeners([f"{MODULE}:one", f"{MODULE}:two"], telemetry, "alpha.s1")
    assert calls == [(telemetry, "alpha.s1")]
    assert [handler.id for handler in telemetry.list_handlers()] == ["alpha.s1"]
    assert Spans(telemetry, "alpha.s1", lambda: 0).wants(DECISION)


def test_a_server_has_the_metrics_that_they_return_beside_its_own(module: Any) -> None:
    moved = CounterMetric("moved_balls", "Balls that moved.", (*DEPARTURE, "stop"), tags=("outcome",))
    module.one, module.two = lambda *_: [moved], lambda *_: None
    telemetry = Telemetry(lambda: 0.0)
    listed = attach_listeners([f"{MODULE}:one", f"{MODULE}:two"], telemetry, "alpha.s1")
    metrics = open_metrics(telemetry, "alpha.s1", "simserver", tuple, listed)
    assert metrics is not None
    Spans(telemetry, "alpha.s1", lambda: 0).start(DEPARTURE, 0, {}, case="2").stop(1, "retired")
    text = metrics.exposition()[0].decode()
    for name, labels in (("moved_balls", 'outcome="retired"'), ("transfers", 'case="2",outcome="retired"')):
        assert f"batonpass_{name}_total{{{labels}}} 1.0" in text


def test_what_cannot_be_used_is_one_line_that_names_it(module: Any) -> None:
    async def asynchronous(_telemetry: Telemetry, _name: str) -> None: ...

    def fails(_telemetry: Telemetry, _name: str) -> None:
        raise ValueError("first\nsecond")

    def ends(_telemetry: Telemetry, _name: str) -> None:
        sys.exit(3)

    module.ends, module.returns = ends, lambda *_: [7]
    module.asynchronous, module.fails, module.number, module.one = asynchronous, fails, 7, lambda _telemetry: None
    sentences = {
        "no_such_module:function": "cannot be loaded: ModuleNotFoundError",
        f"{MODULE}:missing": "cannot be loaded: AttributeError",
        f"{MODULE}:number": "no plain function of two arguments",
        f"{MODULE}:asynchronous": "no plain function of two arguments",
        f"{MODULE}:fails": "failed: ValueError: first second",
        f"{MODULE}:one": "failed: TypeError",
        f"{MODULE}:returns": "failed: TypeError: what it returns: number 0 must be a TelemetryMetric, not 7",
        f"{MODULE}:ends": "failed: SystemExit: 3",
    }
    for spec, sentence in sentences.items():
        with pytest.raises(ConfigError, match=sentence) as caught:
            attach_listeners([spec], Telemetry(lambda: 0.0), "alpha.s1")
        assert str(caught.value).startswith(f"telemetry.handlers: {spec} ")
        assert "\n" not in str(caught.value)


def test_a_module_that_ends_the_process_is_one_line_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ends_when_imported.py").write_text("import sys\n\nsys.exit('no licence')\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="cannot be loaded: SystemExit: no licence"):
        attach_listeners(["ends_when_imported:one"], Telemetry(lambda: 0.0), "alpha.s1")


class _Configuration(Settings):
    telemetry: TelemetrySettings = TelemetrySettings()


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('handlers = ["my_package"]', r"telemetry\.handlers\.0"),
        ('handlers = "my_package:function"', r"telemetry\.handlers: .*such as \[\"my_package:function\"\]"),
        ('handler = ["my_package:function"]', r"telemetry\.handler"),
        (f"handlers = {['a:b'] * 17}", r"telemetry\.handlers"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_by_its_name(tmp_path: Path, text: str, where: str) -> None:
    file = tmp_path / "server.toml"
    file.write_text(f"[telemetry]\n{text}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=where):
        _Configuration.load(file)


def test_the_setting_is_read(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text('[telemetry]\nhandlers = ["my_package.spans:export"]\n', encoding="utf-8")
    assert _Configuration.load(file).telemetry.handlers == ("my_package.spans:export",)
