"""What the composition roots wire is written down: a line of one that is gone, or is new, is told of here.

Two servers that lack the same wire are wired alike, so that comparing them finds nothing. After a change that is
meant, write the records anew, these and what is made with what (`test_simserver_main`, `test_homeserver_main`):

    python -m tests.wiring.test_wiring
"""

import tempfile
from pathlib import Path
from typing import Final

import pytest
import trio

from tests.wiring import test_homeserver_main, test_simserver_main
from tests.wiring.records import same_as_record, write_record
from tests.wiring.servers import home_parts, shipped_in
from tests.wiring.wires import Wires, wires_of, wires_of_home

RECORDS: Final = {name: Path(__file__).with_name(f"{name}.txt") for name in ("simserver", "homeserver")}


def wired(name: str) -> Wires:
    if name == "homeserver":
        return wires_of_home(*home_parts())
    with tempfile.TemporaryDirectory() as directory:
        return wires_of(shipped_in(Path(directory)).node)


def lines_of(wires: Wires) -> set[str]:
    return {f"{part} -> {other}" for part, other in wires}


@pytest.mark.parametrize("name", RECORDS)
def test_a_server_is_wired_as_it_is_written_down(name: str) -> None:
    same_as_record(RECORDS[name], lines_of(wired(name)))


if __name__ == "__main__":
    for _name, _file in RECORDS.items():
        write_record(_file, lines_of(wired(_name)))
    for _made in (test_simserver_main, test_homeserver_main):
        with tempfile.TemporaryDirectory() as _directory:
            write_record(_made.RECORD, trio.run(_made.lines_made, Path(_directory)))
