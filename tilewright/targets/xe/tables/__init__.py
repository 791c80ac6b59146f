"""What the neutral callees stand for: `neutral` (names only, to be read), `intel`, `igc`, `emu`.

| table | for | a block load becomes |
|---|---|---|
| intel | drivers: the product | OpSubgroup2DBlockLoadINTEL |
| igc | ocloc of Debian: ISA to be read | llvm.genx.GenISA.LSC2DBlockRead, inline vISA |
| emu | any OpenCL device with subgroups | guarded loads of single elements |
"""

from tilewright.targets.xe.tables.base import Table, emit, emit_spirv, table

__all__ = ["Table", "emit", "emit_spirv", "table"]
