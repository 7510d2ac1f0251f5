"""Functions that a server's configuration names, each of which attaches to its telemetry what it wants.

```toml
[telemetry]
handlers = ["my_package.spans:export"]
```

Each is called once, as `function(telemetry, name)`, before anything of the server runs; `name` is the server's. What it
attaches is detached and reported when it raises later, as of any handler (`actors.telemetry`).
"""

import importlib
import inspect
from collections.abc import Sequence
from typing import Any

from actors.telemetry import Telemetry
from authority.settings import ConfigError

__all__ = ["attach_listeners", "load_listener"]


def attach_listeners(specs: Sequence[str], telemetry: Telemetry, name: str) -> None:
    """Have each of these functions, as `package.module:function`, attach what it wants to the telemetry of `name`.

    Raises:
        ConfigError: there is no such function, or it raised; the sentence is one line and names it.
    """
    for spec in specs:
        function = load_listener(spec)
        try:
            function(telemetry, name)
        except (Exception, SystemExit) as error:
            said = " ".join(str(error).split())
            raise ConfigError(f"telemetry.handlers: {spec} failed: {type(error).__name__}: {said}") from error


def load_listener(spec: str) -> Any:
    """The function of this name; raises `ConfigError` as `attach_listeners`."""
    module_name, _, function_name = spec.partition(":")
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except (Exception, SystemExit) as error:  # the module is the user's: whatever its import raises
        said = " ".join(str(error).split())
        raise ConfigError(
            f"telemetry.handlers: {spec} cannot be loaded: {type(error).__name__}: {said}; "
            "expected 'package.module:function'"
        ) from error
    if not callable(function) or inspect.iscoroutinefunction(function):
        raise ConfigError(f"telemetry.handlers: {spec} is no plain function of two arguments (telemetry, name)")
    return function
