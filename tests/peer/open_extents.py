"""Programs of TOSA whose extents are known at run time alone: a function of tensors whose types do not say them.

    %v1 = bufferization.to_tensor ..            %v1_open = tensor.cast %v1 : tensor<4x3xf32> to tensor<?x?xf32>
    %v2 = "tosa.abs"(%v1) : ..           ->     %v2 = call @ops(%v1_open) : (tensor<?x?xf32>) -> tensor<4x3xf32>

    func.func private @ops(%v1_open: tensor<?x?xf32>) -> tensor<4x3xf32> {
      %v2_open = "tosa.abs"(%v1_open) : (tensor<?x?xf32>) -> tensor<?x?xf32>
      %v2 = tensor.cast %v2_open : tensor<?x?xf32> to tensor<4x3xf32>
      return %v2 : tensor<4x3xf32>
    }

Shapes that the text states (`tosa.reshape`, `tile`, `slice`) stay, and so does what such an op gives.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random

_OP = re.compile(r'(%\w+) = ("tosa\.\w+")\(([^)]*)\)(.*) : \(([^()]*)\) -> (tensor<[^>]*>)')
_GIVEN = re.compile(r"(%\w+) = bufferization\.to_tensor .* to (tensor<[^>]*>)")
_SHOWN = re.compile(r"%\w+ = bufferization\.to_buffer (%\w+(?:#\d)?) : (tensor<[^>]*>) to .*")
_STATED = ("const", "reshape", "tile", "slice", "pad", "resize")
"""Ops whose results have the extents that the text states."""


def _opened(kind: str, draw: Random) -> str:
    """A type of a tensor without its extents, or with one of them."""
    *dims, element = kind[len("tensor<") : -1].split("x")
    kept = draw.randrange(len(dims)) if draw.random() < 0.3 else -1
    return f"tensor<{''.join(f'{n}x' if d == kept else '?x' for d, n in enumerate(dims))}{element}>"


def with_open_extents(lines: Sequence[str], draw: Random) -> tuple[list[str], str]:
    """The lines of the caller, and the function of what was between what it is given and what it shows."""
    caller, body, shown = list[str](), list[str](), list[str]()
    arguments, results = list[tuple[str, str]](), list[tuple[str, str]]()
    types = dict[str, str]()
    for line in lines:
        if given := _GIVEN.fullmatch(line):
            value, kind = given.groups()
            caller.append(line)
            if "x" in kind:
                types[value] = _opened(kind, draw)
                caller.append(f"{value}_open = tensor.cast {value} : {kind} to {types[value]}")
                body.append(f"{value} = tensor.cast {value}_open : {types[value]} to {kind}")
                arguments.append((f"{value}_open", types[value]))
            else:
                arguments.append((value, kind))
        elif found := _SHOWN.fullmatch(line):
            results.append((found[1], found[2]))
            shown.append(line.replace(found[1], f"%made#{len(results) - 1}"))
        elif (op := _OP.fullmatch(line)) and "x" in op[6] and op[2][6:-1] not in _STATED:
            value, word, operands, rest, kinds, kind = op.groups()
            pairs = list(zip(operands.split(", "), kinds.split(", "), strict=True))
            if not any(v in types for v, _ in pairs):
                body.append(line)
                continue
            read = ", ".join(f"{v}_open" if v in types else v for v, _ in pairs)
            held = ", ".join(types.get(v, k) for v, k in pairs)
            types[value] = _opened(kind, draw)
            body.append(f"{value}_open = {word}({read}){rest} : ({held}) -> {types[value]}")
            body.append(f"{value} = tensor.cast {value}_open : {types[value]} to {kind}")
        else:
            body.append(line)
    names, kinds = (", ".join(pair[i] for pair in arguments) for i in range(2))  # of none, too
    made, given = (", ".join(each) for each in zip(*results, strict=True))
    head = ", ".join(f"{name}: {kind}" for name, kind in arguments)
    inside = "\n  ".join([*body, f"return {made} : {given}"])
    function = f"\nfunc.func private @ops({head}) -> ({given}) {{\n  {inside}\n}}"
    call = f"%made:{len(results)} = call @ops({names}) : ({kinds}) -> ({given})"
    return [*caller, call, *shown], function
