"""What to change, for messages about text that only say what is wrong.

The wording of most messages is that of the public implementations; the hint stands beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from tilewright.dialects.unknown import UNKNOWN, UNKNOWN_ATTRIBUTE, hint_for_op

_DISTRIBUTION = (
    "in every dimension sg_data divides the extent, and the extent and sg_layout x sg_data divide one another; "
    "inst_data divides sg_data, lane_layout x lane_data divides inst_data"
)
_HINTS: tuple[
    tuple[str, str], ...
] = (  # compiled where there is a message, not by every program that starts
    (r"cannot distribute|evenly distributed|not distributable", _DISTRIBUTION),
    (
        r"layout rank to match tensor rank",
        "a layout has one number per dimension; #xegpu.slice<.., dims = [..]> leaves dimensions out",
    ),
    (
        r"expected at least one of sg_layout",
        "sg_data alone does not say how many subgroups there are: give sg_layout too",
    ),
    (r"to be a permutation", "order names every dimension once, the fastest first: [1, 0]"),
    (
        r"invalid l[123]_hint",
        "loads: cached, uncached, streaming, read_invalidate; stores: cached, uncached, write_back, write_through",
    ),
    (r"Mismatched ranks between offsets", "one offset per dimension of the descriptor's base"),
    (
        r"used with type .* previously used or defined with type",
        "a value has one type: either the name is another value's, or one of the two types is wrong",
    ),
    (
        r"value %\S+ is used but not defined",
        "a value is seen from its definition to the end of its block",
    ),
    (
        r"does not dominate this use",
        "a value is seen by the ops after it in its block, in their regions, and in the blocks that are reached "
        "only through its own",
    ),
    (
        r"an op or an alias is expected here|a name is expected behind",
        "MLIR text is a list of ops, func.func @main() { .. }, and of aliases, #name = .. and !name = ..; "
        "a comment begins with //",
    ),
    (
        r"a type of elements is expected here",
        "f16, bf16, tf32, f32, f64, f8E4M3FN, f8E5M2, f8E8M0FNU, i1 to i64, index",
    ),
    (r"invalid dim \(\d+\) in slice", "dims count the dimensions of the layout inside, from 0"),
    (
        r"inferred input/output operand|differ in the extent of d\d",
        "a loop of the op has one extent, whatever operand its indexing map reads it from: change the type of one "
        "of these operands, or the maps (operands count from #0 through ins, then outs)",
    ),
    (
        r"requires the same type",
        "give both the same type: vector.broadcast and vector.shape_cast change a shape, arith.extf, arith.truncf "
        "and their like the element type",
    ),
    (
        r"incompatible A, B and output sizes|K-dimension mismatch",
        "A is m x k, B is k x n, the result m x n: transpose the operand that lies the other way, or load it so",
    ),
    (
        r"doesn't match the tile's shape|is not consistent with tensor descriptor",
        "write the shape of the tile or descriptor into the value's type, or make the tile of the value's shape",
    ),
    (
        r"element type of the tile, .*, doesn't match",
        "make the tile of the array's element type, and convert the value that is loaded or stored",
    ),
    (
        r"Incorrect transpose permutation",
        "give the result the extents of the source in the order of the permutation: [1, 0] makes 16x8 of 8x16",
    ),
    (
        r"broadcast dimension of source must|dimension mismatch \(",
        "a dimension is repeated if it has one element, and new ones come in front: bring the source to such a "
        "shape first, with a reduction or vector.shape_cast",
    ),
    (
        r"is not reduced: result has",
        "name the dimension among those that are reduced, or give the result the source's extent there",
    ),
    (
        r"number of elements must match|expected \d+ elements of",
        "write a shape with as many elements into the result's type",
    ),
    (
        r"SSA value %\S+ is already defined",
        "a name is one value's within a function: give one of the two another name",
    ),
    (r"Redefinition of symbol", "functions and globals of a module have different names"),
    (
        r"does not reference a valid global|could not be found in symbol table",
        "the module defines what is named: memref.global @g : memref<..>, func.func private @f(..) -> ..",
    ),
    (
        r"operand type mismatch: expected|incorrect number of operands for callee",
        "a call has the types of the function's own line",
    ),
    (
        r"in dense literal|[Ee]xpected \d+ elements from the type|inconsistent ranks between elements",
        "write as many elements as the type has, row by row in brackets, or one for all of them: dense<0.0>",
    ),
    (
        r"not in space",
        "a map names its dimensions in parentheses and its symbols in brackets: affine_map<(d0)[s0] -> (d0 + s0)>",
    ),
    (
        r"non-affine expression",
        "an affine map adds, and multiplies and divides by constants and symbols; arith computes anything",
    ),
    (
        r"but is not a terminator",
        "a block ends with its terminator: return in a function, scf.yield, affine.yield or linalg.yield in loops",
    ),
    (
        r"needs outs\(",
        "results are written to what outs names: linalg.exp ins(%x : memref<8xf32>) outs(%y : memref<8xf32>)",
    ),
    (
        r"expected results of the types written",
        "a structured op has a result for each tensor of its outs, of that type, and none for a memref",
    ),
    (r"runs out-of-bounds", "offset + (size - 1) x stride is less than the extent"),
    (
        r"has \d+ results, but was given",
        "as many names stand before the = as the op has results, or one for all: %r:2 = ..",
    ),
    (
        r"expected a memref type, got tensor",
        "ops of memref are for memory: tensor.extract, tensor.dim and their like are for tensors, and "
        "bufferization.to_buffer makes memory of one",
    ),
    (
        r"'arith\.\w+i' op does not take b?f\d|'arith\.\w+f' op does not take (i\d|index)",
        "arith has an op for each kind of number: addf, mulf, cmpf, maximumf for floats, addi, muli, cmpi, maxsi "
        "for integers and index",
    ),
    (
        r"offsets, one per dimension of the source|expected two offsets",
        "write an offset for each dimension, 0 where there is none: %a[0, %j]",
    ),
    (
        r"cannot accumulate products of",
        "products of floats are added up in f32 or their own type, of i8 in i32: give the result such a type",
    ),
    (
        r"value of element type .* doesn't match the tile's element type",
        "convert the value first, with arith.extf, arith.truncf or their like, or make the tile of its type",
    ),
    (
        r"permutation index out of bounds|reduction dimensions .* don't fit",
        "dimensions count from 0: a vector of rank 2 has 0, its rows, and 1, its columns",
    ),
    (r"expect order to be", "[1, 0] has rows one after the other in memory, [0, 1] columns"),
    (
        r"should have the same element type with the source",
        "make the descriptor of the array's element type, and convert the value that is loaded or stored",
    ),
    (r"[MN]-dimension mismatch", "A is m x k, B is k x n, the result m x n"),
    (
        r"source and mem_desc have same size in bits",
        "allocate as many bytes as the mem_desc has elements times their size: 16x64xf16 takes memref<2048xi8, 3>",
    ),
    (
        r"value elements must match chunk size|Mask should match value",
        "16 offsets with chunk_size = 2 give vector<16x2xf16>, and their mask is vector<16xi1>",
    ),
    (
        r"padding of \S+ elements must",
        "write a bare number, padding = 1 or padding = 1.0, or one of the elements' type, 1.0 : f32",
    ),
    (r"the text ends", "each { has its }, and each ( its )"),
    (
        r"has no data of dense_resource",
        "mlir-opt left the data out (--mlir-elide-elementsattrs-if-larger) or lost it: print the module without "
        "that flag, or write dense<..>",
    ),
    (r"is nested too deeply", "put what is inside into functions of its own"),
    (
        r"its layout is not a strided form",
        "mlir-opt --normalize-memrefs puts such a layout into the extents and the subscripts",
    ),
    (
        r"a number has no such type",
        "a number is of an integer, float or index type; one for all elements is dense<1.0> : vector<4xf32>",
    ),
    (
        r"between the extents of a shape",
        "memref<4x8xf32>: extents, or ? for what is open, and the elements' type",
    ),
    (r"expected a part of shape", "write the sizes of the part into the type of its tensor"),
    (
        r"to have the same types as the function output types|expected (the body|\S+) to yield",
        "give back a value for each result that the function or the op has, of its type",
    ),
    (
        r"must yield its loop-carried variables|must have an else block if defining values",
        "values that leave a region are yielded on every way through it: scf.yield %x : f32",
    ),
    (
        r"^'scf\.condition' op hands",
        "what scf.condition passes on is what the loop gives back and the second region takes",
    ),
    (
        r"expected primary expression|sum of the dimensions and symbols of its map",
        "a map's operands are its dimensions, then its symbols: affine_map<(d0)[s0] -> (d0 + s0)>(%i)[%n]",
    ),
    (
        r"expected an index for each dimension|operand count does not equal memref dynamic",
        "a subscript for each dimension, and a size for each ? of the type: memref.alloc(%n) : memref<?x4xf32>",
    ),
    (
        r"reassociation indices must be contiguous",
        "each dimension of the longer shape is named once, in order: [[0, 1], [2]]",
    ),
    (
        r"is out of range for type|is limited to \d+ bits|an extent has 63 bits|is beyond what the element type",
        "write a number that the type holds, or a wider type",
    ),
    (r"value is not valid for integer type", "1 is an integer, 1.0 a float: 1.0 : f32"),
    (
        r"of dimension \d+ is out of range|[Mm]ask value \S+ out of range|reduction dimension out of range",
        "elements and dimensions count from 0",
    ),
    (r"duplicate position index", "a permutation names every dimension once: [1, 0]"),
    (
        r"unsupported reduction type",
        "add, mul, minnumf, maxnumf, minimumf, maximumf take floats; add, mul, minsi, minui, maxsi, maxui, and, "
        "or, xor take integers",
    ),
    (
        r"requires a projected permutation_map|expects the in_bounds attr of same rank",
        "a map names some of the array's dimensions, each once, or 0 for one that is repeated, and in_bounds says "
        "of each dimension of the vector whether it ends within the array",
    ),
    (
        r"expected iterator_types|as many non-induction variable region arguments",
        "indexing_maps has a map for each operand, iterator_types a word for each dimension of these maps, the "
        "body an argument for each operand",
    ),
    (
        r"expected a padding_value",
        "linalg.pack %x padding_value(%z : f32) .. fills the last tile",
    ),
    (
        r"expected \d+ elements along dimension",
        "an extent of the result is that of the source and what is added below and above",
    ),
    (r"^'gpu\.launch_func' op hands", "args(..) names a value for each argument of the kernel"),
    (r"end of file reached before closing string", "a string ends on its line, with a quote"),
    (r"unexpected character", "a comment begins with //, a string stands in quotes"),
    (
        r"a name is expected after",
        "%x is a value, @f a symbol, ^bb0 a block, #map and !t are aliases",
    ),
    (
        r"successor|missing block declarations|re-declaration of block",
        "cf.br and its like name blocks of their own region, ^name:, and pass what their arguments take",
    ),
    (
        r"undefined symbol alias|[Aa]lias ",
        "an alias stands before its first use, once: #map = affine_map<..>",
    ),
    (
        r"[Ee]xpected \d+ (operand|region|result)s?, but got|property '\w+' expected",
        "mlir-opt --mlir-print-op-generic shows what the generic form of such an op holds",
    ),
    (
        r"bit-width must be|must have equal bitwidths|must be an integer or index or a vector of it",
        "extsi, extui, extf go to wider types, trunci, truncf to narrower ones, bitcast to one as wide, fptosi and "
        "sitofp between floats and integers, index_cast between integers and index",
    ),
    (
        r"mismatch between rank and layout",
        "a layout has a stride for each dimension: memref<4x8xf32, strided<[8, 1]>>",
    ),
    (
        r"does not match type .* of the global",
        "memref.get_global has the type of the global's own line",
    ),
    (
        r"^attribute expected",
        "strided<[8, 1]>, affine_map<..>, 3 and #gpu.address_space<workgroup> are attributes",
    ),
    (
        r"dimension of result must have size 1",
        "xetile.reduction keeps the rank: 8x16 by [1] gives 8x1",
    ),
    (r"expected a result of layout", "write that layout into the result's type"),
    (
        r"TensorDesc must have the same element type",
        "loads and stores do not convert: arith.truncf and arith.extf do",
    ),
    (
        r"input type must be (wider|narrower)",
        "truncf rounds to a type of fewer bits, extf goes to one of more",
    ),
    (
        r"expected a mask of i1",
        "xegpu.load %m[%offsets], %mask : .., vector<16xindex>, vector<16xi1> -> ..; of all elements, "
        "arith.constant dense<true> : vector<16xi1>",
    ),
    (r"must reside in share memory", "shared memory is memory space 3: memref<2048xi8, 3>"),
    (
        r"expected attribute \S+ but got",
        "an operand has the type that the op takes, here the first of the two: convert it",
    ),
    (
        r"unknown comparison",
        "integers compare signed (slt) or unsigned (ult), floats by arith.cmpf (olt)",
    ),
    (
        r"must match loop-carried variable types|instead of \w+\.yield",
        "a loop's body ends with scf.yield of what the next round gets, of the types of iter_args",
    ),
    (r"expected target_layout", "convert_layout %v <{input_layout = #a, target_layout = #b}>"),
    (
        r"destination type .* is incompatible with source type",
        "the result has the source's element type and the dimensions that are not reduced, and so has what is added",
    ),
    (r"^[Ee]xpected ':'", "an op ends with its types: arith.addi %a, %b : i32"),
)
_UNDEFINED = re.compile(r"undefined symbol alias '([^']+)'")
_NEXT_OP = re.compile(r"[%}\"^]|[a-z]\w*\.\w|return\b|call\b")


_RULES = (
    (r"unexpected attribute (.*)", r"does not take \1 here"),
    (r"(.*) should be of base attribute (\w+)", r"expected a \2 type, got \1"),
    (
        r"attribute (.*) expected from variable '\w+', but got (.*)",
        r"requires the same type: \1 and \2 differ",
    ),
    (r"'(.*)' is not a valid \w+", r"unknown word '\1'"),
)


def rule_in_plain_words(text: str) -> str:
    """What a constraint of stock xDSL says, for someone who does not know what an attribute is."""
    for pattern, words in _RULES:
        if found := re.fullmatch(pattern, text):
            return found.expand(words)
    return text


def in_plain_words(message: str, text: str, start: int, end: int) -> tuple[str, int, int]:
    """A message of the stock parser and the stretch of `text` that it is about, where the parser says or shows little.

    It shows an unknown name behind the name, and tells of text that it cannot read by what it had hoped for.
    """
    for pattern in (UNKNOWN, UNKNOWN_ATTRIBUTE, _UNDEFINED):
        if (unknown := pattern.search(message)) is not None:
            at = text.rfind(unknown[1], 0, max(start, end))
            return (message, start, end) if at < 0 else (message, at, at + len(unknown[1]))
    if re.search(r"[Ee]xpected (shape type|vector element type)", message):
        return "a type of elements is expected here", start, end
    if message.strip() == "in block definition":
        rest = text[start:].strip()
        return (
            ("an op, a block or '}' is expected here" if rest else "the text ends in a region"),
            start,
            end,
        )
    if re.search(
        r"(?i)(shape mismatch in dense|elements from the type|inconsistent ranks)", message
    ):
        at = text.rfind("dense", 0, start)  # the parser has read on to what is behind the type
        return (message, at, at + len("dense")) if at >= 0 else (message, start, end)
    if message.startswith("Invalid type given for integer or float"):
        behind = len(text[:start].rstrip())
        at = text.rfind(":", 0, behind) + 1
        at += len(text[at:behind]) - len(text[at:behind].lstrip())
        return f"a number has no such type as {text[at:behind]}", at, behind
    behind = start - len(re.findall(r"(?<!\s)(?:\s|//.*\n)*\Z", text[:start])[0])
    if (
        "\n" in text[behind:start]
        and message.lower().startswith("expected")
        and _NEXT_OP.match(text, start)
    ):
        return message, behind - 1, behind  # what is missing is missing there
    if re.search(r"[Ee]xpected 'x' in shape delimiter", message):
        return "an 'x' is expected between the extents of a shape and its elements", start, end
    if "after {first_char}" in message:  # as stock xDSL prints it
        return f"a name is expected after '{text[start : start + 1]}'", start, end
    if message.lower().startswith("could not parse entire input"):
        return "an op or an alias is expected here", start, end
    return message, start, end


def hint_for(message: str, names: Iterable[str] = (), rest: str = "") -> str | None:
    """What could be changed; None where the message says it. `names` are those of all known ops, `rest` is the text
    behind what the message is about.
    """
    return hint_for_op(message, names, rest) or next(
        (hint for pattern, hint in _HINTS if re.search(pattern, message)), None
    )
