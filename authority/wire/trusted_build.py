"""Messages and certificates that this server makes itself, whose fields it need not look at again.

What is read from others is validated by pydantic, always. What is made here of fields that were read so, or written by
this server, is what would be read: to validate it again costs little in a loop, 1.5 to 3 us, but some 20 where the
processor's caches have forgotten validators and patterns, as they have before a hand-over by itself, and its entity
is frozen meanwhile.
"""

from typing import Any, TypeVar

from pydantic import BaseModel

__all__ = ["made"]

M = TypeVar("M", bound=BaseModel)


def made(record_type: type[M], /, **fields: Any) -> M:
    """A record of these fields, which are all that it has, defaults included, and right.

    As `BaseModel.model_construct`, which looks for defaults and aliases and takes as long as validating.
    """
    record = record_type.__new__(record_type)
    put = object.__setattr__
    put(record, "__dict__", fields)
    put(record, "__pydantic_fields_set__", set(fields))
    put(record, "__pydantic_extra__", None)
    put(record, "__pydantic_private__", None)
    return record
