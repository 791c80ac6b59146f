"""What the named ops of linalg say: which loops each operand is accessed by, and what is done with the elements.

| name | says |
|---|---|
| `batch_matmul` | its subscripts, as Einstein's sums have them: `bmk,bkn->bmn`; of zero points none |
| `conv_2d_nhwc_hwcf`, `pooling_nhwc_max` | by its parts: the layouts of image and filter, a sum or another reduction |
| `add`, `exp`, `select` | a function of elements, all accessed alike |

Loops are numbered anew: those of the result first, then the others as operands name them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from xdsl.ir.affine import AffineDimExpr, AffineExpr, AffineMap
from xdsl.utils.exceptions import VerifyException

from tilewright.frozen import frozen

CONTRACTIONS: dict[str, str] = {
    "matmul": "mk,kn->mn",
    "batch_matmul": "bmk,bkn->bmn",
    "batch_reduce_matmul": "bmk,bkn->mn",
    "matmul_transpose_a": "km,kn->mn",
    "matmul_transpose_b": "mk,nk->mn",
    "batch_matmul_transpose_a": "bkm,bkn->bmn",
    "batch_matmul_transpose_b": "bmk,bnk->bmn",
    "matvec": "mn,n->m",
    "vecmat": "m,mn->n",
    "batch_matvec": "bmk,bk->bm",
    "batch_vecmat": "bk,bkn->bn",
    "dot": "m,m->",
    "mmt4d": "mkac,nkbc->mnab",
    "batch_mmt4d": "zmkac,znkbc->zmnab",
    "quantized_matmul": "mk,kn,,->mn",
    "quantized_batch_matmul": "bmk,bkn,,->bmn",
}
ELEMENTWISE: dict[str, int] = {
    **dict.fromkeys(("abs", "ceil", "erf", "exp", "floor", "log", "negf", "reciprocal"), 1),
    **dict.fromkeys(("round", "rsqrt", "sqrt", "square", "tanh", "copy"), 1),
    **dict.fromkeys(("add", "sub", "mul", "div", "div_unsigned", "max", "min", "powf"), 2),
    "select": 3,
}
"""Functions of elements, with their number of operands."""
KINDS: dict[str, int] = {**ELEMENTWISE, "max_unsigned": 2, "min_unsigned": 2}
"""Those that `linalg.elementwise` does, two of which are no ops of their own."""
WINDOWS: tuple[str, ...] = (
    *("conv_1d", "conv_2d", "conv_3d", "conv_1d_nwc_wcf", "conv_1d_ncw_fcw", "conv_2d_nhwc_hwcf"),
    *("conv_2d_nhwc_fhwc", "conv_2d_nchw_fchw", "conv_2d_ngchw_fgchw", "conv_2d_ngchw_gfchw"),
    *("conv_2d_nhwgc_gfhwc", "conv_3d_ndhwc_dhwcf", "conv_3d_ncdhw_fcdhw"),
    *("depthwise_conv_1d_nwc_wc", "depthwise_conv_1d_ncw_cw", "depthwise_conv_1d_nwc_wcm"),
    *("depthwise_conv_2d_nchw_chw", "depthwise_conv_2d_nhwc_hwc", "depthwise_conv_2d_nhwc_hwcm"),
    *("depthwise_conv_3d_ndhwc_dhwc", "depthwise_conv_3d_ncdhw_cdhw"),
    "depthwise_conv_3d_ndhwc_dhwcm",
    *("conv_2d_nhwc_hwcf_q", "conv_2d_nhwc_fhwc_q", "conv_2d_nchw_fchw_q"),
    *("conv_2d_ngchw_gfchw_q", "conv_2d_nhwgc_gfhwc_q", "conv_3d_ndhwc_dhwcf_q"),
    *("depthwise_conv_2d_nhwc_hwc_q", "depthwise_conv_2d_nhwc_hwcm_q"),
    *(f"pooling_{layout}_sum" for layout in ("nwc", "ncw", "nhwc", "nchw", "ndhwc")),
    *(f"pooling_{layout}_max" for layout in ("nwc", "ncw", "nhwc", "nchw", "ndhwc")),
    *(f"pooling_{layout}_min" for layout in ("nwc", "nhwc", "ndhwc")),
    *(f"pooling_{layout}_{kind}_unsigned" for layout in ("nwc", "nhwc") for kind in ("max", "min")),
)
_WINDOW = re.compile(
    r"(conv|depthwise_conv|pooling)(?:_(\d)d)?(?:_([a-z]+))?(?:_([a-z]+?))?(?:_(unsigned|q))?"
)
_IMAGE = ("w", "hw", "dhw")
"""The dimensions that a window slides along, by their number."""


@frozen
class NamedOp:
    """A named op: `maps` of its operands, inputs first, and the loops that its results do not have."""

    maps: Sequence[AffineMap]
    reductions: frozenset[int]
    function: str = "mul"
    """What is done with the elements of the inputs."""
    reduction: str | None = "add"
    """What the result is combined with what was there by; None where it takes its place."""


Term = str | tuple[str, str, int]
"""A loop, or one that a window slides along, one within the window, and the number of that dimension."""


def windows(name: str, strides: Sequence[int], dilations: Sequence[int]) -> NamedOp:
    """A convolution or pooling of `WINDOWS`, whose windows step by `strides` and have `dilations` between elements."""
    found = _WINDOW.fullmatch(name)
    assert found is not None
    kind, rank, image, filter_, suffix = found.groups()
    depthwise, pooling = kind == "depthwise_conv", kind == "pooling"
    if image is None:
        image = filter_ = _IMAGE[int(rank) - 1]
    function, reduction = "mul", "add"
    if pooling:
        function, reduction = "first", {"sum": "add"}.get(filter_, filter_)
        reduction = f"{reduction}_unsigned" if suffix else reduction
        filter_ = "".join(d for d in image if d in _IMAGE[-1])
    slides = [d for d in image if d in _IMAGE[-1]]
    for what, given in (("strides", strides), ("dilations", dilations)):
        if len(given) < len(slides):
            raise VerifyException(f"expected {len(slides)} {what}, got {len(given)}")

    def term(letter: str) -> Term:
        if letter not in slides:
            return letter
        return letter, letter.upper(), slides.index(letter)

    result = [d if d != "c" or depthwise or pooling else "f" for d in image]
    if not (depthwise or pooling) and "c" not in image:
        result = list(image)
    result += ["m"] if filter_.endswith("m") else []
    window = [d.upper() if d in slides else d for d in filter_]
    zeros = [[], []] if suffix == "q" else []
    accesses = [[term(d) for d in image], window, *zeros, result]
    return named(accesses, function, reduction, strides, dilations)


def contraction(name: str, given: Sequence[AffineMap] = ()) -> NamedOp:
    """A product of `CONTRACTIONS`, or with maps of its own."""
    if given:
        used = {d for result in given[-1].results for d in result.used_dims()}
        return NamedOp(given, frozenset(range(given[-1].num_dims)) - used)
    inputs, _, result = CONTRACTIONS[name].partition("->")
    return named([*map(list, inputs.split(",")), list(result)])


def elementwise(name: str, rank: int, given: Sequence[AffineMap] = ()) -> NamedOp:
    """A function of `KINDS` on operands of a rank, or with maps of its own."""
    same = AffineMap.identity(rank)
    maps = given or [same] * (KINDS[name] + 1)
    return NamedOp(maps, frozenset(), "first" if name == "copy" else name, None)


def named(
    accesses: Sequence[Sequence[Term]],
    function: str = "mul",
    reduction: str = "add",
    strides: Sequence[int] = (),
    dilations: Sequence[int] = (),
) -> NamedOp:
    """What multiplies its inputs and adds up, by the terms of each operand's subscripts."""
    outer = [d for d in accesses[-1] if isinstance(d, str)]
    # A window's own loops come before the channels that it sums up, as the filter has them.
    order = dict.fromkeys([*outer, *_loops(accesses[1]), *_loops(accesses[0])])
    if not strides:
        order = dict.fromkeys([*outer, *_loops(accesses[0]), *_loops(accesses[1])])
    number = {loop: n for n, loop in enumerate(order)}

    def expression(term: Term) -> AffineExpr:
        if isinstance(term, str):
            return AffineDimExpr(number[term])
        at, within, n = term
        return AffineDimExpr(number[at]) * strides[n] + AffineDimExpr(number[within]) * dilations[n]

    maps = [AffineMap(len(number), 0, tuple(map(expression, each))) for each in accesses]
    return NamedOp(maps, frozenset(range(len(outer), len(number))), function, reduction)


def _loops(access: Sequence[Term]) -> Iterable[str]:
    for term in access:
        yield from (term,) if isinstance(term, str) else term[:2]
