"""Programs of threads as text, for the executor's tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.texts import parse_module
from tilewright import reference
from tilewright.reference.pointers import TensorMapValue


def run_threads(
    arguments: str,
    body: str,
    args: Sequence[Any],
    *,
    threads: int = 64,
    shared: int = 8192,
    cluster: int = 1,
    grid: int = 1,
    **options: Any,
) -> reference.Report:
    """Runs one thread's program; `%t` is the number of the thread, `%s` the address of shared memory."""
    module = parse_module(
        f"""builtin.module {{
        func.func @k({arguments}) attributes {{mach.kernel, tilewright.level = "lane", tilewright.lanes = 32 : i64,
            tilewright.subgroups = {threads // 32} : i64, mach.shared_bytes = {shared} : i64,
            stage.cluster = {cluster} : i64}} {{
          %t = gpu.thread_id x
          %s = mach.shared_base {{alignment = 1024 : i64}} : !llvm.ptr<3>
          %i0 = arith.constant 0 : i32
          %i1 = arith.constant 1 : i32
          %first = arith.cmpi eq, %t, %c0 : index
          %t4 = arith.muli %t, %c4 : index
          %mine = mach.ptr_add %s, %t4 : !llvm.ptr<3>
          {body}
          func.return
        }} }}""",
        "threads.mlir",
    )
    module.verify()
    return reference.run(module, grid, args, **options)


def tensor_map(
    array: Any, box: tuple[int, ...], swizzle: int = 0, element: str = ""
) -> TensorMapValue:
    """The map of an array, whose last dimension is the innermost; so is the last of the box."""
    return TensorMapValue(array.transpose(), box[::-1], swizzle, element)


def kinds(report: reference.Report) -> list[str]:
    return [finding.kind for finding in report.findings]
