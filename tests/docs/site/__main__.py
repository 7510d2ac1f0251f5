"""Build the site: `python -m tests.docs.site [--into build/site]`. A dangling link or a foreign host is a fault."""

import sys
from argparse import ArgumentParser
from pathlib import Path

from tests.docs.pages import ROOT
from tests.docs.site.build import build


def main() -> int:
    """The exit status of Sphinx: 0 without a fault."""
    parser = ArgumentParser(prog="python -m tests.docs.site", description=__doc__)
    parser.add_argument("--into", type=Path, default=ROOT / "build" / "site")
    given = parser.parse_args()
    status = build(given.into)
    print(f"the site is in {given.into / 'html' / 'index.html'}" if not status else "the site has faults")  # noqa: T201
    return status


if __name__ == "__main__":
    sys.exit(main())
