"""What the client says that home answers is what home answers: member by member, type by type."""

import typing
from enum import StrEnum
from types import UnionType
from typing import Any

import pytest
from pydantic import BaseModel

from batonpass.client.records import (
    DeletedEntity,
    EntityRights,
    LeftEntity,
    LockData,
    MasterQuestion,
    OwnedEntity,
    RegisteredKeys,
    RegisteredServer,
    ReleasedEntity,
    ReportedLoad,
    ReportedLoads,
    ServerLease,
    TransferProgress,
    WhyNotRunning,
)
from batonpass.homeserver.rest.absence import LeftView, OwnedView
from batonpass.homeserver.rest.deletion import GraveView
from batonpass.homeserver.rest.models import (
    AskView,
    EntityView,
    KeysView,
    LeaseView,
    LockView,
    ServerView,
    TransferView,
)
from batonpass.homeserver.rest.placement_models import LoadTable, LoadView
from batonpass.homeserver.rest.quarantine import ReleasedView
from batonpass.homeserver.rest.why import WhyView

PAIRS = [
    (EntityRights, EntityView),
    (LockData, LockView),
    (TransferProgress, TransferView),
    (MasterQuestion, AskView),
    (OwnedEntity, OwnedView),
    (LeftEntity, LeftView),
    (DeletedEntity, GraveView),
    (ReleasedEntity, ReleasedView),
    (WhyNotRunning, WhyView),
    (ServerLease, LeaseView),
    (RegisteredServer, ServerView),
    (ReportedLoad, LoadView),
    (ReportedLoads, LoadTable),
    (RegisteredKeys, KeysView),
]


def in_json(kind: Any) -> Any:
    """How a type of the server's models comes in JSON."""
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return str
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return dict(PAIRS_BY_MODEL)[kind]
    if (parts := typing.get_args(kind)) and typing.get_origin(kind) is not typing.Literal:
        if typing.get_origin(kind) in (typing.Union, UnionType):
            return frozenset(map(in_json, parts))
        return typing.get_origin(kind), *map(in_json, parts)
    return kind


PAIRS_BY_MODEL = [(model, record) for record, model in PAIRS]


@pytest.mark.parametrize(("record", "model"), PAIRS)
def test_a_record_has_the_members_of_the_answer(record: Any, model: type[BaseModel]) -> None:
    said = {name: in_json(kind) for name, kind in typing.get_type_hints(record).items()}
    answered = {name: in_json(field.annotation) for name, field in model.model_fields.items()}
    assert said == answered
