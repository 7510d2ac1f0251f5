"""`baton regions`: what is asked of a homeserver, and how its answers are shown."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from batonpass.authority.model.regions import RegionTable, divided
from batonpass.authority.procedures.regions import REGIONS, region_table
from batonpass.authority.wire.regions import CellRow
from batonpass.homeserver.rest.regions import CellMove, CellSplit, PairMerge, RegionsBody, RegionsView
from batonpass.scenarios.remote import connection
from batonpass.scenarios.remote.regions import picture
from tests.authority.log import Log, new_log
from tests.scenarios.commands import Baton, baton_command, parsed

REGIONS_PATH = "/v1/regions"


ROW = CellRow(cell="c0", entities=1200, cost_ppm=305_000, here_ms=7)


def shown(table: RegionTable | None) -> dict[str, Any]:
    view = RegionsView.of(table, {"c0": ROW}, {"cut": 2}, leads=True, balancing=True)
    return view.model_dump(mode="json")


class Homeserver:
    """What commands see of one: bodies are read as it reads them, and its log does what they say."""

    def __init__(self) -> None:
        self.log: Log = new_log()

    @contextmanager
    def server(self, _url: str, _token_file: Path | None, _timeout_s: float) -> Iterator["Homeserver"]:
        """In the place of `RemoteServer`."""
        yield self

    def call(self, method: str, path: str, json: Any = None) -> Any:
        cell = path.split("/")[3:4]
        match method, path.rpartition("/")[2]:
            case "PUT", _:
                body = RegionsBody.model_validate(json)
                self.log.run("regions.set", table=body.table().to_data(), revision=body.revision)
            case "DELETE", _:
                self.log.run("regions.end")
            case "POST", "split":
                cut = CellSplit.model_validate(json)
                args = {"axis": cut.axis, "at": cut.at, "low_server": cut.low, "high_server": cut.high}
                self.log.run("region.split", cell=cell[0], revision=cut.revision, **args)
            case "POST", "merge":
                pair = PairMerge.model_validate(json)
                self.log.run("region.merge", cell=cell[0], server=pair.server, revision=pair.revision)
            case "POST", "move":
                moved = CellMove.model_validate(json)
                self.log.run("region.move", moves={cell[0]: moved.server}, revision=moved.revision)
            case verb:
                assert verb == ("GET", "regions")
        table = region_table(self.log.rows.get_or((REGIONS,), None))
        return shown(table)


@pytest.fixture
def regions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Baton:
    monkeypatch.setattr(connection, "RemoteServer", Homeserver().server)
    monkeypatch.setenv("BATON_URL", "http://127.0.0.1:17103")
    monkeypatch.setenv("BATON_OPERATOR_TOKEN_FILE", str(tmp_path / "token"))
    run = baton_command(capsys)
    return lambda *args: run("regions", *args)


def servers_of(shown: tuple[int, str, str]) -> dict[str, str]:
    return {cell["cell"]: cell["server"] for cell in parsed(shown)["cells"]}


def test_a_table_is_begun_changed_shown_and_ended(regions: Baton) -> None:
    assert "begin one with `baton regions begin`" in regions("show")[1]
    corners = ("--low", "0,0", "--high", "10,4")
    begun = regions("begin", "alpha.s1", "alpha.s2", *corners, "--margin", "0.5", "--json")
    assert servers_of(begun) == {"c0": "alpha.s1", "c1": "alpha.s2"}
    cut = regions("split", "c1", "--axis", "1", "--at", "2", "--high", "alpha.s3", "--if-revision", "1", "--json")
    assert servers_of(cut) == {"c0": "alpha.s1", "c10": "alpha.s2", "c11": "alpha.s3"}
    assert servers_of(regions("move", "c0", "alpha.s3", "--json"))["c0"] == "alpha.s3"
    status, told, _ = regions("show")
    assert status == 0
    for part in ("revision 3: 3 cells, margin 0.5, hold 1 s", "2 to …", "1,200", "30.5 %", "cut 2"):
        assert part in told
    assert servers_of(regions("merge", "c1", "--server", "alpha.s1", "--json"))["c1"] == "alpha.s1"
    assert "there is no table of regions" in regions("end")[1]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("begin",), "Missing argument"),
        (("begin", "nobody"), "is not a name like"),
        (("begin", "alpha.s1", "--low", "0,x"), "numbers with commas between them"),
        (("begin", "alpha.s1", "--low", "nan"), "numbers with commas between them"),
        (("split", "c", "--axis", "3", "--at", "1"), "3 is not in the range"),
        (("split", "c", "--axis", "1", "--at", "inf"), "is not a number"),
    ],
)
def test_what_makes_no_sense_is_a_wrong_call(regions: Baton, args: tuple[str, ...], says: str) -> None:
    status, _, error = regions(*args)
    assert status == 2
    assert says in error


def drawn(table: RegionTable) -> list[str]:
    return picture(shown(table)["cells"])


def test_space_is_drawn_with_a_letter_for_each_server() -> None:
    four = drawn(RegionTable(1, 2, divided([f"alpha.s{number}" for number in range(4)], (0, 0), (10, 10))))
    assert four == ["B" * 30 + "D" * 30] * 8 + ["A" * 30 + "C" * 30] * 8
    assert drawn(RegionTable(1, 1, divided(["alpha.s1", "alpha.s2"], (0,), (10,)))) == ["A" * 30 + "B" * 30]
    assert drawn(RegionTable(1, 2, "alpha.s1")) == ["A" * 60] * 16
    many = drawn(RegionTable(1, 1, divided([f"alpha.s{number:03}" for number in range(100)], (0,), (10,))))
    assert many[0].startswith("A")
    assert many[0].endswith("*")
