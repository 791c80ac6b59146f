"""Rules that stock xDSL leaves open: what branches, yields and launches hand over fits what receives it.

MLIR refuses all of these. Number and types are compared where the value is handed over, so that the diagnostic stands
there: at the branch, at the yield, at the launch, at the name of a global.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import affine, cf, func, gpu, memref, scf
from xdsl.dialects.builtin import UnregisteredOp
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.traits import SymbolTable
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.nesting import ops_around
from tilewright.dialects.upstream.complete import add_verifier, set_verifier

Types = Sequence[Attribute]


def _listed(types: Types) -> str:
    return f"({', '.join(map(str, types))})"


def _same(given: Types, expected: Types, what: str) -> None:
    """`what` says whom the values go to, with their number or types left out."""
    if tuple(given) != tuple(expected):
        raise VerifyException(f"hands {_listed(given)} to {what} {_listed(expected)}")


# --- Branches ---------------------------------------------------------------------------------------


def _passes(number: int, block: Block, values: Sequence[SSAValue]) -> None:
    if block.parent is not None and block.parent.first_block is block:
        raise VerifyException(
            "branches to the entry block of its region, which may have no predecessors"
        )
    _same([v.type for v in values], [a.type for a in block.args],
          f"successor #{number}, whose arguments are")  # fmt: skip


def _verify_branch(op: cf.BranchOp) -> None:
    _passes(0, op.successor, op.arguments)


def _verify_conditional_branch(op: cf.ConditionalBranchOp) -> None:
    _passes(0, op.then_block, op.then_arguments)
    _passes(1, op.else_block, op.else_arguments)


def _verify_switch(op: cf.SwitchOp) -> None:
    sizes = [int(size) for size in op.case_operand_segments.get_values()]
    if len(sizes) != len(op.case_blocks) or min(sizes, default=0) < 0:
        raise VerifyException("expected one length of operands per case")
    if op.case_values is not None:
        values = list(op.case_values.get_values())
        if len(values) != len(op.case_blocks):
            raise VerifyException("number of case values should match number of case blocks")
        if len(set(values)) != len(values):
            raise VerifyException("has duplicate case value")
    _passes(0, op.default_block, op.default_operands)
    for number, way in enumerate(zip(op.case_blocks, op.case_operand, strict=True), start=1):
        _passes(number, *way)


# --- Ends of regions --------------------------------------------------------------------------------


def _verify_yield(op: scf.YieldOp | affine.YieldOp) -> None:
    parent = op.parent_op()
    if isinstance(parent, scf.WhileOp):
        expected, what = [v.type for v in parent.arguments], "'scf.while', which starts with"
    elif parent is None or isinstance(parent, affine.ParallelOp):
        return
    else:
        expected, what = parent.result_types, f"'{parent.name}', whose results are"
    _same([v.type for v in op.operands], expected, what)


def _verify_condition(op: scf.ConditionOp) -> None:
    parent = op.parent_op()
    if isinstance(parent, scf.WhileOp):
        _same([v.type for v in op.args], parent.result_types, "'scf.while', whose results are")


def _verify_if(op: scf.IfOp | affine.IfOp) -> None:
    otherwise = op.regions[1]
    if len(otherwise.blocks) > 1:
        raise VerifyException("expected one block after 'else'")
    if op.results and otherwise.first_block is None:
        raise VerifyException("must have an else block if defining values")


def _verify_while(op: scf.WhileOp) -> None:
    before, after = op.before_region.block, op.after_region.block
    _same([v.type for v in op.arguments], [a.type for a in before.args],
          "its first region, whose arguments are")  # fmt: skip
    _same(op.result_types, [a.type for a in after.args], "its second region, whose arguments are")
    for block, kind in ((before, scf.ConditionOp), (after, scf.YieldOp)):
        if not isinstance(block.last_op, kind):
            where = "first" if block is before else "second"
            raise VerifyException(f"expected its {where} region to end with '{kind.name}'")


def _verify_carried(op: scf.ForOp) -> None:
    _same([v.type for v in op.iter_args], op.result_types, "results of type")


def _verify_execute_region(op: scf.ExecuteRegionOp) -> None:
    entry = op.region.blocks[0]
    if entry.args:
        raise VerifyException("expected no arguments of its region")


def _verify_affine_for(op: affine.ForOp) -> None:
    if len(op.body.blocks) != 1 or not isinstance(op.body.block.last_op, affine.YieldOp):
        raise VerifyException("expected one block that ends with 'affine.yield'")


def _verify_return(op: gpu.ReturnOp) -> None:
    function = op.parent_op()
    if isinstance(function, gpu.FuncOp):
        _same([v.type for v in op.operands], function.function_type.outputs.data,
              "a function, whose results are")  # fmt: skip


# --- Names ------------------------------------------------------------------------------------------


def _verify_launch(op: gpu.LaunchFuncOp) -> None:
    """A module that says it holds kernels has those that it launches; others may stand in another file."""
    kernel = SymbolTable.lookup_symbol(op, op.kernel)
    if kernel is None and _holds_kernels(op):
        raise VerifyException(f"kernel function '{op.kernel}' is undefined")
    if isinstance(kernel, gpu.FuncOp):
        _same([v.type for v in op.kernelOperands], kernel.function_type.inputs.data,
              f"kernel @{kernel.sym_name.data}, whose arguments are")  # fmt: skip


def _holds_kernels(op: Operation) -> bool:
    return any("gpu.container_module" in above.attributes for above in ops_around(op))


def _verify_place(op: func.FuncOp | memref.GlobalOp) -> None:
    above = op.parent_op()
    if above is None or isinstance(above, UnregisteredOp):
        return
    if not above.has_trait(SymbolTable):
        raise VerifyException(f"is inside a '{above.name}', but a symbol belongs in a module")


def _verify_get_global(op: memref.GetGlobalOp) -> None:
    name = op.name_.string_value()
    found = SymbolTable.lookup_symbol(op, op.name_)
    if not isinstance(found, memref.GlobalOp):
        raise VerifyException(f"'{name}' does not reference a valid global memref")
    if found.type != op.memref.type:
        raise VerifyException(
            f"result type {op.memref.type} does not match type {found.type} of the global memref @{name}"
        )


def complete() -> None:
    add_verifier(cf.BranchOp, _verify_branch)
    add_verifier(cf.ConditionalBranchOp, _verify_conditional_branch)
    add_verifier(cf.SwitchOp, _verify_switch)
    for op in (scf.YieldOp, affine.YieldOp):
        add_verifier(op, _verify_yield)
    for op in (scf.IfOp, affine.IfOp):
        add_verifier(op, _verify_if)
    set_verifier(scf.WhileOp, _verify_while)
    add_verifier(scf.ConditionOp, _verify_condition)
    add_verifier(scf.ForOp, _verify_carried)
    add_verifier(scf.ExecuteRegionOp, _verify_execute_region)
    add_verifier(affine.ForOp, _verify_affine_for)
    add_verifier(gpu.ReturnOp, _verify_return)
    add_verifier(gpu.LaunchFuncOp, _verify_launch)
    add_verifier(memref.GetGlobalOp, _verify_get_global)
    for op in (func.FuncOp, memref.GlobalOp):
        add_verifier(op, _verify_place)
