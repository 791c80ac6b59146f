"""From a `torch.export` program to a graph: each of its ops is done to traced arrays.

    program = torch.export.export(block, (x,), dynamic_shapes=...)
    graph, weights = tw.graph.from_torch(program)
    y = graph.compile()(x, *weights)

Inputs of the graph are those of the program, then its parameters and other tensors, which are returned as well.
Dimensions that are dynamic are symbols. What the table does not have is refused: all ops of it in one message.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any

from tilewright.diagnostics import CompileError, Location, TilewrightError
from tilewright.graph import torch_fourier as fourier
from tilewright.graph.nodes import TiledGraph
from tilewright.graph.torch_complex import OPS as COMPLEX
from tilewright.graph.torch_complex import Complex, applied, holds, settled
from tilewright.graph.torch_ops import MADE, OPS, dtype_of
from tilewright.graph.trace import ArrayType, trace
from tilewright.graph.traced import Traced


def from_torch(program: Any, name: str | None = None) -> tuple[TiledGraph, list[Any]]:
    """The graph of a ``torch.export.ExportedProgram``, and the tensors that it takes after the program's inputs.

    What is written in place is made functional first (``run_decompositions({})``): new values of the buffers and inputs
    that are written come before the other results. `name` is the graph's. Raises CompileError for ops that a graph
    lacks, naming all of them, and for what else no graph can say, with the line of the module: a dynamic extent that is
    no name, an input that is no tensor.
    """
    if not hasattr(program, "graph_signature"):
        raise CompileError(
            f"from_torch takes an exported program, not {type(program).__name__}",
            hint="torch.export.export(module, example_inputs)",
        )
    program = _made_of_others(program)
    nodes = list(program.graph.nodes)
    tensors = {**dict(program.state_dict), **dict(program.constants)}
    given = dict(program.graph_signature.inputs_to_parameters)
    given |= program.graph_signature.inputs_to_buffers
    given |= program.graph_signature.inputs_to_lifted_tensor_constants
    mutable = dict(program.graph_signature.buffers_to_mutate).values()
    fixed = _fixed(nodes, {n: tensors[t] for n, t in given.items() if t not in mutable})
    tensors |= {n.name: t for n, t in fixed.items()}
    given |= {n.name: n.name for n in fixed}
    nodes = [n for n in nodes if n not in fixed]
    lacking = [n for n in nodes if _is_lacking(n)]
    if lacking:
        raise CompileError(
            f"the program has ops that no graph has: {', '.join(sorted(set(map(_name, lacking))))}",
            location=_location(lacking[0]),
            rule="an op has an entry in the table, or torch makes it of such ops",
            hint=f"there are {', '.join(sorted(op for op in OPS if op[0] != '_'))}",
        )
    tokens = {*program.graph_signature.input_tokens, *program.graph_signature.output_tokens}
    holders = [n for n in nodes if n.op == "placeholder" and n.name not in tokens]
    order = [n for n in holders if n.name not in given]
    order += [n for n in holders if n.name in given and any(u not in fixed for u in n.users)]
    order += [n for n, t in fixed.items() if hasattr(t, "shape")]
    weights = [tensors[given[n.name]].detach() for n in order if n.name in given]
    seen_as = [
        n
        for n, t in zip(order[len(order) - len(weights) :], weights, strict=True)
        if t.is_complex()
    ]
    weights = [_as_pairs(t) if t.is_complex() else t for t in weights]
    names = {n: n.name.removeprefix("p_").removeprefix("b_") for n in order}

    def run(*arrays: Traced) -> Any:
        values: dict[Any, Any] = dict(zip(order, arrays, strict=True))
        values |= {n: Complex.seen(values[n]) for n in seen_as}
        for node in nodes:
            if node.op == "call_function":
                args, keywords = (_filled(a, values) for a in (node.args, node.kwargs))
                values[node] = _called(node, args, keywords, arrays[0])
            elif node.op == "output":
                kept = [a for a in node.args[0] if getattr(a, "name", None) not in tokens]
                results = tuple(_filled(a, values) for a in kept)
                if any(isinstance(r, Complex) for r in results):
                    raise CompileError(
                        "the program returns complex numbers", hint="torch.view_as_real"
                    )
                return results[0] if len(results) == 1 else results
            elif node.op != "placeholder":
                raise CompileError(f"{node.name}: a graph has no {node.op} ({node.target})")
        raise AssertionError("a program without output")

    taken = len(set(names.values())) == len(names) and all(n.isidentifier() for n in names.values())
    parameters = [
        inspect.Parameter(names[n] if taken else n.name, inspect.Parameter.POSITIONAL_ONLY)
        for n in order
    ]
    run.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    specs = [_spec(n, n in seen_as) for n in order]
    return trace(run, *specs, name=name or "program"), weights


def _fixed(nodes: list[Any], weights: Mapping[str, Any]) -> dict[Any, Any]:
    """What ops that a graph lacks make of weights and numbers alone, as torch does it; and what is made of that."""
    alone: set[Any] = set()
    for node in nodes:
        tags = map(str, getattr(node.target, "tags", ()))
        computed = node.op == "call_function" and all(n in alone for n in node.all_input_nodes)
        drawn = any("nondeterministic" in tag for tag in tags)
        if (computed and not drawn) or (node.op == "placeholder" and node.name in weights):
            alone.add(node)
    known: dict[Any, Any] = {}

    def value(node: Any) -> Any:
        if node.op == "placeholder":
            return weights[node.name].detach()
        if node not in known:
            values = {n: value(n) for n in node.all_input_nodes}
            args, keywords = (_filled(a, values) for a in (node.args, node.kwargs))
            known[node] = node.target(*args, **keywords)
        return known[node]

    found: dict[Any, Any] = {}
    for node in (n for n in nodes if n in alone and n.op == "call_function"):
        if _op(node) not in OPS or any(n in found for n in node.all_input_nodes):
            found[node] = value(node)
    return found


def _as_pairs(tensor: Any) -> Any:
    import torch  # pyright: ignore[reportMissingImports]

    return torch.view_as_real(tensor.resolve_conj())  # pyright: ignore


def _op(node: Any) -> str:
    """An op without its overload: ``add`` of aten.add.Tensor; of one that waits for others' effects, the op itself."""
    if getattr(node.target, "__name__", "") == "with_effects":
        return str(node.args[1].overloadpacket.__name__)
    packet = getattr(node.target, "overloadpacket", None)
    return str(getattr(packet or node.target, "__name__", node.target))


def _name(node: Any) -> str:
    return str(node.target) if hasattr(node.target, "overloadpacket") else _op(node)


def _made_of_others(program: Any) -> Any:
    """The program with arrays instead of what is written in place, and with what torch makes them of (its core ops, and
    composite ones) instead of ops that a graph lacks."""
    for _ in range(_ROUNDS):
        nodes = list(filter(_is_lacking, program.graph.nodes))
        lacking = {n.target for n in nodes if hasattr(n.target, "overloadpacket")}
        if not lacking:
            break
        from torch.export import default_decompositions  # pyright: ignore

        known = default_decompositions()
        rules = {op: known[op] for op in lacking if op in known}
        if not rules and not any(map(_writes, nodes)):
            break
        program = program.run_decompositions(rules)
    return program


_ROUNDS = 4
"""How often ops are replaced by others, which may be replaced in turn."""


def _is_lacking(node: Any) -> bool:
    known = (OPS, COMPLEX, fourier.OPS)
    return node.op == "call_function" and not any(_op(node) in table for table in known)


def _writes(node: Any) -> bool:
    return bool(getattr(getattr(node.target, "_schema", None), "is_mutable", False))


def _location(node: Any) -> Location | None:
    """The line of the user's module, or of torch's, that made a node."""
    frames = re.findall(r'File "(.+)", line (\d+)', node.meta.get("stack_trace") or "")
    return Location(frames[-1][0], int(frames[-1][1]), 1) if frames else None


def _called(node: Any, args: Any, keywords: Any, like: Traced) -> Any:
    """What a node's op makes of its arguments; `like`: an array for ops that make one of numbers."""
    wanted = node.meta.get("val")
    try:
        for key in _WITHOUT_MEANING:
            keywords.pop(key, None)
        if _op(node) in MADE:
            complexes = wanted.dtype.is_complex
            keywords["dtype"] = dtype_of(wanted.dtype.to_real() if complexes else wanted.dtype)
            args = args if any(isinstance(a, Traced) for a in args) else [like, *args]
        if _op(node) in fourier.OPS:
            made = fourier.OPS[_op(node)](*args, **keywords)
        elif holds(args) or _op(node) not in OPS:
            made = applied(_op(node), OPS.get(_op(node), _op), args, keywords)
        else:
            made = OPS[_op(node)](*args, **keywords)
        return _as_torch_says(made, wanted)
    except TilewrightError as error:
        raise CompileError(
            f"{_name(node)}: {error.message}",
            location=_location(node),
            rule=error.rule,
            hint=error.hint or _APART,
        ) from error
    except (TypeError, ValueError, IndexError, ArithmeticError) as error:
        given = ", ".join([*map(repr, args), *(f"{k}={v!r}" for k, v in keywords.items())])
        raise CompileError(
            f"{_name(node)} with these arguments is not traced: {given}",
            location=_location(node),
            hint=_APART,
        ) from error


_APART = "export what comes before it and what comes after it, and let torch do it between them"


def _as_torch_says(made: Any, wanted: Any) -> Any:
    """In torch's types, whatever traced arrays promote to; of another shape it would be a fault of the table."""
    if isinstance(made, Complex) and not wanted.is_complex():
        return _as_torch_says(settled(made, dtype_of(wanted.dtype)).real, wanted)
    if isinstance(made, Complex):
        return settled(made, dtype_of(wanted.dtype.to_real()))
    if isinstance(made, Traced) and hasattr(wanted, "shape") and wanted.is_complex():
        return settled(Complex.of(made), dtype_of(wanted.dtype.to_real()))
    if isinstance(made, (list, tuple)):
        pairs = zip(made, wanted, strict=False)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        return type(made)(_as_torch_says(*pair) for pair in pairs)  # pyright: ignore
    if not isinstance(made, Traced) or not hasattr(wanted, "shape"):
        return made
    numbers = [(a, b) for a, b in zip(made.shape, wanted.shape, strict=True)
               if isinstance(a, int) and isinstance(b, int)]  # fmt: skip
    if any(a != b for a, b in numbers):
        raise CompileError(
            f"the result is {made}, that of torch has the shape {list(wanted.shape)}"
        )
    return made.astype(dtype_of(wanted.dtype))


_WITHOUT_MEANING = ("layout", "device", "pin_memory", "memory_format", "non_blocking", "copy")


def _filled(value: Any, values: Mapping[Any, Any]) -> Any:
    """Arguments with what the nodes among them stand for."""
    if isinstance(value, (list, tuple)):
        return [_filled(v, values) for v in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, dict):
        return {k: _filled(v, values) for k, v in value.items()}  # pyright: ignore
    return values[value] if hasattr(value, "op") and value in values else value


def _spec(node: Any, pairs: bool = False) -> ArrayType:
    """What an input is; `pairs`: complex numbers as those of real ones along a new last dimension."""
    example = node.meta.get("val")
    if not hasattr(example, "shape"):
        raise CompileError(
            f"the input {node.name} is no tensor: {example!r}",
            rule="a graph takes arrays",
            hint="torch.tensor(value)",
        )
    shape: list[int | str] = []
    for extent in example.shape:
        text = str(extent)
        if not text.isidentifier() and not text.isdigit():
            raise CompileError(
                f"the input {node.name} has the extent {text}",
                rule="an extent of an input is a number or a name",
                hint="torch.export.Dim for each dimension, without arithmetic",
            )
        shape.append(int(text) if text.isdigit() else text)
    kind = example.dtype.to_real() if pairs else example.dtype
    return ArrayType((*shape, 2) if pairs else tuple(shape), dtype_of(kind))
