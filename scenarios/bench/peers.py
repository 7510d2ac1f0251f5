"""Other people's libraries, each in a virtual environment of its own: what one needs must not change what another gets.

They are installed with pip the first time they are measured, and kept in the user's cache directory.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from batonpass.scenarios.bench.subject import Tell
from batonpass.scenarios.common.errors import EnvironmentFailed

__all__ = ["PeerLibrary", "PeerMissing", "cache_directory", "install"]

_PIP_TIMEOUT_S: Final = 600


class PeerMissing(EnvironmentFailed):
    """A peer could not be installed; the sentence says why. The others can still be measured."""


@dataclass(frozen=True)
class PeerLibrary:
    """A library, what pip has to install for it, and the package whose version is the peer's."""

    name: str
    requirements: tuple[str, ...]


def cache_directory() -> Path:
    """Where the environments are kept: `$XDG_CACHE_HOME/batonpass/peers` (XDG Base Directory Specification)."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "batonpass" / "peers"


def install(peer: PeerLibrary, directory: Path, tell: Tell) -> Path:
    """The Python of the peer's environment below `directory`, which is made if it is not there or is of other versions.

    Raises:
        PeerMissing: pip failed.
    """
    wanted = sha256("\n".join((sys.version, *peer.requirements)).encode()).hexdigest()[:12]
    environment = directory / f"{peer.name}-{wanted}"
    python = environment / "bin" / "python"
    if not (environment / "complete").exists():
        tell(f"installing {' '.join(peer.requirements)} (once) in {environment}")
        shutil.rmtree(environment, ignore_errors=True)
        environment.parent.mkdir(parents=True, exist_ok=True)
        _run([sys.executable, "-m", "venv", str(environment)], peer)
        _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *peer.requirements], peer)
        (environment / "complete").touch()
    return python


def _run(argv: Sequence[str], peer: PeerLibrary) -> None:
    try:
        subprocess.run(argv, check=True, capture_output=True, text=True, timeout=_PIP_TIMEOUT_S)
    except subprocess.CalledProcessError as error:
        reason = (error.stderr or error.stdout or "no output").strip().splitlines()[-1]
        raise PeerMissing(f"{peer.name} cannot be installed: {reason}") from error
    except subprocess.TimeoutExpired as error:
        raise PeerMissing(f"{peer.name} cannot be installed: pip took more than {_PIP_TIMEOUT_S} s") from error
