"""One member process of the benchmark, `python -m batonpass.scenarios.bench.tree CONFIG`: see `member`."""

import gc
import sys
import traceback

from batonpass.scenarios.cluster.subreaper import die_with_parent


def _main() -> None:
    # First of all: an orphan shall not even finish its imports.
    die_with_parent()
    # As the servers do: what is imported is no garbage, so it is not looked through.
    gc.disable()
    import trio

    from batonpass.scenarios.bench.tree.member import parse_arguments, serve

    gc.freeze()
    gc.enable()
    try:
        trio.run(serve, *parse_arguments(sys.argv[1]))
    except Exception as error:
        traceback.print_exc()
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        # The last line of a log is what the one who started this quotes.
        sys.exit(f"{type(error).__name__}: {error}")


_main()
