"""The tw dialect: what a Python kernel can say that no upstream dialect has.

Printing, and breakpoints for the reference executor. It has no types of its own.
"""

from __future__ import annotations

from collections.abc import Iterable

from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.irdl import traits_def
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.effects import PEOPLE, Acts
from tilewright.dialects.fields import Op, Operands, Property, dialect, op_definition

_VALUES = "($values^ `:` type($values))? attr-dict"


@op_definition
class PrintOp(Op):
    """Prints one line: the format with each ``{}`` replaced by an operand (``{{`` is a brace).

    ```mlir
    tw.print "row {} of {}" %i, %n : index, index
    ```
    """

    name = "tw.print"
    format: Property[StringAttr, str] = Property(StringAttr, StringAttr)
    values: Operands = Operands()
    traits = traits_def(Acts(PEOPLE))
    assembly_format = f"$format {_VALUES}"

    def verify_(self) -> None:
        holes = self.format.data.replace("{{", "").replace("}}", "").count("{}")
        if holes != len(self.values):
            raise VerifyException(
                f"the format has {holes} places, but there are {len(self.values)} operands"
            )


_Names = ArrayAttr[StringAttr]


@op_definition
class BreakpointOp(Op):
    """Stops in a debugger with the kernel's variables at hand; the reference target alone does.

    ```mlir
    tw.breakpoint ["i", "acc"] %i, %acc : index, vector<4x4xf32>
    ```
    ``names`` are the variables that the operands are the values of.
    """

    name = "tw.breakpoint"
    names: Property[_Names, Iterable[str]] = Property(
        _Names, lambda names: ArrayAttr(map(StringAttr, names))
    )
    values: Operands = Operands()
    traits = traits_def(Acts(PEOPLE))
    assembly_format = f"$names {_VALUES}"

    def verify_(self) -> None:
        if len(self.names) != len(self.values):
            raise VerifyException(f"{len(self.names)} names for {len(self.values)} operands")


TW = dialect("tw", globals())
