"""What the dashboard has from others: which package, of which version, under which licence, and the hash of each file.

The files are as npm has them. To take another version: `npm pack NAME@VERSION`, copy the files, write down the hashes,
and look at the page. A test holds each file against its hash.
"""

from dataclasses import dataclass
from typing import Final

__all__ = ["VENDORED", "VendoredPackage"]


@dataclass(frozen=True, slots=True)
class VendoredPackage:
    """A package of npm. `integrity` is what npm says of its archive; `files` are SHA-256 by the names in `page`."""

    name: str
    version: str
    licence: str
    licence_file: str
    integrity: str
    files: dict[str, str]


VENDORED: Final = (
    VendoredPackage(
        name="uplot",
        version="1.6.32",
        licence="MIT",
        licence_file="uPlot.LICENSE.txt",
        integrity="sha512-KIMVnG68zvu5XXUbC4LQEPnhwOxBuLyW1AHtpm6IKTXImkbLgkMy+jabjLgSLMasNuGGzQm/ep3tOkyTxpiQIw==",
        files={
            "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
            "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
        },
    ),
)
