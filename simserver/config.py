"""Configuration of a simulation server, as read from TOML."""

from pathlib import Path
from typing import Any

from pydantic import Field

from authority.settings import Address, ConfigError, InstanceName, ServerName, Settings

__all__ = ["ConfigError", "SimserverConfig"]


class SimserverConfig(Settings):
    """Everything a simulation server needs to know before it starts.

    `world` names the simulation as `package.module:ClassName` (see `simserver.world.World`); `world_options` is handed
    to it as it stands.
    """

    name: ServerName
    instance: InstanceName
    directory: Path
    rest: Address = Address()
    link: Address = Address()
    home_urls: tuple[str, ...] = Field(min_length=1)
    join_token_file: Path
    # Without it, nobody can look into its actors over HTTP.
    operator_token_file: Path | None = None
    tick_hz: float = Field(default=20.0, gt=0, le=1000)
    world: str = "simserver.balls:Balls"
    world_options: dict[str, Any] = Field(default_factory=dict)
    log_level: str = "INFO"
