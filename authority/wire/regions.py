"""What a home instance and its simulation servers say to each other about which server has which part of space.

None of it is a numbered hop, and none needs an answer. A server says once a second which table it follows, and what its
cells cost; a homeserver that has another table tells it. What is lost is said again a second later.
"""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from batonpass.authority.model.regions import MAX_AXES, MAX_CELL_CHARS, MAX_CELLS, RegionTable
from batonpass.authority.trust.certificates import Name
from batonpass.authority.wire.base import MessageModel
from batonpass.authority.wire.placement import Whole

__all__ = ["MAX_CELL_ROWS", "CellRow", "RegionReport", "RegionRow", "RegionWord"]

# Cells of one server in one report; of a server with more the most expensive ones.
MAX_CELL_ROWS = 256

Finite = Annotated[float, Field(allow_inf_nan=False)]


class RegionRow(MessageModel):
    """A table, as `RegionTable.to_data` has it."""

    revision: Annotated[int, Field(ge=1, le=2**63 - 1)]
    axes: Annotated[int, Field(ge=1, le=MAX_AXES)]
    margin: Finite
    hold_s: Finite
    nodes: Annotated[
        list[Name | Annotated[list[Finite], Field(min_length=2, max_length=2)]], Field(max_length=2 * MAX_CELLS)
    ]

    @model_validator(mode="after")
    def _is_a_table(self) -> "RegionRow":
        self.table()
        return self

    def table(self) -> RegionTable:
        """The table. Raises `ValueError` if it is none."""
        return RegionTable.from_data(vars(self))


class RegionWord(MessageModel):
    """Homeserver → simulation server: follow this table; without one every entity stays where it is.

    A server takes it if it has the table with the digest `instead_of` (0: none), or one of a lower revision.
    """

    type: Literal["region_word"] = "region_word"
    instead_of: Whole = 0
    row: RegionRow | None = None


class CellRow(MessageModel):
    """What a cell of this server costs: in millionths of the tick period, as of `Load`.

    `here_ms` says for how long it has been this server's. If its entities are not all at one place, a border at `at`
    along `axis` would leave about half of the cost, `low_ppm`, below it.
    """

    cell: Annotated[str, Field(pattern=r"^c[01]*$", max_length=MAX_CELL_CHARS)]
    entities: Whole
    cost_ppm: Whole
    here_ms: Whole
    axis: Annotated[int, Field(ge=0, lt=MAX_AXES)] = 0
    at: Finite | None = None
    low_ppm: Whole = 0


class RegionReport(MessageModel):
    """Simulation server → every homeserver of its instance, once a second, if its world follows regions.

    `knows` is the digest of the table that it follows, 0 if it has none.
    """

    type: Literal["region_report"] = "region_report"
    knows: Whole = 0
    cells: Annotated[list[CellRow], Field(max_length=MAX_CELL_ROWS)] = Field(default_factory=list)
