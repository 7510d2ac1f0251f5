"""What `@dcl/ecs` 7.28.0 did: the files of `vectors/`."""

import json
from pathlib import Path
from typing import Any

__all__ = ["vectors"]


def vectors(name: str) -> Any:
    """The content of `vectors/<name>.json`."""
    return json.loads((Path(__file__).parent / "vectors" / f"{name}.json").read_text(encoding="utf-8"))
