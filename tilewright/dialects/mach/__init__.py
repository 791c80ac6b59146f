"""The `mach` dialect: what the last IR stage says and no upstream dialect can.

The last stage is `func.func` with scf, cf, arith, math, vector and index ops, plus these: raw
memory through `!llvm.ptr`, one machine instruction (`mach.instr`), lane masks, atomics, and calls
of runtime functions. The emitter (`tilewright.codegen`) prints each op one to one; nothing here
implies a loop or a memory access that is not written.

Conventions, for every op:
- A pointer is `!llvm.ptr` (generic) or `!llvm.ptr<n>` (an address space of the target). Offsets
  count bytes.
- `alignment` is a power of two in bytes that the address is known to have; absent means the
  element's own size.
- A value in memory takes its element type's storage: i1 one byte, tf32 four, bf16 and f16 two, f8
  one, index eight.
- Lanes whose mask bit is 0 touch no memory; a masked load gives them the lanes of `passthru`.
"""

# pyright: reportUnusedImport=false
from tilewright.dialects.fields import dialect
from tilewright.dialects.mach.atomics import (
    ATOMIC_KINDS,
    AtomicLoadOp,
    AtomicRmwOp,
    AtomicStoreOp,
    CmpxchgOp,
    FenceOp,
)
from tilewright.dialects.mach.calls import KERNEL, AssertOp, CallIndirectOp, CallOp, EachOp, InstrOp
from tilewright.dialects.mach.memory import (
    GatherOp,
    LoadOp,
    MaskedLoadOp,
    MaskedStoreOp,
    MaskFirstOp,
    PrefetchOp,
    ScatterOp,
    StoreOp,
)
from tilewright.dialects.mach.pointers import (
    AddressOfOp,
    AllocaOp,
    IntFromPtrOp,
    PtrAddOp,
    PtrFromIntOp,
    SharedBaseOp,
)
from tilewright.dialects.mach.registers import JoinOp
from tilewright.dialects.mach.types import AmxType, amx, ptr

MACH = dialect("mach", globals())
