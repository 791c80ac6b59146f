"""The planner's choice for a launch, in words, and the launch under the roofline of its machine, as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.diagnostics import UnsupportedError
from tilewright.lang.choosing import Explanation
from tilewright.lang.kernel import Kernel
from tilewright.passes.launch_cost import launch_traffic
from tilewright.targets.base import get_target
from tilewright.tools.compile import write
from tilewright.tools.console import out
from tilewright.tools.drawing import Picture
from tilewright.tools.exits import DONE
from tilewright.tools.roofline import Point, Roof, roofline


def explain(kernel: Kernel, values: Sequence[Any], output: str | None) -> int:
    """Prints why the planner chooses what it chooses; draws the roofline where there is a file for it."""
    found = kernel.chooser.explained(values)
    out().print(str(found))
    if output is not None:
        write(picture(found).svg(), output)
    return DONE


def picture(found: Explanation) -> Picture:
    """The launch with the planner's choice, and with the measured one, under the machine's roofs.

    UnsupportedError for a kernel that computes nothing: it has no place there.
    """
    target, request = get_target(found.options.target), found.request
    rates = target.rates(found.options)
    choice = found.choices[0]
    flops, moved, size = launch_traffic(request.build(choice.values), request.arguments)
    if not flops:
        raise UnsupportedError(
            f"{found.kernel} computes nothing, so it has no place under a roofline"
        )
    roofs = [
        Roof(f"products of {size}-byte elements", rates.flops(size) * rates.cores),
        Roof("one op on 4-byte values", rates.elementwise_bytes * rates.cores / 4),
    ]
    slopes = [
        Roof("memory", rates.memory_bytes * rates.cores),
        Roof("shared cache", rates.shared_bytes * rates.cores),
    ]
    points = [Point("estimated", flops / moved, flops / choice.seconds)]
    if found.tuned is not None:
        points.append(Point("measured", flops / moved, flops / found.tuned.seconds))
    about = request.about(found.kernel)
    return roofline(about, target.describe(found.options), roofs, slopes, points)
