"""What a launch says of a program that failed: an assertion that did not hold, an integer division by zero.

Compiled code knows the number of a program and a text, which says all of the op that the launch needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.diagnostics import CheckError, Location, location_of

if TYPE_CHECKING:
    from xdsl.ir import Operation


def text_of(op: Operation, kind: str, message: str = "") -> str:
    """What failed, where it stands and what it says, in lines."""
    place = location_of(op)
    where = ["", "0", "0", "0"]
    if place is not None:
        where = [place.file, *map(str, (place.line, place.col, place.end_col or 0))]
    return "\n".join([kind, *where, message])


def failure(program: tuple[int, int, int], text: str, subgroups: int) -> CheckError:
    """The error of a launch whose `program` failed: (z, y, x), where x counts the subgroups of each workgroup."""
    kind, file, line, col, end, message = text.split("\n", 5)
    z, y, x = program
    who = f"workgroup {(x // subgroups, y, z)}"
    if subgroups > 1:
        who += f" subgroup {x % subgroups}"
    return CheckError(
        f"{kind} in {who}{message and ': '}{message}",
        location=Location(file, int(line), int(col), int(end) or None) if file else None,
        hint="arrays that the kernel stores to are partly written",
    )
