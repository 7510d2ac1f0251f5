"""`python -m scenarios.bench CONFIG`: one member process of the benchmark; see `member`. Not for people."""

import gc
import sys

from scenarios.orphans import die_with_parent


def _main() -> None:
    # First of all: an orphan shall not even finish its imports.
    die_with_parent()
    # As the servers do: what is imported is no garbage, so it is not looked through.
    gc.disable()
    import trio

    from scenarios.bench.member import config_from_text, serve

    gc.freeze()
    gc.enable()
    trio.run(serve, config_from_text(sys.argv[1]))


_main()
