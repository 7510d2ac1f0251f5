"""The report as a JSON file, for programs. Keys are stable: they are what a user's scripts hold on to.

Every case has the keys `case, h, mode, transport, formula, expected_hops, measured_hops{min,max}, transfers, repeated,
failed, latency_ms{p50,p95,p99,max}, phases_ms{request,rule,commit,state,activation}, gap_ticks{p50,max}`. Then come
`on_path, off_path, retransmissions, raft_rounds, bytes_p50, failures, sample`. `samples` (every latency in
milliseconds) are there only when they were asked for. Beside `cases` stand `invariants, versions, seed, machine,
started_at, cluster`, and `kind, passed, problems`, which repeat what the rest implies.
"""

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from batonpass.scenarios.report.files import write_atomically
from batonpass.scenarios.report.model import CasesReport, LockstepReport, SectorsReport
from batonpass.scenarios.report.verdict import lockstep_problems, report_problems, sectors_problems

CASES_KIND = "batonpass.cases"
SECTORS_KIND = "batonpass.sectors"
LOCKSTEP_KIND = "batonpass.lockstep"


class ReportFileError(Exception):
    """The file is not a report that this version of batonpass can read; the message says why."""


def cases_data(report: CasesReport, *, with_samples: bool = False) -> dict[str, Any]:
    """The report of the transfer cases as JSON data. `with_samples` keeps every single latency."""
    data = report.model_dump(mode="json")
    for case in data["cases"]:
        latencies_ms = case.pop("latencies_ms")
        if with_samples:
            case["samples"] = latencies_ms
    return _headed(CASES_KIND, report_problems(report), data)


def sectors_data(report: SectorsReport) -> dict[str, Any]:
    """The report of a run over sectors as JSON data."""
    return _headed(SECTORS_KIND, sectors_problems(report), report.model_dump(mode="json"))


def lockstep_data(report: LockstepReport) -> dict[str, Any]:
    """The report of a run of clients in lockstep as JSON data."""
    return _headed(LOCKSTEP_KIND, lockstep_problems(report), report.model_dump(mode="json"))


def write_cases(path: Path, report: CasesReport, *, with_samples: bool = False) -> None:
    """Write the report of the transfer cases to `path`, atomically. Raises OSError."""
    write_atomically(path, _text(cases_data(report, with_samples=with_samples)))


def write_sectors(path: Path, report: SectorsReport) -> None:
    """Write the report of a run over sectors to `path`, atomically. Raises OSError."""
    write_atomically(path, _text(sectors_data(report)))


def write_lockstep(path: Path, report: LockstepReport) -> None:
    """Write the report of a run of clients in lockstep to `path`, atomically. Raises OSError."""
    write_atomically(path, _text(lockstep_data(report)))


def read_cases(path: Path) -> CasesReport:
    """Read what `write_cases` wrote. Raises ReportFileError, or OSError when the file cannot be read."""
    data = _read_headed(path, CASES_KIND)
    cases = data.get("cases")
    for case in cases if isinstance(cases, list) else ():
        if isinstance(case, dict):
            case["latencies_ms"] = case.pop("samples", [])
    try:
        return CasesReport.model_validate(data)
    except ValidationError as error:
        raise _unreadable(path, error) from error


def read_sectors(path: Path) -> SectorsReport:
    """Read what `write_sectors` wrote. Raises ReportFileError, or OSError when the file cannot be read."""
    try:
        return SectorsReport.model_validate(_read_headed(path, SECTORS_KIND))
    except ValidationError as error:
        raise _unreadable(path, error) from error


def read_lockstep(path: Path) -> LockstepReport:
    """Read what `write_lockstep` wrote. Raises ReportFileError, or OSError when the file cannot be read."""
    try:
        return LockstepReport.model_validate(_read_headed(path, LOCKSTEP_KIND))
    except ValidationError as error:
        raise _unreadable(path, error) from error


def _headed(kind: str, problems: tuple[str, ...], data: dict[str, Any]) -> dict[str, Any]:
    return {"kind": kind, "passed": not problems, "problems": list(problems)} | data


def _text(data: dict[str, Any]) -> str:
    # allow_nan=False: a reader in another language must never meet the word NaN.
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _read_headed(path: Path, kind: str) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ReportFileError(f"{path} is not JSON: {error}") from error
    found = data.pop("kind", None) if isinstance(data, dict) else None
    if found != kind:
        raise ReportFileError(f"{path} is not a report of kind {kind!r} (its kind is {found!r})")
    # Both are implied by the rest, and computed anew from it.
    data.pop("passed", None)
    data.pop("problems", None)
    return dict(data)


def _unreadable(path: Path, error: ValidationError) -> ReportFileError:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return ReportFileError(f"{path}: {where}: {first['msg']} ({error.error_count()} problems in all)")
