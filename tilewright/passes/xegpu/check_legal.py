"""xegpu-check-legal{target=pvc|bmg|dg2 grf=128|256}: can the machine do what the ops say?

Requires: XeGPU whose ops are instruction-sized (subgroup or lane level), or have a layout with
`inst_data`, which is then what is checked; workgroup-level ops without one are left to the lowering.
Guarantees: changes nothing. Raises `UnsupportedError` at the first op beyond a limit, with the others as
notes; each sentence names the op, the number and the limit, which stands in `tilewright.uarch`.

    %v = xegpu.load_nd %t[0, 0] : !xegpu.tensor_desc<64x16xf16> -> vector<64x16xf16>
    error: xegpu.load_nd: a load of 1 x 64x16 blocks of 16 bits is not possible on xe-pvc: height 64 is
    not within 1 to 32

Checked: 2D block shapes and array_length, bytes per message, the base matrix' width, height, pitch and
alignment, block offsets, lanes and bytes of gathers, dpas shapes per type, cache-hint pairs, sg_maps,
shared memory, subgroups per workgroup (by registers per thread), and named barriers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any

from xdsl.dialects.builtin import IntegerAttr, MemRefType, ModuleOp, StringAttr, VectorType
from xdsl.ir import Operation

from tilewright.diagnostics import Note, TilewrightError, UnsupportedError, location_of
from tilewright.dialects import xegpu
from tilewright.dialects.cache_hints import hints_of
from tilewright.dialects.movement import shape_of
from tilewright.dialects.upstream.arith import constant, element_bits
from tilewright.dialects.xegpu.layouts import LayoutAttr, Ownership
from tilewright.dialects.xegpu.types import MemorySpace, TensorDescType
from tilewright.dialects.xetile.assembly import Index
from tilewright.dialects.xetile.mma import matrix_dims
from tilewright.passes.kernel import LEVEL, SUBGROUPS
from tilewright.passes.own_memory import shared_bytes
from tilewright.passes.xegpu.block_messages import surface
from tilewright.passes.xegpu.sg_maps import (
    check_descriptor_map,
    check_dpas_maps,
    dpas_instruction,
    refuse,
    type_name,
)
from tilewright.uarch.base import MatrixInstruction
from tilewright.uarch.xe import (
    CACHE_SOURCE,
    LOAD_CACHE_PAIRS,
    STORE_CACHE_PAIRS,
    XeMachine,
    cache_pair,
)


def check_legal(module: ModuleOp, machine: XeMachine, grf: int = 128) -> None:
    """Checks XeGPU ops against the limits of a machine. Raises the first breach, with notes of others. A thread has
    `grf` registers: 128 or 256."""
    found = list(faults(module, machine, grf))
    if not found:
        return
    first, *others = found
    for other in others[:20]:
        first.with_note(Note(other.message, other.location))
    raise first


def faults(module: ModuleOp, xe: XeMachine, grf: int) -> Iterator[TilewrightError]:
    """Every breach of a limit, in the order of the text."""
    if grf not in (128, 256):
        raise UnsupportedError(f"a thread has 128 or 256 registers, not {grf}")
    for inner in module.walk():
        checks = _CHECKS.get(type(inner), ())
        for check in checks:
            try:
                check(xe, inner)
            except TilewrightError as error:
                yield error.at(location_of(inner))
        if inner.name in ("gpu.func", "func.func"):
            yield from _kernel_faults(xe, inner, grf)


def _instruction_shape(
    ownership: Ownership | None, shape: tuple[int, ...]
) -> tuple[int, ...] | None:
    """What one instruction handles: inst_data where the layout has it; None where that is still open."""
    if isinstance(ownership, LayoutAttr):
        inst = ownership.field("inst_data")
        if inst is not None:
            return inst
        return None if ownership.is_workgroup() else shape
    if isinstance(ownership, xegpu.SliceAttr):
        return None if ownership.is_workgroup() else shape
    return shape


# --- Blocks --------------------------------------------------------------------------------


def _block_shape(xe: XeMachine, op: xegpu.LoadNdOp | xegpu.StoreNdOp | xegpu.PrefetchNdOp) -> None:
    tdesc = op.tdesc
    shape = _instruction_shape(op.ownership, tdesc.get_shape())
    if shape is None or len(shape) < 2 or tdesc.space is MemorySpace.SLM:
        return
    if any(extent != 1 for extent in shape[:-2]):
        text = "x".join(str(extent) for extent in shape)
        raise refuse(
            op,
            f"a block of {text} is not possible on {xe.name}: blocks have two dimensions",
            "SPV_INTEL_2d_block_io",
            "leading dimensions of 1, or a loop over them",
        )
    height, width = shape[-2:]
    bits = element_bits(tdesc.element_type)
    form, bits, width = _block_form(xe, op, bits, width)
    xe.block(op.name, form, bits, width, height, tdesc.array_length)


def _block_form(
    xe: XeMachine, op: xegpu.LoadNdOp | xegpu.StoreNdOp | xegpu.PrefetchNdOp, bits: int, width: int
) -> tuple[str, int, int]:
    """The message's name, and the elements that it sees."""
    match op:
        case xegpu.PrefetchNdOp():
            return "prefetch", bits, width
        case xegpu.StoreNdOp():
            return "store", bits, width
        case _:
            pass
    if op.packed and bits < 32:
        return "transform", bits, width
    if not op.transposes:
        return "load", bits, width
    unit = op.transpose_bit_width
    wide = bits if unit is None else unit
    if wide < 32 and xe.blocks:
        raise refuse(
            op,
            f"a transposed load of {wide}-bit elements is not possible on {xe.name}: units are 32 or "
            "64 bits",
            "SPV_INTEL_2d_block_io",
            "transpose_bit_width = 32 transposes pairs, which is the VNNI form of B",
        )
    return "transpose", wide, width * bits // wide


def _shared_block(xe: XeMachine, op: xegpu.CreateNdDescOp) -> None:
    if op.tdesc.space is MemorySpace.SLM and len(op.tdesc.get_shape()) > 1:
        raise refuse(
            op,
            f"a {len(op.tdesc.get_shape())}-D block of shared memory is not possible on {xe.name}: "
            "block messages reach device memory only",
            "SPV_INTEL_2d_block_io",
            "create_mem_desc with load_matrix and store_matrix",
        )


def _static(values: Sequence[Index | None]) -> list[int | None]:
    return [constant(v) for v in values]


def _surface(xe: XeMachine, op: xegpu.CreateNdDescOp) -> None:
    """Width, height, pitch and alignment of a 2-D descriptor's base, as far as the text says them."""
    tdesc, source = op.tdesc, op.source.type
    if len(tdesc.get_shape()) < 2 or tdesc.space is MemorySpace.SLM or not xe.blocks:
        return
    size = element_bits(tdesc.element_type) / 8
    shape, strides = map(_static, surface(op))
    if isinstance(source, MemRefType) and (offset := source.get_offset()):
        xe.require(op.name, "block_base_align", int(offset * size))
    if len(shape) >= 2:
        if shape[-1] is not None:
            xe.require(op.name, "block_surface_width", int(shape[-1] * size))
        if shape[-2] is not None:
            xe.require(op.name, "block_surface_height", shape[-2])
    if len(strides) >= 2:
        if strides[-1] is not None and strides[-1] != 1:
            raise refuse(
                op,
                f"an innermost stride of {strides[-1]} is not possible on {xe.name}: it is 1",
                "XeGPU RFC, create_nd_tdesc",
                "gathers, or a packed copy",
            )
        if strides[-2] is not None:
            xe.require(op.name, "block_surface_pitch", int(strides[-2] * size))


def _offsets(xe: XeMachine, op: xegpu.LoadNdOp | xegpu.StoreNdOp | xegpu.PrefetchNdOp) -> None:
    """Blocks begin at multiples of 4 bytes in a row."""
    tdesc = op.tdesc
    if op.mixed_offsets is None or len(tdesc.get_shape()) < 2 or not xe.blocks:
        return
    x = _static(op.mixed_offsets)[-1]
    bits = element_bits(tdesc.element_type)
    if x is not None and x * bits % 32:
        raise refuse(
            op,
            f"a block at column {x} of {tdesc.element_type} is not possible on {xe.name}: columns are "
            f"multiples of {32 // bits}",
            "SPV_INTEL_2d_block_io: x is a multiple of 4 bytes",
        )


# --- Scattered -------------------------------------------------------------------------------


def _gather(xe: XeMachine, op: xegpu.ScatterAccess) -> None:
    shape = _instruction_shape(op.ownership, op.lanes)
    if shape is None or not op.lanes:
        return
    lanes = prod(shape)
    if lanes == 1:
        return  # one lane's own access
    if lanes not in xe.subgroup_sizes:
        sizes = " or ".join(str(size) for size in xe.subgroup_sizes)
        raise refuse(
            op,
            f"{lanes} offsets are not possible on {xe.name}: a subgroup has {sizes} lanes",
            "XeGPU RFC, create_tdesc",
        )
    bits = _access_bits(op)
    if bits is not None and op.chunk > 1:
        xe.require(op.name, "chunk_bytes", lanes * op.chunk * bits // 8)


def _access_bits(op: xegpu.ScatterAccess) -> int | None:
    match op:
        case xegpu.LoadGatherOp() | xegpu.StoreScatterOp() | xegpu.AtomicRMWOp():
            type = op.value.type
            return element_bits(type.element_type if isinstance(type, VectorType) else type)
        case _:
            return None if op.tdesc is None else element_bits(op.tdesc.element_type)


# --- Hints -----------------------------------------------------------------------------------


def cache_policies(
    xe: XeMachine, op: xegpu.BlockAccess | xegpu.ScatterAccess
) -> tuple[str, str] | None:
    """What a message asks of the first and the last cache level; None where the op has no hints. l2 stands for the
    last level where l3 is not given. UnsupportedError for a pair that no message has."""
    first, second, third = hints_of(op)
    last = third or second
    if first is None and last is None:
        return None
    store = isinstance(op, (xegpu.StoreNdOp, xegpu.StoreScatterOp))
    pair = cache_pair(first, last, store=store)
    if pair is None:
        pairs = STORE_CACHE_PAIRS if store else LOAD_CACHE_PAIRS
        asked = [f"{level} {hint}" for level, hint in (("L1", first), ("last level", last)) if hint]
        raise refuse(
            op,
            f"{' with '.join(asked)} is not possible on {xe.name}",
            CACHE_SOURCE,
            f"L1 and last level are one of {', '.join(' + '.join(each) for each in pairs)}",
        )
    return pair


def _hints(xe: XeMachine, op: xegpu.BlockAccess | xegpu.ScatterAccess) -> None:
    pair = cache_policies(xe, op)
    if isinstance(op, (xegpu.PrefetchNdOp, xegpu.PrefetchOp)) and pair == ("uncached", "uncached"):
        raise refuse(
            op,
            f"a prefetch into no cache (uncached, uncached) does nothing on {xe.name}",
            CACHE_SOURCE,
        )


# --- dpas ------------------------------------------------------------------------------------


def _dpas(xe: XeMachine, op: xegpu.DpasOp) -> None:
    instruction = dpas_instruction(xe, op)
    dims = _dpas_dims(xe, op, instruction)
    if dims is None:
        return
    m, n, k = dims
    types = f"{type_name(op.lhs)} x {type_name(op.rhs)}"
    legal = ", ".join(str(v) for v in instruction.m)
    for what, number, allowed, text in (
        ("M", m, instruction.m, legal),
        ("N", n, instruction.n, ", ".join(str(v) for v in instruction.n)),
        ("K", k, (instruction.k,), str(instruction.k)),
    ):
        if number not in allowed:
            raise refuse(
                op,
                f"{what} = {number} of {types} is not possible on {xe.name}: {what} is {text}",
                instruction.source,
            )


def _dpas_dims(
    xe: XeMachine, op: xegpu.DpasOp, instruction: MatrixInstruction
) -> tuple[int, int, int] | None:
    """(M, N, K) of one instruction; None where the layouts leave it open."""
    dims = matrix_dims(op.lhs.type, op.rhs.type)
    result = op.result.type
    if dims is not None and len(result.get_shape()) == 2:
        m, n, k = dims
        a, b, c = op.layouts
        fragments = (
            _instruction_shape(a, (m, k)),
            _instruction_shape(b, (k, n)),
            _instruction_shape(c, (m, n)),
        )
        if any(fragment is None for fragment in fragments):
            return None
        (m, k), (_, n) = fragments[0] or (m, k), fragments[2] or (m, n)
        return m, n, k
    # Fragments: one column of C per lane, a K of B per lane.
    (lanes,) = instruction.n
    m, k = prod(result.get_shape()), prod(shape_of(op.rhs))
    if prod(shape_of(op.lhs)) * lanes != m * k:
        raise refuse(
            op,
            f"fragments of {prod(shape_of(op.lhs))}, {k} and {m} elements are no product of {lanes} lanes",
            instruction.source,
        )
    return m, lanes, k


# --- Kernels ---------------------------------------------------------------------------------


def _kernel_faults(xe: XeMachine, function: Operation, grf: int) -> Iterator[TilewrightError]:
    """Shared memory and subgroups of a whole workgroup."""
    shared = sum(map(shared_bytes, function.walk()))
    checks: list[tuple[str, int]] = [("slm", shared)] if shared else []
    limit = (
        "subgroups_large_grf" if grf == 256 and "subgroups_large_grf" in xe.limits else "subgroups"
    )
    counts = {prod(grid) for grid in _grids(function)}
    declared = function.attributes.get(SUBGROUPS)
    level = function.attributes.get(LEVEL)
    if isinstance(declared, IntegerAttr) and isinstance(level, StringAttr):
        counts.add(declared.value.data)
    if counts:
        checks.append((limit, max(counts)))
    for name, number in checks:
        try:
            xe.require(function.name, name, number)
        except TilewrightError as error:
            yield error.at(location_of(function))


def _grids(function: Operation) -> Iterator[tuple[int, ...]]:
    """sg_layout of every layout in the kernel."""
    for op in function.walk():
        attributes = [*op.properties.values(), *op.attributes.values()]
        attributes += [r.type.layout for r in op.results if isinstance(r.type, TensorDescType)]
        for attribute in attributes:
            layout = attribute.flatten()[0] if isinstance(attribute, xegpu.SliceAttr) else attribute
            if isinstance(layout, LayoutAttr) and (grid := layout.field("sg_layout")) is not None:
                yield grid


def _named_barriers(xe: XeMachine, op: xegpu.AllocNbarrierOp) -> None:
    if op.count is not None:
        # Ids count from 0, and 0 is the workgroup's own.
        xe.require(op.name, "named_barriers", op.count - 1)


def _named_barrier(xe: XeMachine, op: xegpu.InitNbarrierOp) -> None:
    (number,) = _static([op.nbarrier_id])
    # A number that is known only at run time is one beside the workgroup's.
    xe.require(op.name, "named_barriers", 1 if number is None else number & 0xFF)


Check = Callable[[XeMachine, Any], None]

_CHECKS: dict[type[Operation], tuple[Check, ...]] = {
    xegpu.CreateNdDescOp: (_shared_block, _surface, check_descriptor_map),
    xegpu.CreateDescOp: (check_descriptor_map,),
    xegpu.LoadNdOp: (_block_shape, _offsets, _hints),
    xegpu.StoreNdOp: (_block_shape, _offsets, _hints),
    xegpu.PrefetchNdOp: (_block_shape, _offsets, _hints),
    xegpu.LoadGatherOp: (_gather, _hints),
    xegpu.StoreScatterOp: (_gather, _hints),
    xegpu.PrefetchOp: (_gather, _hints),
    xegpu.AtomicRMWOp: (_gather,),
    xegpu.DpasOp: (_dpas, check_dpas_maps),
    xegpu.AllocNbarrierOp: (_named_barriers,),
    xegpu.InitNbarrierOp: (_named_barrier,),
}
