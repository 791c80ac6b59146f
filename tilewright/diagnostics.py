"""What a user sees when something is wrong: the place, the rule, and what to change.

Every error that Tilewright raises on purpose is a :class:`TilewrightError`. Its text has the form

    kernel.py:12:11: error: tile_mma multiplies [M, K] by [K, N], but the shapes are 256x32 and 64x256
       12 |     acc = tw.tile_mma(a, b, acc)
          |           ^~~~~~~~~~~~~~~~~~~~~~
    rule: ...
    hint: ...
    note: kernel.py:30:5: inlined here

so that an editor can jump to it and a reader knows what to do. Lines and columns count from 1.
Ops carry their place as MLIR locations; :func:`location_of` reads it back, from the front end's
``"text of the expression"("file":line:column)`` as well as from parsed MLIR.
"""

from __future__ import annotations

import linecache
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from tilewright import frames
from tilewright.frozen import frozen

_SHOWN = 240
"""Characters of a line that a diagnostic shows."""


@frozen
class Location:
    """A stretch of source text: ``line`` and ``col`` count from 1, ``end_col`` is exclusive.

    ``text`` is the source line itself when the file cannot be read again (standard input).
    """

    file: str
    line: int
    col: int
    end_col: int | None = None
    text: str | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.col}"

    @property
    def source_line(self) -> str:
        """The source line, without its newline; empty when it cannot be had."""
        if self.text is not None:
            return self.text
        return linecache.getline(self.file, self.line).rstrip("\r\n")

    def excerpt(self) -> str:
        """The numbered source line with carets under the stretch; empty without source."""
        line = self.source_line
        if not line.strip():
            return ""
        start = max(self.col - 1, 0)
        end = max(self.end_col - 1 if self.end_col is not None else start + 1, start + 1)
        if len(line) > _SHOWN:  # of a line without end the part around the place
            first = max(min(start - _SHOWN // 2, len(line) - _SHOWN), 0)
            line = line[first : first + _SHOWN]
            start, end = start - first, min(end - first, _SHOWN)
        before = "".join(ch if ch == "\t" else " " * _columns(ch) for ch in line[:start])
        under = max(sum(_columns(ch) for ch in line[start:end]), 1)
        number = f"{self.line:5}"
        marks = "^" + "~" * (under - 1)
        return f"{number} | {line}\n{' ' * len(number)} | {before}{marks}"


@frozen
class Note:
    """A second place that explains the first: where a helper was called, where a name was bound."""

    message: str
    location: Location | None = None

    def __str__(self) -> str:
        if self.location is None:
            return f"note: {self.message}"
        excerpt = self.location.excerpt()
        return f"note: {self.location}: {self.message}" + (f"\n{excerpt}" if excerpt else "")


class TilewrightError(Exception):
    """An error in the user's input. ``str()`` is the whole report, :attr:`message` the sentence."""

    def __init__(
        self,
        message: str,
        *,
        location: Location | None = None,
        rule: str | None = None,
        hint: str | None = None,
        notes: Sequence[Note] = (),
    ):
        super().__init__(message)
        frames.watch(TilewrightError)
        self.message = message
        self.location = location
        self.rule = rule
        self.hint = hint
        self.notes = tuple(notes)

    def at(self, location: Location | None) -> TilewrightError:
        """Itself, placed at ``location`` unless it already has a place."""
        if self.location is None:
            self.location = location
        return self

    def bare(self) -> TilewrightError:
        """Itself, as it leaves the compiler: with the user's frames, and what it came from left unsaid."""
        self.__suppress_context__ = True
        return self.with_traceback(frames.users(self.__traceback__))

    def _render_traceback_(self) -> list[str]:
        """What IPython shows."""
        return frames.rendered(self)

    def with_note(self, note: Note) -> TilewrightError:
        """Itself, with one more note at the end."""
        self.notes = (*self.notes, note)
        return self

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        place = f"{self.location}: " if self.location is not None else ""
        yield f"{place}error: {self.message}"
        if self.location is not None and (excerpt := self.location.excerpt()):
            yield excerpt
        if self.rule is not None:
            yield f"rule: {self.rule}"
        if self.hint is not None:
            yield f"hint: {self.hint}"
        yield from map(str, self.notes)


class CompileError(TilewrightError):
    """The program is not legal: front end, parser, or a pass that found a contradiction."""


class VerifyError(TilewrightError):
    """An op of the IR breaks one of its rules."""


class UnsupportedError(TilewrightError):
    """The program is legal, but the chosen target or machine lacks what it needs."""


class ToolMissing(UnsupportedError):
    """A program that is not installed, or a device, would be needed. The hint says how to get it."""


class LaunchError(TilewrightError):
    """The arguments or the grid of a launch do not fit the kernel. Nothing was run."""


class CheckError(TilewrightError):
    """Checking mode found a race, an uninitialised read, a divergent barrier or a wrong result."""


def location_of(place: Any) -> Location | None:
    """The source location of an xDSL op, SSA value, or location attribute; None when unknown.

    Of a fused location the first known part counts; of a call site the callee, which is the
    innermost place in the user's source. :func:`callers_of` gives the rest of a call chain.
    """
    from xdsl.dialects import builtin
    from xdsl.ir import Block, OpResult, SSAValue

    if isinstance(place, OpResult):
        place = place.op
    if isinstance(place, SSAValue) and isinstance(place.owner, Block):
        place = getattr(place, "location", place.owner.parent_op())
    attr = getattr(place, "location", place) if not _is_location(place) else place
    if isinstance(attr, builtin.FileLineColLoc):
        return Location(attr.filename.data, attr.line.data, max(attr.column.data, 1))
    if isinstance(attr, builtin.NameLoc):
        inner = location_of(attr.location)
        return _widen(inner, attr.desc.data) if inner is not None else None
    if isinstance(attr, builtin.CallSiteLoc):
        return location_of(attr.callee)
    if isinstance(attr, builtin.FusedLoc) and isinstance(attr.locations, builtin.ArrayAttr):
        return next(filter(None, map(location_of, attr.locations)), None)
    return None


def remark_at(place: Any, text: str) -> str:
    """A remark behind the source location of what it is about, where that is known."""
    where = location_of(place)
    return text if where is None else f"{where}: {text}"


def callers_of(place: Any) -> list[Location]:
    """The calls through which an inlined op came to stand where it is, innermost first."""
    from xdsl.dialects import builtin

    attr = getattr(place, "location", place) if not _is_location(place) else place
    found: list[Location] = []
    while isinstance(attr, builtin.CallSiteLoc):
        attr = attr.caller
        if (where := location_of(attr)) is not None:
            found.append(where)
    return found


def error_at(
    op: Any,
    message: str,
    *,
    rule: str | None = None,
    hint: str | None = None,
    kind: type[TilewrightError] = CompileError,
) -> TilewrightError:
    """An error of ``kind`` at an xDSL op (or value), with notes for the calls it was inlined by."""
    notes = [Note("called here", where) for where in callers_of(op)]
    return kind(message, location=location_of(op), rule=rule, hint=hint, notes=notes)


def unsupported(
    op: Any, message: str, *, rule: str | None = None, hint: str | None = None
) -> TilewrightError:
    """An UnsupportedError at an xDSL op or value: the refusal of an op by a target or a machine."""
    return error_at(op, message, rule=rule, hint=hint, kind=UnsupportedError)


def did_you_mean(name: str, known: Iterable[str], most: int = 1, cutoff: float = 0.6) -> str | None:
    """A hint: the known names that one is most like, one of other case before others; None where less than `cutoff` of
    it is like any."""
    names = list(known)
    same = [each for each in names if each.lower() == name.lower()][:1]
    near = same or nearest(name, names, most, cutoff)
    return f"did you mean {' or '.join(near)}?" if near else None


def runs(numbers: Iterable[int]) -> list[str]:
    """Ascending numbers for a reader: those that follow each other as `first to last`."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return [f"{a}" if a == b else f"{a} to {b}" for a, b in found]


def nearest(name: str, known: Iterable[str], most: int, cutoff: float) -> list[str]:
    """The known names that one is most like, at least as much as `cutoff` says (0 to 1)."""
    import difflib  # late: only who errs waits for it

    return difflib.get_close_matches(name, list(known), most, cutoff)


def _is_location(place: Any) -> bool:
    from xdsl.ir import Attribute

    return isinstance(place, Attribute)


def _widen(location: Location, text: str) -> Location:
    """Extends a location over ``text`` (an expression as written) where the line holds it."""
    line, start = location.source_line, location.col - 1
    first = text.splitlines()[0] if text else ""
    if first and line[start : start + len(first)] == first:
        return replace(location, end_col=location.col + len(first))
    return location


def _columns(ch: str) -> int:
    """Terminal columns of one character: wide East Asian 2, combining marks 0."""
    if unicodedata.combining(ch):
        return 0
    return 2 if unicodedata.east_asian_width(ch) in "WF" else 1
