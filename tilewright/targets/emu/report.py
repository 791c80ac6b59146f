"""What to say when a launch stopped: which subgroup stands where, and the state of every barrier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.arguments import Grid
from tilewright.targets.emu import context as c
from tilewright.targets.emu.worker import Failure


def describe_failure(failure: Failure, sites: Sequence[Any], grid: Grid) -> str:
    """The sentence, and for a deadlock the lines with the barriers' states."""
    group = f"workgroup ({', '.join(map(str, failure.workgroup))})"
    who = f"{group} subgroup {failure.subgroup}" if len(failure.fibers) > 1 else group
    name = sites[failure.site][0] if failure.site < len(sites) else "an op"
    match failure.code:
        case c.DEADLOCK:
            return "\n".join(_deadlock(failure, group))
        case c.MISUSE:
            return f"{name} by {who}: subgroups of one named barrier give different numbers of participants"
        case c.NOT_UNIFORM:
            return f"an operand of {name} differs between the lanes of {who}, which do it together"
        case c.NOT_ALL_LANES:
            return (
                f"{name} is done by all lanes of a subgroup, but not all of those of {who} are here"
            )
        case c.BY_ZERO:
            return f"integer division by zero in {who}"
        case c.ASSERTION:
            return f"assertion failed in {who}: {sites[failure.site][2]}"
        case code:
            return f"{name} failed in {who} (code {code})"


def _deadlock(failure: Failure, group: str) -> list[str]:
    fibers = list(enumerate(failure.fibers))
    stuck = [i for i, (status, _, _) in fibers if status in (c.AT_BARRIER, c.AT_NAMED)]
    lines = [f"deadlock: {group} subgroup {stuck[0]} waits here and none can continue"]
    waiting = [i for i, (status, _, _) in fibers if status == c.AT_BARRIER]
    done = [i for i, (status, _, _) in fibers if status == c.DONE]
    if waiting:
        lines.append(
            f"  {group}: gpu.barrier reached by {len(waiting)} of {len(fibers)} subgroups "
            f"({_list(waiting)})"
        )
    for number, (participants, arrived, generation) in sorted(failure.named.items()):
        here = [i for i, (s, _, at) in fibers if s == c.AT_NAMED and at == number]
        lines.append(
            f"  {group}: named barrier {number}, generation {generation}: arrived {arrived} of "
            f"{participants}, waiting: {_list(here)}"
        )
    if done:
        lines.append(f"  {group}: subgroups that have ended: {_list(done)}")
    return lines


def first_stuck(failure: Failure) -> int:
    """The site to show: of a deadlock that of the first subgroup which waits."""
    if failure.code != c.DEADLOCK:
        return failure.site
    for status, site, _ in failure.fibers:
        if status in (c.AT_BARRIER, c.AT_NAMED):
            return site
    return failure.site


def _list(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers)) or "none"
