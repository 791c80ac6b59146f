"""The instruction table: what `mach.instr` may name.

An instruction is declared once: operand and result types, what the machine must have, its meaning
in numpy, and its emission as LLVM text. The reference executor runs the meaning, the printer prints
the emission, and one generic test (`tests/codegen/instructions`) executes both on random operands.
An entry is straight-line: one machine instruction, or one group with a single meaning.
"""

from tilewright.codegen.instructions.table import Immediates, Instruction, all_instructions, find

__all__ = ["Immediates", "Instruction", "all_instructions", "find"]
