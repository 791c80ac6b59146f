"""What a run found: errors that make a program undefined, warnings, and where they stand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from xdsl.ir import Operation

from tilewright.diagnostics import CheckError, Location, Note, location_of
from tilewright.frozen import field, frozen, record

Severity = Literal["error", "warning"]


@frozen
class Finding:
    """One thing wrong. `op` is the op's text; `kind` a short name that tests may look for."""

    severity: Severity
    kind: str
    message: str
    location: Location | None = None
    op: str = ""

    def __str__(self) -> str:
        place = f"{self.location}: " if self.location is not None else ""
        lines = [f"{place}{self.severity}: {self.message}"]
        if self.location is not None and (excerpt := self.location.excerpt()):
            lines.append(excerpt)
        if self.op:
            lines.append(f"note: in {self.op}")
        return "\n".join(lines)


@record
class Report:
    """The findings of one run, in the order in which they were made; empty without checking."""

    findings: list[Finding] = field(default_factory=list[Finding])
    workgroups: int = 0
    results: list[Any] = field(default_factory=list[Any])
    """What the entry function returned, as numpy values (a kernel returns nothing)."""
    moved_bytes: int = 0
    """Loaded and stored in memory that all workgroups see; counted with checking."""
    touched_bytes: int = 0
    """The same, but every element once for reading and once for writing: what memory moves behind an ideal cache."""

    @property
    def errors(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity == "error"]

    @property
    def warnings(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity == "warning"]

    @property
    def ok(self) -> bool:
        """True when nothing was undefined."""
        return not self.errors

    def raise_on_error(self) -> Report:
        """Itself, or a `CheckError` with the first error and the others as notes."""
        if errors := self.errors:
            raise check_error(errors)
        return self

    def __str__(self) -> str:
        if not self.findings:
            return f"{self.workgroups} workgroups, nothing found"
        return "\n".join(map(str, self.findings))


def check_error(errors: Sequence[Finding]) -> CheckError:
    first, *others = errors
    notes = [Note(f"in {first.op}")] if first.op else []
    notes += [Note(other.message, other.location) for other in others]
    return CheckError(first.message, location=first.location, notes=notes)


def op_text(op: Operation) -> str:
    """The first line of an op as MLIR text, cut to a readable length."""
    try:
        text = str(op).strip().split("\n")[0]
    except Exception:  # an op of a foreign dialect may fail to print
        text = op.name
    return text if len(text) <= 160 else text[:157] + "..."


def finding_at(op: Operation, severity: Severity, kind: str, message: str) -> Finding:
    return Finding(severity, kind, message, location_of(op), op_text(op))
