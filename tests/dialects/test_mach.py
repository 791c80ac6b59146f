"""Text in and out, and the rules, of the last stage's own ops."""

import pytest

from tilewright.diagnostics import TilewrightError
from tilewright.dialects.mach import ATOMIC_KINDS, MACH
from tilewright.dialects.text import parse_module

EVERY_OP = """
func.func @f(%p: !llvm.ptr, %n: index, %o: vector<16xi32>, %x: i32) {
  %q = mach.ptr_add %p, %n : !llvm.ptr
  %v = mach.load %q {alignment = 64 : i64, invariant} : !llvm.ptr -> vector<16xf32>
  mach.store %v, %q {nontemporal} : vector<16xf32>, !llvm.ptr
  %m = mach.mask_first %n : vector<16xi1>
  %w = mach.masked_load %p, %m, %v : !llvm.ptr, vector<16xi1> -> vector<16xf32>
  mach.masked_store %w, %p, %m : vector<16xf32>, !llvm.ptr, vector<16xi1>
  %e = mach.each "x86.vrcp14ps.512"(%v) : (vector<16xf32>) -> vector<16xf32>
  %j = mach.join %v, %w : (vector<16xf32>, vector<16xf32>) -> vector<32xf32>
  %g = mach.gather %p, %o, %m, %v : !llvm.ptr, vector<16xi32>, vector<16xi1> -> vector<16xf32>
  mach.scatter %g, %p, %o, %m : vector<16xf32>, !llvm.ptr, vector<16xi32>, vector<16xi1>
  mach.prefetch %p {locality = 2 : i64, write} : !llvm.ptr
  %old = mach.atomic_rmw "addi" %x, %p {ordering = "monotonic"} : i32, !llvm.ptr
  %was, %won = mach.cmpxchg %p, %x, %old {ordering = "acq_rel", scope = "device"} : !llvm.ptr, i32
  %al = mach.atomic_load %p {ordering = "acquire"} : !llvm.ptr -> i32
  mach.atomic_store %al, %p {ordering = "release"} : i32, !llvm.ptr
  mach.fence {ordering = "seq_cst"}
  %s = mach.alloca {alignment = 64 : i64, bytes = 4096 : i64} : !llvm.ptr
  %i = mach.int_from_ptr %s : !llvm.ptr -> index
  %pp = mach.ptr_from_int %i : index -> !llvm.ptr<1>
  %sb = mach.shared_base {alignment = 1024 : i64} : !llvm.ptr<3>
  %fn = mach.address_of @f : !llvm.ptr
  mach.assert %won, "i is not zero", @failed(%i, %pp) : (index, !llvm.ptr<1>)
  mach.call @rt(%i, %pp) : (index, !llvm.ptr<1>) -> ()
  %r = mach.call_indirect %fn(%i) : !llvm.ptr, (index) -> i32
  %t = mach.instr "x86.amx.tilezero"() : () -> !mach.amx
  %u = mach.instr "x86.amx.tileload"(%p, %i) {params = {rows = 8 : i64}} : (!llvm.ptr, index) -> !mach.amx
  func.return
}
"""


def test_round_trip() -> None:
    module = parse_module(EVERY_OP, "all.mlir")
    text = str(module)
    for line in EVERY_OP.strip().splitlines():
        assert line.strip() in text
    assert str(parse_module(text, "again.mlir")) == text


def test_every_op_is_in_the_round_trip() -> None:
    used = {op.name for op in parse_module(EVERY_OP, "all.mlir").walk()}
    assert {op.name for op in MACH.operations} <= used


@pytest.mark.parametrize("kind", ATOMIC_KINDS)
def test_atomic_kinds(kind: str) -> None:
    t = "f32" if kind.endswith("f") else "i32"
    text = f"""func.func @f(%p: !llvm.ptr, %x: {t}) {{
      %0 = mach.atomic_rmw "{kind}" %x, %p {{ordering = "monotonic"}} : {t}, !llvm.ptr
      func.return }}"""
    parse_module(text, "atomic.mlir")


REFUSED = [
    (
        '%0 = mach.each "x86.vrcp14ps.512"(%v) : (vector<16xf32>) -> vector<8xf32>',
        "operands and result have one shape, not vector<16xf32>, vector<8xf32>",
    ),
    (
        "%0 = mach.join %w, %w : (vector<8xf32>, vector<8xf32>) -> vector<12xf32>",
        "16 components do not make vector<12xf32>",
    ),
    (
        "%0 = mach.load %p {alignment = 48 : i64} : !llvm.ptr -> f32",
        "alignment 48 is not a power of two",
    ),
    ("%0 = mach.load %p : !llvm.ptr -> !mach.amx", "is not a value that memory holds"),
    (
        "%0 = mach.masked_load %p, %m, %w : !llvm.ptr, vector<16xi1> -> vector<8xf32>",
        "the mask has 16 lanes, the value has 8",
    ),
    (
        "mach.masked_store %v, %p, %m8 : vector<16xf32>, !llvm.ptr, vector<8xi1>",
        "the mask has 8 lanes, the value has 16",
    ),
    (
        "%0 = mach.gather %p, %o, %m, %w : !llvm.ptr, vector<16xi32>, vector<16xi1> -> vector<8xf32>",
        "lanes",
    ),
    (
        "%0 = mach.gather %p, %o16, %m, %v : !llvm.ptr, vector<16xi16>, vector<16xi1> -> vector<16xf32>",
        "offsets are index, i32 or i64, not i16",
    ),
    ("mach.prefetch %p {locality = 4 : i64} : !llvm.ptr", "locality 4 is not in 0..3"),
    (
        '%0 = mach.atomic_rmw "twice" %f, %p {ordering = "monotonic"} : f32, !llvm.ptr',
        "unknown kind 'twice'",
    ),
    (
        '%0 = mach.atomic_rmw "addi" %f, %p {ordering = "monotonic"} : f32, !llvm.ptr',
        "kind 'addi' does not apply to f32",
    ),
    ('%0 = mach.atomic_rmw "addf" %f, %p {ordering = "soon"} : f32, !llvm.ptr', "ordering 'soon'"),
    (
        '%0 = mach.atomic_rmw "addf" %f, %p {ordering = "acquire", scope = "city"} : f32, !llvm.ptr',
        "scope 'city'",
    ),
    (
        '%0 = mach.atomic_load %p {ordering = "release"} : !llvm.ptr -> i32',
        "a load cannot be 'release'",
    ),
    (
        'mach.atomic_store %f, %p {ordering = "acquire"} : f32, !llvm.ptr',
        "a store cannot be 'acquire'",
    ),
    ('mach.fence {ordering = "monotonic"}', "orders nothing"),
    (
        "%0 = mach.alloca {alignment = 64 : i64, bytes = 0 : i64} : !llvm.ptr",
        "0 bytes is not positive",
    ),
    ("%0:2 = mach.call @f() : () -> (i32, i32)", "at most one result"),
    (
        'mach.instr "x86.pause"() {params = {n = 1.0 : f32}} : () -> ()',
        "must be an integer or a string",
    ),
]


@pytest.mark.parametrize("line, message", REFUSED)
def test_refused(line: str, message: str) -> None:
    text = f"""func.func @f(%p: !llvm.ptr, %v: vector<16xf32>, %w: vector<8xf32>, %m: vector<16xi1>,
        %m8: vector<8xi1>, %o: vector<16xi32>, %o16: vector<16xi16>, %f: f32) {{
      {line}
      func.return
    }}"""
    with pytest.raises(TilewrightError) as caught:
        parse_module(text, "bad.mlir")
    assert message in str(caught.value)
    assert "bad.mlir:3:" in str(caught.value)
