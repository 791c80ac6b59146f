"""Rings that threads fill: operands of products that the program computes."""

from __future__ import annotations

from xdsl.dialects.builtin import VectorType
from xdsl.ir import SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    traits_def,
)

from tilewright.dialects.effects import ORDER, Acts
from tilewright.dialects.stage.rings import CursorType, RingType, check_cursor, check_parts


@irdl_op_definition
class PutOp(IRDLOperation):
    """Waits until the slot of `cursor` is free, then writes a value into it: a fill by threads.

    ```mlir
    stage.put %r[%c], %v : !stage.ring<..>, !stage.cursor<2>, vector<64x128xbf16>
    ```
    The ring has one part, of the value's type. `stage.copy.wait` gives the value as it lies there.
    """

    name = "stage.put"
    ring = operand_def(RingType)
    cursor = operand_def(CursorType)
    value = operand_def(VectorType)
    traits = traits_def(Acts(ORDER))
    assembly_format = (
        "$ring `[` $cursor `]` `,` $value attr-dict `:` type($ring) `,` type($cursor) `,` "
        "type($value)"
    )

    def __init__(self, ring: SSAValue, cursor: SSAValue, value: SSAValue):
        super().__init__(operands=[ring, cursor, value])

    def verify_(self) -> None:
        check_cursor(self)
        assert isinstance(self.ring.type, RingType)
        check_parts(self.name, self.ring.type, [self.value.type])
