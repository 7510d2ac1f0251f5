"""Code of users that a configuration names as `package.module:name`: whatever it raises is one sentence."""

import importlib
import logging
from collections.abc import Callable
from typing import Any, Final, TypeVar

from batonpass.actors.base.errors import is_stopping, said
from batonpass.authority.node.config import ConfigError

__all__ = ["import_named", "or_config_error"]

ResultT = TypeVar("ResultT")

_log = logging.getLogger("batonpass.authority.node.plugins")

# What stands in the configurations of users; read for one release.
_FORMER: Final = {
    "authority.placement": "batonpass.authority.placement.policy",
    "scenarios.airspace": "batonpass.scenarios.sectors.world",
    "simserver.balls": "batonpass.simserver.world.demo_balls",
}


def import_named(what: str, spec: str, kind: str) -> Any:
    """Import what `spec` names; `what` begins the sentence if that fails, and `kind` says what stands after the colon.

    Raises:
        ConfigError: there is no such module, or it has no such name, or its import raised.
    """
    module_name, _, name = spec.partition(":")
    if module_name in _FORMER:
        now = f"{_FORMER[module_name]}:{name}"
        _log.warning("%s: it is called %s now, and the next release does not read the former name", what, now)
        module_name = _FORMER[module_name]

    def load() -> Any:
        return getattr(importlib.import_module(module_name), name)

    return or_config_error(load, f"{what} cannot be loaded", f"; expected 'package.module:{kind}'")


def or_config_error(function: Callable[[], ResultT], failed: str, hint: str = "") -> ResultT:
    """What `function`, which runs code of users, returns.

    Raises:
        ConfigError: it raised; the sentence is one line that begins with `failed` and ends with `hint`.
    """
    try:
        return function()
    except BaseException as error:
        if is_stopping(error):
            raise
        raise ConfigError(f"{failed}: {' '.join(said(error).split())}{hint}") from error
