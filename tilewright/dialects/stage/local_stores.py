"""Multi-buffers that threads fill: operands of products that the program computes."""

from __future__ import annotations

from xdsl.dialects.builtin import VectorType
from xdsl.irdl import traits_def

from tilewright.dialects.effects import ORDER, Acts
from tilewright.dialects.fields import Op, Operand, op_definition
from tilewright.dialects.stage.multi_buffers import check_parts, check_state
from tilewright.dialects.stage.types import MultiBufferType, PipelineStateType


@op_definition
class LocalStoreOp(Op):
    """Waits until the slot of `state` is free, then writes a value into it: a fill by threads.

    ```mlir
    stage.local_store %r[%c], %v : !stage.multi_buffer<..>, !stage.pipeline_state<2>, vector<64x128xbf16>
    ```
    The multi-buffer has one part, of the value's type. `stage.copy.wait` gives the value as it lies there.
    """

    name = "stage.local_store"
    buffer: Operand[MultiBufferType] = Operand(MultiBufferType)
    state: Operand[PipelineStateType] = Operand(PipelineStateType)
    value: Operand[VectorType] = Operand(VectorType)
    traits = traits_def(Acts(ORDER))
    assembly_format = (
        "$buffer `[` $state `]` `,` $value attr-dict `:` type($buffer) `,` type($state) `,` "
        "type($value)"
    )

    def verify_(self) -> None:
        check_state(self)
        assert isinstance(self.buffer.type, MultiBufferType)
        check_parts(self.name, self.buffer.type, [self.value.type])
