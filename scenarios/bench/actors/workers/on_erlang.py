"""Erlang/OTP itself, where it is installed: `call`, `cast-state`, `machine`, `groups`, `spawn`, on one scheduler.

The same work by `gen_server`, `gen_statem`, `pg` and `supervisor`, in their own language on their own machine. A Python
program could not be as fast; people who come from there are used to it.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from batonpass.scenarios.bench.loops import arguments, tell

_PROGRAM: Final = Path(__file__).with_name("bench_actors.erl")


def measure(work: str, seconds: float) -> float:
    """What the program prints for one piece of work. Ends the program if there is no Erlang."""
    erl = shutil.which("erl")
    if erl is None:
        sys.exit("there is no `erl` on this machine: apt-get install erlang-base")
    with tempfile.TemporaryDirectory() as folder:
        task = f'{{ok, M}} = compile:file("{_PROGRAM}", [{{outdir, "{folder}"}}]), M:main({work!r}, {seconds}), halt().'
        command = [erl, "-noshell", "+S", "1", "-pa", folder, "-eval", task]
        done = subprocess.run(command, capture_output=True, check=False, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr or done.stdout)
    return float(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    todo, duration_s = arguments("batonpass")
    tell(measure(todo, duration_s))
