"""Servers say which protocol they speak; so that the number is not forgotten, this notices when messages change.

The record is written anew by

    python -m tests.authority.wire.test_protocol_version
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, get_args

from pydantic import BaseModel

from batonpass.authority.protocol_version import PROTOCOL_VERSION, why_other_release
from batonpass.authority.wire.transfer import LinkMessage, Message
from batonpass.homeserver.rest.models import FederationBody, ParcelBody, RegisterBody

RECORD: Final = Path(__file__).with_name("protocol_version.txt")


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from models_in(part)


def forms() -> list[str]:
    """The fields of every message between servers, and of what is in it, a line each."""
    found: dict[str, str] = {}
    todo: list[type[BaseModel]] = [*models_in(Message), *models_in(LinkMessage)]
    todo += [RegisterBody, ParcelBody, FederationBody]
    while todo:
        model = todo.pop()
        if model.__name__ not in found:
            found[model.__name__] = " ".join([f"{model.__name__}:", *sorted(model.model_fields)])
            todo += [one for field in model.model_fields.values() for one in models_in(field.annotation)]
    return sorted(found.values())


def test_no_message_gets_or_loses_a_field_without_a_word_about_the_protocol_version() -> None:
    version, *before = RECORD.read_text(encoding="utf-8").splitlines()
    changed = sorted({line.partition(":")[0] for line in set(before) ^ set(forms())})
    assert not changed, (
        f"{', '.join(changed)} changed. Servers of the last release take such messages for none: raise PROTOCOL_VERSION"
        " in authority/protocol_version.py, unless that was done since; in any case, write the record anew:"
        " python -m tests.authority.wire.test_protocol_version"
    )
    assert version == f"version {PROTOCOL_VERSION}", "write the record anew"


def test_every_message_is_looked_at_and_what_is_within_it() -> None:
    names = {line.partition(":")[0] for line in forms()}
    assert {"Renew", "RenewReply", "LoadReport", "StillRow", "AdoptItem", "Batch", "Input", "RegisterBody"} <= names


def test_why_a_release_is_refused_names_both_numbers_and_what_to_do() -> None:
    said = why_other_release("alpha.s1", 3, "alpha.h1", 4)
    assert said == "alpha.s1 speaks protocol version 3, and alpha.h1 version 4: have both run the same release"
    assert "without a version" in why_other_release("alpha.s1", 0, "alpha.h1", 4)


if __name__ == "__main__":
    RECORD.write_text("\n".join([f"version {PROTOCOL_VERSION}", *forms()]) + "\n", encoding="utf-8")
