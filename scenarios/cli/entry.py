"""Where the command `baton` begins: Ctrl-C is one line also while the program is being loaded, which takes a moment."""

import sys
from typing import NoReturn

from batonpass.scenarios.common.status import INTERRUPTED

__all__ = ["main"]


def main() -> NoReturn:
    """Load the program and run it; exits with its status."""
    try:
        from batonpass.scenarios.cli import main as cli
    except KeyboardInterrupt:
        sys.stderr.write("baton: interrupted\n")
        sys.exit(INTERRUPTED)
    cli.main()
