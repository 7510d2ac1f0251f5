"""Functions that a server's configuration names, each of which attaches to its telemetry what it wants.

```toml
[telemetry]
handlers = ["my_package.spans:export"]
```

Each is called once, as `function(telemetry, name)`, before anything of the server runs; `name` is the server's. What it
attaches is detached and reported when it raises later, as of any handler (`actors.core.telemetry`).
"""

import inspect
from collections.abc import Sequence
from functools import partial
from typing import Any

from batonpass.actors.core.telemetry import Telemetry
from batonpass.authority.node.config import ConfigError
from batonpass.authority.node.plugins import import_named, or_config_error

__all__ = ["attach_listeners", "load_listener"]


def attach_listeners(specs: Sequence[str], telemetry: Telemetry, name: str) -> None:
    """Have each of these functions, as `package.module:function`, attach what it wants to the telemetry of `name`.

    Raises:
        ConfigError: there is no such function, or it raised; the sentence is one line and names it.
    """
    for spec in specs:
        function = load_listener(spec)
        or_config_error(partial(function, telemetry, name), f"telemetry.handlers: {spec} failed")


def load_listener(spec: str) -> Any:
    """The function of this name; raises `ConfigError` as `attach_listeners`."""
    function = import_named(f"telemetry.handlers: {spec}", spec, "function")
    if not callable(function) or inspect.iscoroutinefunction(function):
        raise ConfigError(f"telemetry.handlers: {spec} is no plain function of two arguments (telemetry, name)")
    return function
