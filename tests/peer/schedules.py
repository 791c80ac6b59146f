# ruff: noqa: E501
"""Random tensor programs of linalg, and random steps of MLIR's transform dialect and passes on their text."""

from __future__ import annotations

import re
from random import Random

import numpy as np

from tests.passes.linalg.programs import Array, program
from tests.peer.mlir_opt import Refused, mlir_opt

ANY = "!transform.any_op"
EXTENTS = (1, 2, 3, 4, 5, 8, 9, 12)
ONE_SHOT = "one-shot-bufferize{bufferize-function-boundaries allow-return-allocs-from-loops}"


class Source:
    """A function of tensors of small whole numbers, on which every op is exact in f32."""

    def __init__(self, random: Random) -> None:
        self.random, self.lines, self.count = random, list[str](), 0
        self.inputs: dict[str, Array] = {}
        self.matrices: list[tuple[str, int, int]] = []
        self.given(random.choice(EXTENTS), random.choice(EXTENTS))

    def fresh(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def define(self, text: str, rows: int, columns: int) -> tuple[str, int, int]:
        name, kind = self.fresh(), f"tensor<{rows}x{columns}xf32>"
        self.lines.append(f"{name} = {text.replace('TYPE', kind)}")
        self.matrices.append((name, rows, columns))
        return self.matrices[-1]

    def given(self, rows: int, columns: int) -> tuple[str, int, int]:
        name = f"g{len(self.inputs)}"
        whole = [self.random.randint(-3, 3) for _ in range(rows * columns)]
        self.inputs[name] = np.array(whole, np.float32).reshape(rows, columns)
        memory = f"memref<{rows}x{columns}xf32>"
        return self.define(
            f"bufferization.to_tensor %{name} restrict : {memory} to TYPE", rows, columns
        )

    def empty(self, rows: int, columns: int) -> str:
        return self.define("tensor.empty() : TYPE", rows, columns)[0]

    def filled(self, rows: int, columns: int) -> str:
        into = self.empty(rows, columns)
        self.matrices.pop()
        name = self.define(
            f"linalg.fill ins(%one : f32) outs({into} : TYPE) -> TYPE", rows, columns
        )[0]
        self.matrices.pop()
        return name

    def generic(
        self,
        source: tuple[str, int, int],
        body: str,
        shape: tuple[int, int],
        map: str = "i, j",
        more: str = "",
    ) -> None:
        """One element of each of another: `%a`, and of a second operand `%c`."""
        name, rows, columns = source
        into = self.empty(*shape)
        self.matrices.pop()
        second, types, extra, given = "", "", "", ""
        if more:
            other = self.given(rows, 1)
            second, types = f", {other[0]}", f", tensor<{rows}x1xf32>"
            extra, given = "affine_map<(i, j) -> (i, 0)>, ", "%c: f32, "
        self.define(
            f'linalg.generic {{indexing_maps = [affine_map<(i, j) -> ({map})>, {extra}affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}} '
            f"ins({name}{second} : tensor<{rows}x{columns}xf32>{types}) outs({into} : TYPE) {{\n^bb0(%a: f32, {given}%b: f32):\n{body}\n}} -> TYPE",
            *shape,
        )

    def clamp(self) -> None:
        source = self.matrices[-1]
        body = "%p = arith.minimumf %a, %three : f32\n%q = arith.maximumf %p, %minus : f32\nlinalg.yield %q : f32"
        self.generic(source, body, source[1:])

    def step(self) -> None:
        source = self.random.choice(self.matrices[-3:])
        name, rows, columns = source
        kind = f"tensor<{rows}x{columns}xf32>"
        match self.random.choice(
            ("product", "product", "number", "row", "turned", "sum", "pad", "part", "packed", "add")
        ):
            case "product":
                n = self.random.choice(EXTENTS)
                other, into = self.given(columns, n)[0], self.filled(rows, n)
                self.define(
                    f"linalg.matmul ins({name}, {other} : {kind}, tensor<{columns}x{n}xf32>) outs({into} : TYPE) -> TYPE",
                    rows,
                    n,
                )
                self.clamp()
            case "number":
                body = f"%i = linalg.index {self.random.randint(0, 1)} : index\n%n = arith.index_cast %i : index to i32\n%x = arith.sitofp %n : i32 to f32\n%y = arith.addf %a, %x : f32\nlinalg.yield %y : f32"
                self.generic(source, body, (rows, columns))
                self.clamp()
            case "row":
                self.generic(
                    source,
                    "%y = arith.subf %a, %c : f32\nlinalg.yield %y : f32",
                    (rows, columns),
                    more="row",
                )
                self.clamp()
            case "turned":
                self.generic(source, "linalg.yield %a : f32", (columns, rows), map="j, i")
            case "sum":
                into = self.filled(1, rows)
                self.lines += [
                    f"%s{self.count} = tensor.collapse_shape {into} [[0, 1]] : tensor<1x{rows}xf32> into tensor<{rows}xf32>",
                    f"%r{self.count} = linalg.reduce {{ arith.{self.random.choice(('addf', 'maximumf'))} }} ins({name} : {kind}) outs(%s{self.count} : tensor<{rows}xf32>) dimensions = [1]",
                ]
                self.define(
                    f"tensor.expand_shape %r{self.count} [[0, 1]] output_shape [{rows}, 1] : tensor<{rows}xf32> into TYPE",
                    rows,
                    1,
                )
                self.clamp()
            case "pad":
                low, high = ([self.random.randint(0, 2) for _ in "xy"] for _ in "lh")
                self.define(
                    f"tensor.pad {name} low{low} high{high} {{\n^bb0(%i: index, %j: index):\n  tensor.yield %one : f32\n}} : {kind} to TYPE",
                    rows + low[0] + high[0], columns + low[1] + high[1],
                )  # fmt: skip
            case "part":
                at = [self.random.randrange(n) for n in (rows, columns)]
                size = [
                    self.random.randint(1, n - o) for n, o in zip((rows, columns), at, strict=True)
                ]
                self.define(
                    f"tensor.extract_slice {name}{at} {size} [1, 1] : {kind} to TYPE",
                    size[0],
                    size[1],
                )
            case "packed":
                tiles = [self.random.choice((2, 4)) for _ in "xy"]
                form = f"tensor<{-(-rows // tiles[0])}x{-(-columns // tiles[1])}x{tiles[0]}x{tiles[1]}xf32>"
                how = f"inner_dims_pos = [0, 1] inner_tiles = {tiles}"
                self.lines += [
                    f"%e{self.count} = tensor.empty() : {form}",
                    f"%p{self.count} = linalg.pack {name} padding_value(%one : f32) {how} into %e{self.count} : {kind} -> {form}",
                ]
                packed, into = f"%p{self.count}", self.empty(rows, columns)
                self.matrices.pop()
                self.define(
                    f"linalg.unpack {packed} {how} into {into} : {form} -> TYPE", rows, columns
                )
            case _:
                into, other = self.empty(rows, columns), self.given(rows, columns)[0]
                self.define(
                    f"linalg.add ins({name}, {other} : TYPE, TYPE) outs({into} : TYPE) -> TYPE",
                    rows,
                    columns,
                )
                self.clamp()


def source(random: Random) -> str:
    """A program that prints one or two of its tensors."""
    made = Source(random)
    for _ in range(random.randint(1, 4)):
        made.step()
    head = [
        f"%{name} = arith.constant {n}.0 : f32"
        for name, n in (("one", 1), ("three", 3), ("minus", -3))
    ]
    body, shown = [*head, *made.lines], dict[str, str]()
    for n, (name, rows, columns) in enumerate([made.matrices[-1], random.choice(made.matrices)]):
        if name not in body and "tensor.empty" not in next(
            x for x in body if x.startswith(f"{name} =")
        ):
            memory = f"memref<{rows}x{columns}xf32>"
            body.append(
                f"%o{n} = bufferization.to_buffer {name} : {memory.replace('memref', 'tensor')} to {memory}"
            )
            shown[f"o{n}"] = memory
    return mlir_opt(program("\n  ".join(body), made.inputs, shown))


# --- Steps ------------------------------------------------------------------------------------------------------


def scheduled(text: str, body: str) -> str:
    """The text after a sequence of the transform dialect."""
    whole = re.sub(
        r"^module \{",
        "module attributes {transform.with_named_sequence} {",
        text.strip(),
        flags=re.MULTILINE,
    )
    sequence = (
        f"transform.named_sequence @__transform_main(%m: {ANY}) {{\n{body}\ntransform.yield\n}}\n}}"
    )
    after = mlir_opt(
        whole[:-1] + sequence,
        pipeline="transform-interpreter,test-transform-dialect-erase-schedule",
    )
    return after.replace("module attributes {transform.with_named_sequence} {", "module {")


def _matched(text: str, op: str, random: Random) -> tuple[str, str, int]:
    """Lines that find the ops of a name, the handle of one of them, and where that stands."""
    places = [m.start() for m in re.finditer(rf"(?<![\w.]){re.escape(op)}\b", text)]
    if not places:
        raise Refused(f"no {op}")
    n, all_ = (
        len(places),
        f'%all = transform.structured.match ops{{["{op}"]}} in %m : ({ANY}) -> {ANY}\n',
    )
    if n == 1:
        return all_, "%all", places[0]
    which = random.randrange(n)
    kinds = ", ".join([ANY] * n)
    return (
        f"{all_}%each:{n} = transform.split_handle %all : ({ANY}) -> ({kinds})\n",
        f"%each#{which}",
        places[which],
    )


def lowered_packs(text: str) -> str:
    for name, results in (
        ("pack", ("tensor.pad", "tensor.expand_shape", "linalg.transpose")),
        (
            "unpack",
            ("tensor.empty", "linalg.transpose", "tensor.collapse_shape", "tensor.extract_slice"),
        ),
    ):
        if f"linalg.{name}" in text:
            kind, kinds = (
                f'!transform.op<"linalg.{name}">',
                ", ".join(f'!transform.op<"{r}">' for r in results),
            )
            text = scheduled(
                text,
                f'%p = transform.structured.match ops{{["linalg.{name}"]}} in %m : ({ANY}) -> {kind}\n%q:{len(results)} = transform.structured.lower_{name} %p : ({kind}) -> ({kinds})',
            )
    return text


STEPS = (
    "tile_using_for H tile_sizes SIZES : (A) -> (A, LOOPS)",
    "tile_using_for H tile_sizes SIZES interchange = ORDER : (A) -> (A, LOOPS)",
    "tile_using_forall H tile_sizes SIZES : (A) -> (A, A)",
    "tile_using_forall H num_threads THREADS : (A) -> (A, A)",
    "fuse H tile_sizes SIZES : (A) -> (A, LOOPS)",
    "generalize H : (A) -> A",
    "interchange H iterator_interchange = ORDER : (A) -> A",
    "vectorize H vector_sizes THREADS : A",
    "vectorize H : A",
    'pad H pad_to_multiple_of THREADS {padding_values=[0.0 : f32, 0.0 : f32, 0.0 : f32], padding_dimensions=EVERY, nofold_flags=[1, 0], copy_back_op="linalg.copy"} : (A) -> (A, A, A)',
    "split H after 2 {dimension = 0} : A",
    'pack H packed_sizes = THREADS : (A) -> (!transform.op<"linalg.generic">)',
    "split_reduction H {split_factor = 2, insert_split_dimension = 0} : (A) -> (A, A, A, A)",
    "tile_reduction_using_for H by tile_sizes = REDUCED : (A) -> (A, A, A, A)",
)
OPS = ("linalg.matmul", "linalg.generic", "linalg.generic", "linalg.reduce", "linalg.add")
PASSES = (
    "canonicalize", "cse", "func.func(linalg-generalize-named-ops)", "linalg-fuse-elementwise-ops",
    "linalg-fold-unit-extent-dims", "func.func(linalg-block-pack-matmul{block-factors=4,4,4})", "eliminate-empty-tensors",
    "linalg-morph-ops{named-to-category}", "func.func(scf-forall-to-for)", "func.func(scf-for-loop-peeling)", "loop-invariant-code-motion",
)  # fmt: skip
MEMORY_PASSES = (
    "func.func(convert-linalg-to-affine-loops)", "func.func(convert-linalg-to-parallel-loops)", "func.func(affine-loop-fusion)",
    "func.func(affine-loop-tile{tile-size=4})", "func.func(affine-loop-unroll{unroll-factor=3})", "func.func(affine-super-vectorize{virtual-vector-size=4})",
    "func.func(affine-scalrep)", "func.func(affine-parallelize{parallel-reductions max-nested=2})",
    "func.func(scf-parallel-loop-tiling{parallel-loop-tile-sizes=2,3})", "func.func(scf-forall-to-parallel)", "fold-memref-alias-ops",
    "func.func(lower-vector-mask,convert-vector-to-scf)", "func.func(lower-vector-multi-reduction)", "func.func(buffer-loop-hoisting)", "canonicalize", "cse",
    "func.func(convert-linalg-to-loops)", "sccp", "func.func(math-uplift-to-fma)", "expand-strided-metadata", "lower-affine", "func.func(scf-for-to-while)",
    "func.func(scf-parallel-loop-fusion)", "func.func(convert-vector-to-scf{full-unroll})", "func.func(buffer-hoisting)", "int-range-optimizations", "inline",
    "buffer-deallocation-pipeline", "func.func(affine-loop-unroll-jam{unroll-jam-factor=2})", "func.func(affine-loop-coalescing)", "normalize-memrefs",
    "func.func(affine-data-copy-generate{generate-dma=true fast-mem-space=1})", "func.func(affine-data-copy-generate{generate-dma=false fast-mem-space=0})",
    "func.func(affine-raise-from-memref)", "func.func(promote-buffers-to-stack)", "convert-scf-to-cf", "lift-cf-to-scf", "func.func(scf-for-loop-range-folding)",
    "func.func(affine-super-vectorize{virtual-vector-size=4,2 test-fastest-varying=1,0})", "func.func(affine-super-vectorize{virtual-vector-size=8 vectorize-reductions})",
    "func.func(scf-parallel-loop-specialization)", "func.func(affine-expand-index-ops-as-affine)", "test-vector-linearize", "arith-int-range-narrowing{int-bitwidths-supported=32,64}",
    "loop-invariant-subset-hoisting", "func.func(test-vector-to-vector-lowering)", "func.func(test-vector-transfer-flatten-patterns)", "remove-dead-values", "func.func(math-expand-ops)",
)  # fmt: skip

GPU_PASSES = (
    "func.func(gpu-launch-sink-index-computations)", "gpu-kernel-outlining", "lower-affine", "canonicalize", "cse", "func.func(gpu-async-region)",
    "gpu-decompose-memrefs", "convert-scf-to-cf", "expand-strided-metadata",
)  # fmt: skip


def on_gpu(text: str, random: Random) -> str:
    """Its parallel loops as launches of kernels, after passes on these; Refused where it has none."""
    sizes = ",".join(str(random.choice((1, 2, 3, 4, 8))) for _ in range(random.randint(1, 3)))
    bounds = random.choice(("", " no-min-max-bounds=true"))
    tiled = f"scf-parallel-loop-tiling{{parallel-loop-tile-sizes={sizes}{bounds}}},"
    loops = (
        f"linalg-generalize-named-ops,convert-linalg-to-parallel-loops,{random.choice(('', tiled))}"
    )
    text = mlir_opt(
        lowered_packs(text),
        pipeline=f"{ONE_SHOT},func.func({loops}gpu-map-parallel-loops,convert-parallel-loops-to-gpu)",
    )
    if "gpu.launch" not in text:
        raise Refused("no gpu.launch")
    for each in random.choices(GPU_PASSES, k=random.randint(0, 6)):
        # One that has tokens is outlined already.
        if "async" not in each or "gpu.launch_func" in text:
            text = mlir_opt(text, pipeline=each)
    return text


def step(text: str, random: Random) -> str:
    """The text after one step; Refused where it does not take that."""
    if random.random() < 0.3:
        return mlir_opt(text, pipeline=random.choice(PASSES))
    op, how = random.choice(OPS), random.choice(STEPS)
    found, handle, place = _matched(text, op, random)
    kinds = {"linalg.matmul": "ppr", "linalg.reduce": "pr", "linalg.add": "pp"}.get(op)
    if kinds is None:
        stated = re.search(r"iterator_types = \[([^]]*)\]", text[place:])
        assert stated is not None
        kinds = "".join(k[0] for k in re.findall("parallel|reduction", stated[1]))
    sizes = [random.choice((0, 1, 2, 3, 4)) for _ in kinds]
    tiled = sum(n > 0 for n in sizes)
    said = {
        "SIZES": str(sizes), "THREADS": str([random.choice((1, 2, 4, 5)) for _ in kinds]), "EVERY": str([*range(len(kinds))]),
        "ORDER": str(random.sample(range(len(kinds)), len(kinds))), "REDUCED": str([2 * (k == "r") for k in kinds]),
        "LOOPS": ", ".join([ANY] * tiled), "H": handle,
    }  # fmt: skip
    if "LOOPS" in how and not tiled:
        raise Refused("no loops")
    line = re.sub(r"\b(SIZES|THREADS|EVERY|ORDER|REDUCED|LOOPS|H)\b", lambda m: said[m[1]], how)
    line = re.sub(r"\bA\b", ANY, line)
    results = 0 if "->" not in line else line.rpartition("->")[2].count("!transform")
    bound = "" if not results and not how.startswith("split H") else f"%x:{results or 1} = "
    return scheduled(text, f"{found}{bound}transform.structured.{line}")
