"""Functions that a server's configuration names, each of which attaches to its telemetry what it wants.

```toml
[telemetry]
handlers = ["my_package.spans:export"]
```

Each is called once, as `function(telemetry, name)`, before anything of the server runs; `name` is the server's. What it
attaches is detached and reported when it raises later, as of any handler (`actors.core.telemetry`). It may return
metrics (`actors.observe.metrics`), which the server then has at `GET /metrics` beside its own.
"""

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from batonpass.actors.core.checks import several
from batonpass.actors.core.telemetry import Telemetry
from batonpass.actors.observe.metrics import TelemetryMetric
from batonpass.authority.node.config import ConfigError
from batonpass.authority.node.plugins import import_named, or_config_error

__all__ = ["attach_listeners", "load_listener"]


def attach_listeners(specs: Sequence[str], telemetry: Telemetry, name: str) -> list[TelemetryMetric]:
    """Have each of these functions, as `package.module:function`, attach what it wants to the telemetry of `name`.

    Returns the metrics that they want counted.

    Raises:
        ConfigError: there is no such function, it raised, or returned what is neither None nor metrics; the sentence is
            one line and names it.
    """
    metrics: list[TelemetryMetric] = []
    for spec in specs:
        function = load_listener(spec)
        call = partial(function, telemetry, name)
        metrics += or_config_error(partial(_metrics_of, call), f"telemetry.handlers: {spec} failed")
    return metrics


def _metrics_of(function: Callable[[], Any]) -> tuple[TelemetryMetric, ...]:
    returned = function()
    return () if returned is None else several(TelemetryMetric, "what it returns", returned)


def load_listener(spec: str) -> Any:
    """The function of this name; raises `ConfigError` as `attach_listeners`."""
    function = import_named(f"telemetry.handlers: {spec}", spec, "function")
    if not callable(function) or inspect.iscoroutinefunction(function):
        raise ConfigError(f"telemetry.handlers: {spec} is no plain function of two arguments (telemetry, name)")
    return function
