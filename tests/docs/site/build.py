"""From the pages to the site: staged, then built by Sphinx, each warning a fault."""

import sys
from pathlib import Path

from sphinx.cmd.build import build_main

from tests.docs.site.foreign import fetched_elsewhere
from tests.docs.site.references import write_references
from tests.docs.site.staged import stage

__all__ = ["build"]


def build(into: Path) -> int:
    """Build the site in `into`/html, which may be there. The exit status: 0 without a warning or a foreign host."""
    source, html = into / "source", into / "html"
    stage(source, write_references(source))
    options = ["-q", "-W", "--keep-going", "-c", str(Path(__file__).parent), "-d", str(into / "doctrees")]
    status = build_main([*options, str(source), str(html)])
    foreign = fetched_elsewhere(html)
    for one in foreign:
        print(f"fetched from another host: {one}", file=sys.stderr)  # noqa: T201
    return status or int(bool(foreign))
