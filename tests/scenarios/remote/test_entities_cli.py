"""`baton entity` and `baton transfer`: what they ask of a homeserver, and how its answers are shown."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from batonpass.authority.model.records import EntityRecord, Phase, TransferRecord
from batonpass.authority.wire.hops import Trace
from batonpass.homeserver.node.standings import SeenAs
from batonpass.homeserver.overview.lists import EntityPage, ListedEntity, listed_transfer
from batonpass.homeserver.rest.models import EntityView, NewTransfer, TransferView
from batonpass.scenarios.common.errors import RemoteRefused
from batonpass.scenarios.remote import connection, transfers
from tests.scenarios.commands import Baton, baton_command, parsed

COUNT = 1203


def record(number: int) -> EntityRecord:
    return EntityRecord(
        id=f"alpha.ball-{number:04}", kind="ball", master="alpha.ada", owner="alpha.ada", authority="alpha.s1"
    )


def trace() -> Trace:
    made = Trace("move-0001")
    for kind, source, target in (("handoff", "alpha.s1", "alpha.h1"), ("grant", "alpha.h1", "alpha.s2")):
        made = made.leave(source, kind, 1_000_000).arrive(target, 3_500_000, 120)
    return made


class Homeserver:
    """What commands see of one, in the shapes of its own models."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Any]] = []
        self.phases = [Phase.PERMITTED, Phase.COMMITTED, Phase.DONE]
        self.moved = TransferRecord(
            id="move-0001", entity="alpha.ball-0001", source="alpha.s1", target="alpha.s2", phase=Phase.PERMITTED
        )

    @contextmanager
    def server(self, _url: str, _token_file: Path | None, _timeout_s: float) -> Iterator["Homeserver"]:
        """In the place of `RemoteServer`."""
        yield self

    def call(self, method: str, path: str, *, params: dict[str, str] | None = None, json: Any = None) -> Any:
        self.asked.append((method, path, params or json))
        match method, path.split("/")[2:]:
            case "GET", ["entities"]:
                return self._page(params or {})
            case "GET", ["entities", "alpha.nobody"]:
                raise RemoteRefused("not_found", "there is no entity alpha.nobody")
            case "GET", ["entities", _]:
                return EntityView.of(record(1), SeenAs.SIMULATED).model_dump(mode="json")
            case "GET", ["entities", _, "transfers"]:
                return [self._view()]
            case "POST", ["entities", _, "transfers"]:
                body = NewTransfer.model_validate(json)
                self.moved = self.moved.changed(target=body.to, id=body.transfer_id or "move-0001")
                return self._view()
            case "DELETE", ["entities", entity]:
                return {"entity": entity, "epoch": 2}
            case "GET", ["transfers"]:
                return [listed_transfer(self.moved).model_dump(mode="json")]
            case "GET", ["transfers", _]:
                self.moved = self.moved.changed(phase=self.phases.pop(0))
                return self._view()
            case "DELETE", ["transfers", _]:
                self.moved = self.moved.changed(phase=Phase.REFUSED, reason="cancelled")
                return self._view()
            case other:
                raise AssertionError(other)

    def _page(self, query: dict[str, str]) -> Any:
        fitting = [record(number) for number in range(COUNT) if query.get("search", "") in record(number).id]
        behind = [one for one in fitting if one.id > query.get("after", "")]
        limit = int(query["limit"])
        fields = set(ListedEntity.model_fields) - {"standing"}
        shown = [ListedEntity(**one.model_dump(include=fields), standing=SeenAs.SIMULATED) for one in behind[:limit]]
        after = shown[-1].id if len(behind) > limit else None
        return EntityPage(entities=shown, after=after, total=COUNT).model_dump(mode="json")

    def _view(self) -> Any:
        view = TransferView.of(self.moved)
        if self.moved.phase is Phase.DONE:
            view.trace, view.timings_ms, view.hops = trace().to_data(), {"total": 2.5}, 2
        return view.model_dump(mode="json")


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Homeserver:
    made = Homeserver()
    monkeypatch.setattr(connection, "RemoteServer", made.server)
    monkeypatch.setattr(transfers, "_POLL_S", 0)
    monkeypatch.setenv("BATON_URL", "http://127.0.0.1:1")
    return made


@pytest.fixture
def baton(capsys: pytest.CaptureFixture[str]) -> Baton:
    return baton_command(capsys)


def test_entities_are_listed_page_by_page(home: Homeserver, baton: Baton) -> None:
    rows = parsed(baton("entity", "ls", "--limit", 1100, "--json"))
    assert [row["id"] for row in rows] == [record(number).id for number in range(1100)]
    assert [query for _, _, query in home.asked] == [{"limit": "1000"}, {"limit": "100", "after": "alpha.ball-0999"}]
    status, out, err = baton("entity", "ls", "--limit", 2)
    assert (status, err) == (0, "")
    assert "alpha.ball-0001  ball  alpha.s1   alpha.ada  simulated" in out
    assert "2 shown, 1,203 in the instance; there are more: raise --limit" in out


def test_entities_are_asked_for_by_what_is_given(home: Homeserver, baton: Baton) -> None:
    given = ("--search", "12", "--server", "alpha.s1", "--owner", "alpha.ada", "--kind", "ball", "--standing", "lost")
    status, out, _ = baton("entity", "ls", *given)
    assert status == 0
    assert "more" not in out
    expected = {"search": "12", "server": "alpha.s1", "owner": "alpha.ada", "kind": "ball", "standing": "lost"}
    assert home.asked == [("GET", "/v1/entities", expected | {"limit": "100"})]


def test_an_entity_is_shown(home: Homeserver, baton: Baton) -> None:
    status, out, err = baton("entity", "show", "alpha.ball-0001")
    assert (status, err) == (0, "")
    for line in ("standing:  simulated", "fence:     epoch 1, sub-epoch 0", "alpha.s1 → alpha.s2, permitted"):
        assert line in out
    assert parsed(baton("entity", "show", "alpha.ball-0001", "--json"))["transfers"][0]["transfer_id"] == "move-0001"
    status, _, err = baton("entity", "show", "alpha.nobody")
    assert status == 1
    assert "there is no entity alpha.nobody" in err


def test_an_entity_is_moved_and_waited_for(home: Homeserver, baton: Baton) -> None:
    status, out, err = baton("entity", "move", "alpha.ball-0001", "alpha.s3", "--transfer-id", "move-0002")
    assert (status, out, err) == (0, "move-0002 alpha.ball-0001: alpha.s1 → alpha.s3, done\n", "")
    method, path, body = home.asked[0]
    assert (method, path) == ("POST", "/v1/entities/alpha.ball-0001/transfers")
    assert body == {"to": "alpha.s3", "mode": "eager", "transfer_id": "move-0002"}
    assert len(home.asked) == 4


def test_a_move_that_is_refused_is_no_success(home: Homeserver, baton: Baton) -> None:
    home.phases = [Phase.REFUSED]
    assert baton("entity", "move", "alpha.ball-0001", "alpha.s3")[0] == 1
    asked = len(home.asked)
    home.moved = home.moved.changed(phase=Phase.PERMITTED)
    assert parsed(baton("entity", "move", "alpha.ball-0001", "alpha.s3", "--no-wait", "--json"))["result"] == "pending"
    assert len(home.asked) == asked + 1


def test_an_entity_is_deleted(home: Homeserver, baton: Baton) -> None:
    assert baton("entity", "delete", "alpha.ball-0001")[1] == "alpha.ball-0001 is deleted; it ended with epoch 2\n"
    assert home.asked == [("DELETE", "/v1/entities/alpha.ball-0001", None)]


def test_transfers_are_listed_and_shown_hop_by_hop(home: Homeserver, baton: Baton) -> None:
    status, out, _ = baton("transfer", "ls", "--limit", 5)
    assert status == 0
    assert "move-0001  alpha.ball-0001  alpha.s1  alpha.s2  permitted" in out
    assert home.asked == [("GET", "/v1/transfers", {"limit": "5"})]
    home.phases = [Phase.PERMITTED, Phase.DONE, Phase.DONE]
    assert "handoff" not in baton("transfer", "show", "move-0001")[1]
    out = baton("transfer", "show", "move-0001")[1]
    assert "1    handoff  alpha.s1  alpha.h1  0.00        2.50          120" in out
    assert "total:        2.50 ms" in out
    assert parsed(baton("transfer", "show", "move-0001", "--json"))["hops"] == 2


def test_a_move_is_taken_back(home: Homeserver, baton: Baton) -> None:
    status, out, _ = baton("transfer", "cancel", "move-0001")
    assert (status, out) == (0, "move-0001 alpha.ball-0001: alpha.s1 → alpha.s2, refused (cancelled)\n")
    assert home.asked == [("DELETE", "/v1/transfers/move-0001", None)]
