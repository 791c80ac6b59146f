"""What people who know Triton or numpy write, and what it is called here.

One table serves every place where such a name can turn up: ``tw.dot`` in and outside of kernels,
``x.sum()`` on a value, ``np.clip`` called with one, ``num_warps=4`` at a launch, and the page
docs/from-triton.md. Imports nothing of the compiler: ``import tilewright`` reads it.
"""

from __future__ import annotations

from collections.abc import Collection

from tilewright.diagnostics import did_you_mean
from tilewright.lang.registry import FUNCTIONS, describe_signature

TABLES: dict[str, dict[str, str]] = {
    "Memory": {
        "load": "tw.load_tile(tw.init_tile(A, [m, n], (BM, BN))); elements by index: A[i, j]",
        "store": "tw.store_tile(x, tw.init_tile(A, [m, n], (BM, BN))); elements by index: A[i, j] = x",
        "make_block_ptr make_tensor_descriptor": "tw.init_tile(A, [m, n], (BM, BN))",
        "advance": "tw.update_tile_offset(tile, [0, BK])",
        "gather take": "A[i], A[i, j] with values of indices; of memory, not of a value",
        "atomic_add": 'tw.atomic_rmw("add", x, tile); gives the old values',
        "atomic_max": 'tw.atomic_rmw("max", x, tile)',
        "atomic_min": 'tw.atomic_rmw("min", x, tile)',
        "atomic_and": 'tw.atomic_rmw("andi", x, tile)',
        "atomic_or": 'tw.atomic_rmw("ori", x, tile)',
        "atomic_xor": 'tw.atomic_rmw("xori", x, tile)',
        "atomic_xchg": 'tw.atomic_rmw("assign", x, tile)',
        "atomic_cas": "",
        "histogram bincount": 'tw.atomic_rmw("add", 1, tw.init_tile(counts, offsets))',
    },
    "Making values": {
        "zeros_like empty_like": "tw.zeros(x.shape, x.dtype)",
        "empty": "tw.zeros(shape, dtype)",
        "ones": "tw.full(shape, 1, dtype)",
        "ones_like": "tw.full(x.shape, 1, x.dtype)",
        "full_like": "tw.full(x.shape, value, x.dtype)",
        "cast convert": "x.to(dtype)",
        "i4 int4 u4 uint4": "; numbers of 4 bits are kept two in a byte: x & 15 and x >> 4",
        "rand randn randint randint4x randperm philox uniform normal random": "; pass an array of"
        " random numbers, or compute a counter-based generator from tw.arange with integer operators",
    },
    "Shapes": {
        "trans permute swapaxes moveaxis T mT": "tw.transpose(x)",
        "broadcast_to expand": "tw.broadcast(x, axis, size); operators broadcast by themselves",
        "ravel flatten": "tw.reshape(x, (1, -1))",
        "expand_dims unsqueeze squeeze": "; values keep two dimensions: a reduction leaves [M, 1] or"
        " [1, N], x[:, None] is a vector as a column, x[None, :] as a row",
        "cat concatenate hstack": "tw.concat((a, b), 1)",
        "vstack": "tw.concat((a, b), 0)",
        "join stack": "tw.interleave(a, b); their columns in turn",
        "split": "even, odd = tw.deinterleave(x); halves: x[:, :32], x[:, 32:]",
        "flip": "; load through tw.load_gather with the indices turned round",
    },
    "Products and reductions": {
        "dot matmul mm bmm": "tw.tile_mma(a, b, acc)",
        "addmm baddbmm": "tw.tile_mma(a, b, c)",
        "dot_scaled": "",
        "einsum inner outer": "tw.tile_mma(a, b, acc); of transposed operands: tw.transpose(b)",
        "mean": "tw.sum(x, 1) / x.shape[1]",
        "var": "tw.sum((x - m) ** 2, 1) / x.shape[1]; m is the mean",
        "std": "tw.sqrt(tw.sum((x - m) ** 2, 1) / x.shape[1]); m is the mean",
        "amax": "tw.max(x, 1)",
        "amin": "tw.min(x, 1)",
        "count_nonzero": "tw.sum(x != 0, 1)",
        "xor_sum": 'tw.reduction("xor", x, 1)',
        "reduce": 'tw.reduction("add", x, 1); add, mul, maximumf, minimumf, and, or, xor, ..',
        "softmax": "tw.exp(x - tw.max(x, 1)) / tw.sum(tw.exp(x - tw.max(x, 1)), 1); of arrays:"
        " tilewright.ops.softmax",
        "scan": "tw.associative_scan(x, 1, combine); tw.cumsum(x, 1) of sums",
        "cummax": "tw.associative_scan(x, 1, tw.maximum)",
        "cummin": "tw.associative_scan(x, 1, tw.minimum)",
        "sort topk argsort": "; the k largest: k times tw.argmax and tw.where, which takes it out",
        "map_elementwise": "; operators and functions of values are elementwise; helpers are inlined",
    },
    "Elementwise": {
        "clamp clip": "tw.minimum(tw.maximum(x, low), high)",
        "relu": "tw.maximum(x, 0)",
        "silu swish": "x * tw.sigmoid(x)",
        "gelu": "0.5 * x * (1 + tw.erf(x * 0.5**0.5))",
        "pow power": "x**y",
        "square": "x * x",
        "exp10": "tw.exp2(x * 3.321928094887362)",
        "reciprocal": "1 / x",
        "sqrt_rn": "tw.sqrt(x)",
        "arcsin": "tw.asin(x)",
        "arccos": "tw.acos(x)",
        "atan2 arctan2 lgamma erfinv sinpi cospi": "",
        "rint roundeven": "tw.round(x)",
        "sign": "tw.where(x > 0, 1.0, tw.where(x < 0, -1.0, 0.0))",
        "fabs absolute": "tw.abs(x)",
        "fmax": "tw.maximum(x, y)",
        "fmin": "tw.minimum(x, y)",
        "fdiv div_rn div true_divide divide": "x / y",
        "mod remainder": "x % y; has the sign of y, as in Python",
        "divmod": "x // y, x % y",
        "fmod": "x - y * tw.trunc(x / y)",
        "add": "x + y",
        "sub subtract": "x - y",
        "mul multiply": "x * y",
        "negative neg": "-x",
        "isnan": "x != x",
        "isinf": 'tw.abs(x) == float("inf")',
        "isfinite": 'tw.abs(x) < float("inf")',
        "logical_and bitwise_and": "a & b",
        "logical_or bitwise_or": "a | b",
        "logical_xor bitwise_xor": "a ^ b",
        "logical_not invert": "~a",
        "ldexp scalbn": "x * tw.exp2(y)",
        "popcount popc bit_count bitwise_count": "; of u32: x - (x >> 1 & 0x55555555), then (x & 0x33333333) +"
        " (x >> 2 & 0x33333333), then (x + (x >> 4) & 0x0F0F0F0F) * 0x01010101 >> 24",
        "umulhi mulhi": "(a.to(tw.u64) * b.to(tw.u64) >> 32).to(tw.u32)",
        "inline_asm_elementwise": "",
    },
    "Types": {
        "cast astype type": "x.to(dtype)",
        "bitcast": "x.to(dtype, bitcast=True); on the host: array.view(dtype)",
        "float64 double": "tw.f64",
        "float32 float": "tw.f32",
        "float16 half": "tw.f16",
        "bfloat16": "tw.bf16",
        "float8e4nv float8_e4m3fn": "tw.f8e4m3",
        "float8e5 float8_e5m2": "tw.f8e5m2",
        "int64 long": "tw.i64",
        "int32 int": "tw.i32",
        "int16": "tw.i16",
        "int8": "tw.i8",
        "int1 bool bool_": "tw.i1",
        "uint64": "tw.u64",
        "uint32": "tw.u32",
        "uint16": "tw.u16",
        "uint8": "tw.u8",
        "pointer_type": "; a kernel takes arrays, which have shape and strides",
        "tensor": "tw.Value; the value of a tile",
    },
    "Control and checks": {
        "range": "range(...); Python's own: a run-time loop, which the compiler pipelines",
        "debug_barrier syncthreads": "tw.barrier()",
        "static_print": "; call a plain Python function that prints: its arguments are known at"
        " compile time, so it runs then",
        "multiple_of max_contiguous max_constancy assume": "; leave it out: code is specialised on"
        " the divisibility of extents and strides",
        "swizzle2d": "; leave it out: the compiler orders the workgroups",
        "jit": "tw.kernel",
        "heuristics": "tw.auto; BM: tw.constexpr = tw.auto is chosen by the planner, or by"
        " `tilewright tune`",
        "Config": "; the configs of tw.autotune are dicts of constexprs",
        "next_power_of_2": "; extents of tiles need no power of two",
    },
}  # fmt: skip
"""By chapter: names of others, with the expression that does it here, and a note after ``;``.

Without an expression the language lacks it; the note, if any, says what to do."""

INSTEAD: dict[str, str] = {
    name: answer
    for table in TABLES.values()
    for names, answer in table.items()
    for name in names.split()
}
"""Every name of :data:`TABLES`."""

METHODS: dict[str, str] = {
    "T": "tw.transpose(x)",
    "size": "x.shape",
    "numel": "x.shape",
    "dim": "x.ndim",
    "stride": "A.strides",
    "view": "tw.reshape(x, shape); as another dtype: x.to(dtype, bitcast=True)",
    "copy": "; values never change: another name is another value",
    "clone": "; values never change: another name is another value",
    "float": "x.to(tw.f32)",
    "half": "x.to(tw.f16)",
    "double": "x.to(tw.f64)",
    "bfloat16": "x.to(tw.bf16)",
    "int": "x.to(tw.i32)",
    "long": "x.to(tw.i64)",
    "bool": "x.to(tw.i1)",
    "element_ty": "; A.dtype is the dtype of the elements itself",
    "scalar": "; x.dtype is the dtype of the elements itself",
}
"""Members of arrays and tensors that are written in another way than the functions are."""

KEYWORDS: dict[str, str] = {
    "other": "what masked elements are is padding=...",
    "fill_value": "what masked elements are is padding=...",
    "pointer": "a tile is given by array, offsets and shape",
    "boundary_check": "leave boundary_check out: what is outside of the array reads as padding",
    "padding_option": "padding=0 or another number is what elements outside of the array are",
    "cache_modifier": "the caches are told by l1_hint=..., l2_hint=...",
    "eviction_policy": "the caches are told by l1_hint=..., l2_hint=...",
    "volatile": "leave volatile out: what others write at the same time is read by tw.atomic_rmw",
    "keep_dims": "leave keep_dims out: the axis stays, with extent 1",
    "keepdims": "leave keepdims out: the axis stays, with extent 1",
    "dim": "the keyword is axis",
    "dtype": "a value is converted by x.to(dtype)",
    "return_indices": "the index is tw.argmax(x, 1)",
    "input_precision": "f32 is multiplied as IEEE f32; ask for TF32 by x.to(tw.tf32)",
    "allow_tf32": "f32 is multiplied as IEEE f32; ask for TF32 by x.to(tw.tf32)",
    "out_dtype": "the accumulator's dtype is the result's: tw.zeros((M, N), tw.f32)",
    "acc": "the accumulator is c",
    "sem": "leave sem out: atomics order what the program does before and after them",
    "scope": "leave scope out: atomics are seen by all programs",
}
"""Keywords of Triton's, numpy's and PyTorch's functions that those of the language do not take."""


def meant(name: str, known: Collection[str]) -> str | None:
    """A hint for a name that is none of ``known``: what it is called here, or what it was mistyped for."""
    if name in INSTEAD:
        return sentence(INSTEAD[name])
    return did_you_mean(name, known, cutoff=0.75)


def counterpart(name: str) -> str | None:
    """A hint for a function of another library that was called with a value: its like in the language."""
    if name in FUNCTIONS:
        positional = describe_signature(FUNCTIONS[name]).partition(", *")[0]
        return f"use {positional.removesuffix(')')})"
    return sentence(INSTEAD[name]) if name in INSTEAD else None


def sentence(answer: str) -> str:
    """An answer of the tables as a hint."""
    code, _, note = answer.partition(";")
    note = note.strip()
    if code:
        return f"use {code}" + (f" ({note})" if note else "")
    return "the language has no such thing" + (f": {note}" if note else "")
