"""What a run found out, as a table, a JSON file and a page: the report of `baton run cases` and `baton run sectors`.

Start with `model`: every form of the report is made from it. Then `statistics` turns measurements into the numbers of
the model, and `verdict` says what is wrong with a report (nothing, one hopes), in sentences. `table` shows it in a
terminal, and `json_file` writes and reads it. `html` draws it on one page that opens without a network and has no
script (`charts` and `timeline` draw with `svg`, `page.html.jinja` is the page).

Nothing here starts a server, opens a socket or reads a clock.
"""

from batonpass.scenarios.report.model import (
    CaseCount,
    CaseResult,
    CasesReport,
    HopRange,
    Invariants,
    Percentiles,
    PhaseMedians,
    ReportedHop,
    ReportedMark,
    SampleTransfer,
    SectorRow,
    SectorsReport,
    ServerEntry,
    TickGap,
)

__all__ = [
    "CaseCount",
    "CaseResult",
    "CasesReport",
    "HopRange",
    "Invariants",
    "Percentiles",
    "PhaseMedians",
    "ReportedHop",
    "ReportedMark",
    "SampleTransfer",
    "SectorRow",
    "SectorsReport",
    "ServerEntry",
    "TickGap",
]
