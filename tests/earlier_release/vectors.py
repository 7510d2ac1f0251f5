"""What the release before the packages' rooms wrote; tests/vectors/earlier_release/README.md says how it was recorded.

It is JSON in which bytes are `{"hex": …}`, so that nothing of today's code is needed to read it.
"""

import gzip
import json
import tarfile
from pathlib import Path
from typing import Any, Final

DIRECTORY: Final = Path(__file__).parents[1] / "vectors" / "earlier_release"


def recorded(name: str) -> Any:
    """A recording, as it stands there."""
    return json.loads(gzip.decompress((DIRECTORY / f"{name}.json.gz").read_bytes()))


def unpacked(name: str, to: Path) -> Path:
    """A copy of recorded files, below `to`."""
    with tarfile.open(DIRECTORY / f"{name}.tar.gz") as archive:
        for member in archive:
            path = to / member.name
            if member.isdir():
                path.mkdir(mode=0o700, exist_ok=True)
            elif (file := archive.extractfile(member)) is not None:
                path.write_bytes(file.read())
                path.chmod(0o600)
    return to


def neutral(value: Any) -> Any:
    """Any plain data in the form that the recordings have."""
    match value:
        case bytes():
            return {"hex": value.hex()}
        case dict() if all(isinstance(key, str) for key in value):
            return {str(key): neutral(inner) for key, inner in value.items()}
        case dict():
            return {"map": [[neutral(key), neutral(inner)] for key, inner in value.items()]}
        case list() | tuple():
            return [neutral(inner) for inner in value]
        case str():
            return str.__str__(value)
        case _:
            return value
