"""What of Python the language lacks: for each construct one sentence and what to write instead."""

from __future__ import annotations

import ast

REFUSED: dict[type[ast.AST], tuple[str, str]] = {
    ast.SetComp: ("a set comprehension", "use a list comprehension"),
    ast.DictComp: ("a dict comprehension", "build it outside of the kernel and pass its parts"),
    ast.Lambda: ("a lambda", "define the function with def outside of the kernel"),
    ast.Dict: ("a dict literal", "use separate names, or a NamedTuple defined outside"),
    ast.Set: ("a set literal", "use a tuple"),
    ast.Try: ("try", "kernels raise nothing to catch: check with tw.device_assert"),
    ast.TryStar: ("try", "kernels raise nothing to catch: check with tw.device_assert"),
    ast.Raise: ("raise", "use tw.static_assert at compile time or tw.device_assert at run time"),
    ast.With: ("with", "nothing in a kernel needs closing"),
    ast.AsyncWith: ("async with", "kernels are synchronous programs"),
    ast.AsyncFor: ("async for", "kernels are synchronous programs"),
    ast.AsyncFunctionDef: ("async def", "kernels are synchronous programs"),
    ast.Await: ("await", "kernels are synchronous programs"),
    ast.Yield: ("yield", "return a tuple of values"),
    ast.YieldFrom: ("yield from", "return a tuple of values"),
    ast.ClassDef: ("a class", "define a NamedTuple outside of the kernel to group values"),
    ast.FunctionDef: (
        "a function inside of a kernel",
        "define it at module level: helper functions are inlined where they are called",
    ),
    ast.Global: ("global", "pass values as arguments and return them"),
    ast.Nonlocal: ("nonlocal", "pass values as arguments and return them"),
    ast.Delete: ("del", "names need no deleting: values live as long as they are used"),
    ast.Import: ("import", "import at module level"),
    ast.ImportFrom: ("import", "import at module level"),
    ast.Match: ("match", "write if / elif / else"),
}

BREAK = (
    "break out of an unrolled loop, under a condition of run time",
    "loop with range(...), which ends at run time",
)
RETURN_IN_LOOP = (
    "return inside a loop, under a condition of run time",
    "carry a result out of the loop and return after it",
)
LOOP_ELSE = ("else after a loop", "set a flag in the loop and test it afterwards")
ITEM_ASSIGNMENT = (
    "assignment to an element or a slice",
    "values and tuples cannot be changed: make a new one, a value by tw.where(tw.arange(n) == i, new, x);"
    " arrays are written with tw.store_tile, tw.atomic_rmw",
)
ATTRIBUTE_ASSIGNMENT = ("assignment to an attribute", "use a name of its own")
