"""The completed upstream dialects: every op reads, prints and verifies in MLIR's forms."""

from __future__ import annotations

import pytest

from tilewright.diagnostics import TilewrightError
from tilewright.dialects.text import parse_module, print_module

# Ops in the form in which they print.
HOST = """\
%mem = gpu.alloc host_shared () : memref<8x8xf32>
%dyn = gpu.alloc (%n, %n) : memref<?x?xf32>
gpu.memcpy %mem, %A : memref<8x8xf32>, memref<8x8xf32>
%t0 = gpu.wait async
%slm, %t1 = gpu.alloc async [%t0] () : memref<8xf32, 3>
%t2 = gpu.memcpy async [%t1] %mem, %A : memref<8x8xf32>, memref<8x8xf32>
%t3 = gpu.memset async [%t2] %mem, %f : memref<8x8xf32>, f32
gpu.memset %mem, %f : memref<8x8xf32>, f32
%t4 = gpu.launch_func async [%t3] @m::@k blocks in (%n, %n, %n) threads in (%n, %n, %n) \
dynamic_shared_memory_size %i args(%mem : memref<8x8xf32>, %n : index, %i : i32, %f : f32)
gpu.launch_func @m::@plain clusters in (%n, %n, %n) blocks in (%n, %n, %n) threads in (%n, %n, %n)
gpu.launch_func @m::@plain blocks in (%q, %q, %q) threads in (%q, %q, %q) : i64
%t5 = gpu.dealloc async [%t4] %mem : memref<8x8xf32>
gpu.wait [%t5]
gpu.dealloc %dyn : memref<?x?xf32>
gpu.host_register %u : memref<*xf32>
%cast = memref.cast %A : memref<8x8xf32> to memref<*xf32>
%cast2 = memref.cast %A : memref<8x8xf32> to memref<?x8xf32>
%space = memref.memory_space_cast %A : memref<8x8xf32> to memref<8x8xf32, 1>
%pointer = memref.extract_aligned_pointer_as_index %A : memref<8x8xf32> -> index
%view = memref.transpose %A (d0, d1) -> (d1, d0) : memref<8x8xf32> to \
memref<8x8xf32, strided<[1, 8]>>
memref.copy %A, %A : memref<8x8xf32> to memref<8x8xf32>
%rank = memref.rank %A : memref<8x8xf32>
%aligned = memref.assume_alignment %A, 16 : memref<8x8xf32>
%old = memref.atomic_rmw addf %f, %A[%n, %n] : (f32, memref<8x8xf32>) -> f32
memref.prefetch %A[%n, %n], read, locality<3>, data : memref<8x8xf32>
%global = memref.get_global @c : memref<2x2xf32>
%sum = index.add %n, %n
%rest = index.remu %n, %n
%down = index.floordivs %n, %n
%wide = index.castu %n : index to i64
%signed = index.casts %q : i64 to index
%less = index.cmp slt(%n, %sum)
%four = index.constant 4
%yes = index.bool.constant true
%bits = index.sizeof
%ui = arith.index_castui %n : index to i64
%rem = arith.remf %f, %f : f32
"""

DEVICE = """\
%bx = gpu.block_id x
%ty = gpu.thread_id y upper_bound 64
%gz = gpu.grid_dim z
%bd = gpu.block_dim x
%gi = gpu.global_id x
%sg = gpu.subgroup_id : index
%ns = gpu.num_subgroups : index
%ss = gpu.subgroup_size : index
%lane = gpu.lane_id
gpu.barrier
gpu.printf "%d\\0A", %i : i32
%sv, %valid = gpu.shuffle xor %f, %i, %i : f32
%red = gpu.subgroup_reduce add %f : (f32) -> f32
%part = gpu.subgroup_reduce maxsi %i cluster(size = 8, stride = 2) : (i32) -> i32
%all = gpu.all_reduce add %f uniform {
} : (f32) -> f32
%dsm = gpu.dynamic_shared_memory : memref<?xi8, #gpu.address_space<workgroup>>
%inf = arith.constant dense<0xFF800000> : vector<8xf32>
%infs = arith.constant dense<[0x7C00, 0xFC00]> : vector<2xf16>
%one = arith.constant dense<1> : vector<8xi32>
%lt = arith.cmpi slt, %one, %one : vector<8xi32>
%scalar = arith.cmpi eq, %i, %i : i32
%flt = arith.cmpf olt, %inf, %inf fastmath<fast> : vector<8xf32>
%sel = arith.select %lt, %one, %one : vector<8xi1>, vector<8xi32>
%sel1 = arith.select %scalar, %one, %one : vector<8xi32>
%ext = arith.extsi %one : vector<8xi32> to vector<8xi64>
%zext = arith.extui %one : vector<8xi32> to vector<8xi64>
%low = arith.trunci %one : vector<8xi32> to vector<8xi8>
%idx = arith.index_cast %one : vector<8xi32> to vector<8xindex>
%fp = arith.sitofp %one : vector<8xi32> to vector<8xf32>
%ufp = arith.uitofp %one : vector<8xi32> to vector<8xf16>
%int = arith.fptosi %fp : vector<8xf32> to vector<8xi16>
%uint = arith.fptoui %fp : vector<8xf32> to vector<8xi16>
%tf = arith.truncf %fp : vector<8xf32> to vector<8xtf32>
%f8 = arith.truncf %fp : vector<8xf32> to vector<8xf8E4M3FN>
%fr = arith.truncf %fp toward_zero fastmath<contract> : vector<8xf32> to vector<8xf16>
%fe = arith.extf %fr fastmath<contract> {map = 1 : i64} : vector<8xf16> to vector<8xf32>
%ff = arith.extf %tf : vector<8xtf32> to vector<8xf32>
%sc = vector.shape_cast %inf : vector<8xf32> to vector<2x4xf32>
%tr = vector.transpose %sc, [1, 0] : vector<2x4xf32> to vector<4x2xf32>
%sl = vector.extract_strided_slice %sc {offsets = [0, 1], sizes = [2, 2], strides = [1, 1]} : \
vector<2x4xf32> to vector<2x2xf32>
%row = vector.extract_strided_slice %sc {offsets = [1], sizes = [1], strides = [1]} : \
vector<2x4xf32> to vector<1x4xf32>
%ins = vector.insert_strided_slice %sl, %sc {offsets = [0, 1], strides = [1, 1]} : \
vector<2x2xf32> into vector<2x4xf32>
%step = vector.step : vector<8xindex>
%zero = arith.constant dense<0.000000e+00> : vector<2xf32>
%mr = vector.multi_reduction <add>, %sc, %zero {map = 1 : i64} [1] : vector<2x4xf32> to vector<2xf32>
%whole = vector.multi_reduction <maximumf>, %sc, %f [0, 1] : vector<2x4xf32> to f32
%cm = vector.constant_mask [1, 2] : vector<2x4xi1>
%in = vector.interleave %zero, %zero : vector<2xf32> -> vector<4xf32>
%even, %odd = vector.deinterleave %in : vector<4xf32> -> vector<2xf32>
%made = vector.from_elements %f, %whole, %f, %f : vector<2x2xf32>
%parts:4 = vector.to_elements %made : vector<2x2xf32>
vector.print %zero : vector<2xf32>
vector.print str "hello"
vector.print punctuation <newline>
%gather = vector.gather %A[%n, %n] [%one], %lt, %inf : memref<8x8xf32>, vector<8xi32>, \
vector<8xi1>, vector<8xf32> into vector<8xf32>
vector.scatter %A[%n, %n] [%one], %lt, %inf : memref<8x8xf32>, vector<8xi32>, vector<8xi1>, \
vector<8xf32>
%con = vector.contract {indexing_maps = [#map, #map1, #map2], iterator_types = \
["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %sc, %tr, %sl : \
vector<2x4xf32>, vector<4x2xf32> into vector<2x2xf32>
%loop = scf.for %k = %n to %n step %n iter_args(%acc = %zero) -> (vector<2xf32>) {
  scf.yield %acc : vector<2xf32>
}
%r0, %r1 = scf.parallel (%p2) = (%n) to (%n) step (%n) init (%n, %n) -> (index, index) {
  scf.reduce(%p2, %n : index, index) {
  ^bb0(%ra: index, %rb: index):
    scf.reduce.return %ra : index
  }, {
  ^bb0(%rc: index, %rd: index):
    scf.reduce.return %rd : index
  }
}
scf.parallel (%p0, %p1) = (%n, %n) to (%n, %n) step (%n, %n) {
  gpu.barrier
}
scf.forall (%f0, %f1) in (%n, 4) {
  gpu.barrier
}
scf.forall (%g0) = (2) to (%n) step (2) {
  gpu.barrier
} {mapping = [1]}
scf.while : () -> () {
  scf.condition(%scalar)
} do {
  scf.yield
}
%count = scf.while (%w = %n) : (index) -> index {
  scf.condition(%scalar) %w : index
} do {
^bb0(%now: index):
  scf.yield %now : index
}
"""


def indent(text: str, spaces: int) -> str:
    return "".join(" " * spaces + line + "\n" for line in text.splitlines())


def program(host: str = "", device: str = "") -> str:
    return (
        "module attributes {gpu.container_module} {\n"
        '  memref.global "private" constant @c : memref<2x2xf32> = '
        "dense<[[0x7F800000, 1.000000e+00], [2.000000e+00, 3.000000e+00]]> "
        "{alignment = 64 : i64}\n"
        '  memref.global "private" @declared : memref<4xf32>\n'
        "  memref.global @empty : memref<4xf32> = uninitialized\n"
        "  func.func private @print(memref<*xf32>)\n"
        "  func.func @host(%A: memref<8x8xf32>, %u: memref<*xf32>, %n: index, %i: i32, %q: i64, "
        "%f: f32) {\n"
        + indent(host, 4)
        + "    return\n  }\n"
        + "  gpu.module @m attributes {note} {\n"
        "    gpu.func @k(%A: memref<8x8xf32> {llvm.noalias}, %n: index, %i: i32, %f: f32) "
        "workgroup(%s : memref<4xf32, 3>) private(%p : memref<4xf32, 5>) kernel "
        "attributes {gpu.known_block_size = array<i32: 1, 1, 1>} {\n"
        + indent(device, 6)
        + "      gpu.return\n    }\n"
        + "    gpu.func @plain() kernel {\n      gpu.return\n    }\n"
        + "    gpu.func @helper(%x: f32) -> f32 {\n      gpu.return %x : f32\n    }\n"
        + "  }\n}\n"
    )


MAPS = """\
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
#map2 = affine_map<(d0, d1, d2) -> (d0, d1)>
"""


def test_printed_form_is_the_read_form() -> None:
    text = MAPS + program(HOST, DEVICE)
    assert print_module(parse_module(text)) == text


def test_generic_form_round_trips() -> None:
    module = parse_module(MAPS + program(HOST, DEVICE))
    generic = print_module(module, generic=True)
    assert '"gpu.launch_func"' in generic and '"vector.step"' in generic
    assert print_module(parse_module(generic)) == print_module(module)


# Other spellings -> what they print as.
SPELLINGS = {
    "%x = gpu.block_id  x": "%x = gpu.block_id x",
    "%x = gpu.lane_id : index": "%x = gpu.lane_id",
    "%r = scf.for %k = %n to %n step %n iter_args (%a = %f) -> f32 { scf.yield %a : f32 }": (
        "%r = scf.for %k = %n to %n step %n iter_args(%a = %f) -> (f32) {"
    ),
    "scf.for %k = %i to %i step %i : i32 { gpu.barrier }": (
        "scf.for %k = %i to %i step %i : i32 {"
    ),
    "%r = scf.parallel (%k) = (%n) to (%n) step (%n) init (%f) -> f32 { "
    "scf.reduce(%f : f32) { ^bb0(%a: f32, %b: f32): %c = arith.addf %a, %b : f32 "
    "scf.reduce.return %c : f32 } }": (
        "%r = scf.parallel (%k) = (%n) to (%n) step (%n) init (%f) -> f32 {"
    ),
    "%x = memref.transpose %A (i, j) -> (j, i) : memref<8x8xf32> to "
    "memref<8x8xf32, strided<[1, 8]>>": (
        "%x = memref.transpose %A (d0, d1) -> (d1, d0) : memref<8x8xf32> to "
        "memref<8x8xf32, strided<[1, 8]>>"
    ),
    'gpu.printf "%d %f" %i, %f : i32, f32': 'gpu.printf "%d %f", %i, %f : i32, f32',
    "scf.while () : () -> () {\n  %t = arith.constant true\n  scf.condition(%t)\n} do {\n  scf.yield\n}": (
        "scf.while : () -> () {\n  %t = arith.constant true\n  scf.condition(%t)\n} do {\n  scf.yield\n}"
    ),
    "%x = gpu.alloc() : memref<8xf32, 0>": "%x = gpu.alloc () : memref<8xf32>",
}


@pytest.mark.parametrize("written", SPELLINGS)
def test_other_spellings(written: str) -> None:
    expected = SPELLINGS[written]
    assert indent(expected, 6) in print_module(parse_module(program("", written)))


ILLEGAL = {
    "%x = arith.extsi %i : i32 to i16": "Destination bit-width must be larger",
    "%x = arith.sitofp %f : f32 to f64": "operand must be an integer",
    "%v = arith.constant dense<1> : vector<8xi32>\n"
    "%x = arith.sitofp %v : vector<8xi32> to vector<4xf32>": "must have the same shape",
    "%v = arith.constant dense<1> : vector<8xi32>\n%x = arith.cmpi sgtt, %v, %v : vector<8xi32>": (
        "unknown comparison 'sgtt'"
    ),
    "%x = vector.step : vector<2x4xindex>": "result must be a 1-D vector of index",
    "%v = vector.step : vector<8xindex>\n"
    "%x = vector.shape_cast %v : vector<8xindex> to vector<3x3xindex>": (
        "number of elements must match, got 8 and 9"
    ),
    "%v = vector.constant_mask [2, 2] : vector<2x4xi1>\n"
    "%x = vector.transpose %v, [0, 0] : vector<2x4xi1> to vector<2x2xi1>": (
        "duplicate position index"
    ),
    "%v = vector.constant_mask [2, 2] : vector<2x4xi1>\n"
    "%x = vector.extract_strided_slice %v {offsets = [0, 3], sizes = [2, 2], strides = [1, 1]} : "
    "vector<2x4xi1> to vector<2x2xi1>": "slice [3, 5) is outside the dimension of 4",
    "%v = vector.constant_mask [2, 5] : vector<2x4xi1>": "out of bounds",
    "%v = vector.constant_mask [0, 4] : vector<2x4xi1>": "expected all mask dim sizes to be zeros",
    "%x = memref.cast %A : memref<8x8xf32> to memref<4x?xf32>": "cast incompatible",
    "%y, %z = gpu.shuffle sideways %f, %i, %i : f32": "expected `xor`",
    "%x = gpu.subgroup_reduce sum %f : (f32) -> f32": "operand expected",
    "%x = index.cmp slt(%n, %f)": "used with type index",
    "%x = arith.constant dense<0x1FF800000> : vector<8xf32>": "too large for f32",
    "gpu.memcpy %A, %s : memref<8x8xf32>, memref<4xf32, 3>": "incompatible shape",
    'gpu.printf "%f", %s : memref<4xf32, 3>': "must be an integer, an index or a float",
    "scf.while () : (i32) -> () {\n scf.condition(%t)\n} do {\nscf.yield\n}": "expected 0 operand types but had 1",
    "scf.forall (%a, %b) in (%n) { gpu.barrier }": "as many lower bounds as upper bounds",
}


@pytest.mark.parametrize("ops", ILLEGAL)
def test_illegal_ops_are_refused(ops: str) -> None:
    with pytest.raises(TilewrightError) as caught:
        parse_module(program("", ops), "k.mlir")
    assert ILLEGAL[ops].lower() in caught.value.message.lower()
    assert caught.value.location is not None


def test_python_constructors_build_what_verifies() -> None:
    from xdsl.dialects import arith
    from xdsl.dialects.builtin import ModuleOp, VectorType, f32, i1, i32

    from tilewright.dialects.upstream import index, vector

    step = vector.StepOp(VectorType(i32, [8]))
    less = arith.CmpiOp(step.result, step.result, "slt")
    assert less.result.type == VectorType(i1, [8])
    chosen = arith.SelectOp(less, step.result, step.result)
    floats = arith.SIToFPOp(chosen, VectorType(f32, [8]))  # pyright: ignore[reportArgumentType]
    ordered = arith.CmpfOp(floats, floats, "olt")
    negated = arith.NegfOp(floats, arith.FastMathFlagsAttr("fast"))
    assert "fastmath" in negated.properties and "fastmath" not in negated.attributes
    cast = vector.ShapeCastOp(negated, VectorType(f32, [2, 4]))
    moved = vector.TransposeOp(cast, [1, 0])
    part = vector.ExtractStridedSliceOp(moved, [0, 0], [2, 2])
    back = vector.InsertStridedSliceOp(part, moved, [2, 0])
    four = index.ConstantOp(4)
    ops = [step, less, chosen, floats, ordered, negated, cast, moved, part, back, four]
    ops += [index.BINARY[0](four, four), index.CmpOp("eq", four.result, four.result)]
    module = ModuleOp(ops)
    module.verify()
    assert print_module(parse_module(print_module(module))) == print_module(module)
