"""Other people's libraries, each in an environment of its own: what one needs must not change what another gets.

They are installed with pip, or npm, the first time they are measured, and kept in the user's cache directory.
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

__all__ = ["NpmLibrary", "PeerLibrary", "PeerMissing", "cache_directory", "install", "install_npm"]

_INSTALL_TIMEOUT_S: Final = 600


class PeerMissing(EnvironmentFailed):
    """A peer could not be installed; the sentence says why. The others can still be measured."""


@dataclass(frozen=True)
class PeerLibrary:
    """A library, what pip has to install for it, and the package whose version is the peer's."""

    name: str
    requirements: tuple[str, ...]


@dataclass(frozen=True)
class NpmLibrary:
    """A library that runs on node, and what npm has to install for it."""

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


def install_npm(peer: NpmLibrary, directory: Path, tell: Tell) -> Path:
    """The environment of the peer below `directory`, which is made if it is not there; `node_modules` is in it.

    Raises:
        PeerMissing: there is no node, or npm failed.
    """
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            raise PeerMissing(f"{peer.name} runs on node: no {program} is installed")
    wanted = sha256("\n".join(peer.requirements).encode()).hexdigest()[:12]
    environment = directory.absolute() / f"{peer.name}-{wanted}"
    if not (environment / "complete").exists():
        tell(f"installing {' '.join(peer.requirements)} (once) in {environment}")
        shutil.rmtree(environment, ignore_errors=True)
        environment.mkdir(parents=True)
        flags = ("--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(environment))
        _run(["npm", "install", *flags, *peer.requirements], peer)
        (environment / "complete").touch()
    return environment


def _run(argv: Sequence[str], peer: PeerLibrary | NpmLibrary) -> None:
    try:
        subprocess.run(argv, check=True, capture_output=True, text=True, timeout=_INSTALL_TIMEOUT_S)
    except subprocess.CalledProcessError as error:
        reason = (error.stderr or error.stdout or "no output").strip().splitlines()[-1]
        raise PeerMissing(f"{peer.name} cannot be installed: {reason}") from error
    except subprocess.TimeoutExpired as error:
        raise PeerMissing(f"{peer.name} cannot be installed: it took more than {_INSTALL_TIMEOUT_S} s") from error
