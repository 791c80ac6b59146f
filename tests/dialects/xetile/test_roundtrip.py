"""XeTile text: what is printed reads as itself, in custom and in generic form."""

from __future__ import annotations

import pytest

from tilewright.dialects.text import parse_module, print_module

WG = "#xetile.wg_map<sg_layout = [2, 2], sg_data = [16, 16]>"
SCATTERED = "!xetile.tile<8x16xf32, #xetile.tile_attr<scattered = true>>"

# Values that the ops below use, by name.
ARGUMENTS = {
    "%m": "memref<512x256xf16>",
    "%cols": "memref<512x256xf16, strided<[1, 512]>>",
    "%slm": "memref<64x64xf16, 3>",
    "%batch": "memref<4x6x512x256xf16>",
    "%d": "memref<?x?xf16>",
    "%flat": "memref<?xf32>",
    "%address": "i64",
    "%i": "index",
    "%j": "index",
    "%idx": "vector<8x16xindex>",
    "%mask": "vector<8x16xi1>",
    "%on": "vector<32x32xi1>",
    "%w": "vector<8x16xf32>",
    "%t": "!xetile.tile<32x32xf16>",
    "%ts": SCATTERED,
    "%tp": "!xetile.tile<32x16xf16, #xetile.tile_attr<array_length = 2 : i64>>",
    "%ti": "!xetile.tile<32x32xi32>",
    "%a": "vector<32x32xf16>",
    "%b": "vector<32x64xf16>",
    "%c": "vector<32x64xf32>",
    "%n": "vector<32x32xi32>",
    "%row": "vector<1x64xf32>",
}

CANONICAL = [
    "%r = xetile.init_tile %m[8, %i] : memref<512x256xf16> -> !xetile.tile<32x64xf16>",
    "%r = xetile.init_tile %m[%i, %j] {owner = 3 : i32} : memref<512x256xf16> "
    "-> !xetile.tile<8x8xf16>",
    "%r = xetile.init_tile %m[-8, 300] : memref<512x256xf16> -> !xetile.tile<8x8xf16>",
    "%r = xetile.init_tile %cols[0, %i] : memref<512x256xf16, strided<[1, 512]>> "
    "-> !xetile.tile<32x64xf16, #xetile.tile_attr<order = [0, 1]>>",
    "%r = xetile.init_tile %slm[0, 0] : memref<64x64xf16, 3> "
    "-> !xetile.tile<32x64xf16, #xetile.tile_attr<memory_space = 3 : i64>>",
    "%r = xetile.init_tile %slm[0, 0] : memref<64x64xf16, 3> "
    "-> !xetile.tile<32x64xf16, #xetile.tile_attr<memory_space = 3 : i32, scattered = false>>",
    "%r = xetile.init_tile %batch[%i, 5, %j, 8] : memref<4x6x512x256xf16> "
    "-> !xetile.tile<32x64xf16>",
    "%r = xetile.init_tile %d[%i, 0], [%i, 64], [%j, 1] : memref<?x?xf16> "
    "-> !xetile.tile<32x64xf16>",
    "%r = xetile.init_tile %address[%i, 0], [%i, %j], [%j, 1] : i64 -> !xetile.tile<32x64xbf16>",
    f"%r = xetile.init_tile %flat, %idx : memref<?xf32>, vector<8x16xindex> -> {SCATTERED}",
    "%r = xetile.init_tile %m[0, 0] : memref<512x256xf16> -> !xetile.tile<128x64xf16, "
    "#xetile.tile_attr<sg_map = <wi_layout = [2, 8], wi_data = [1, 2]>, "
    "wg_map = <sg_layout = [2, 2], sg_data = [32, 32]>, array_length = 1 : i64>>",
    "%r = xetile.init_tile %m[0, 0] : memref<512x256xf16> "
    "-> !xetile.tile<32x32xf16, #xetile.tile_attr<>>",
    "%r = xetile.load_tile %t : !xetile.tile<32x32xf16> -> vector<32x32xf16>",
    "%r = xetile.load_tile %t {padding = 1.000000e-01 : f32, "
    "l1_hint = #xetile.cache_hint<cached>, l2_hint = #xetile.cache_hint<uncached>, "
    "l3_hint = #xetile.cache_hint<streaming>} : !xetile.tile<32x32xf16> -> vector<32x32xf16>",
    "%r:2 = xetile.load_tile %tp : !xetile.tile<32x16xf16, #xetile.tile_attr<array_length = 2 : "
    "i64>> -> vector<32x16xf16>, vector<32x16xf16>",
    "xetile.store_tile %a, %t : vector<32x32xf16>, !xetile.tile<32x32xf16>",
    "xetile.store_tile %a, %t {l1_hint = #xetile.cache_hint<write_back>} : vector<32x32xf16>, "
    "!xetile.tile<32x32xf16>",
    "xetile.store_tile %n, %ti, %on : vector<32x32xi32>, !xetile.tile<32x32xi32>, vector<32x32xi1>",
    "xetile.prefetch_tile %t : !xetile.tile<32x32xf16>",
    "xetile.prefetch_tile %t locality<1> {l2_hint = #xetile.cache_hint<cached>} : "
    "!xetile.tile<32x32xf16>",
    "%r = xetile.update_tile_offset %t, [%i, 32] : !xetile.tile<32x32xf16>",
    f"%r = xetile.update_tile_offset %ts, %idx : {SCATTERED}, vector<8x16xindex>",
    "%r = xetile.tile_mma %a, %b : vector<32x32xf16>, vector<32x64xf16> -> vector<32x64xf32>",
    f"%r = xetile.tile_mma %a, %b, %c {{wg_map_a = {WG}, wg_map_b = {WG}, wg_map_c = {WG}}} : "
    "vector<32x32xf16>, vector<32x64xf16>, vector<32x64xf32> -> vector<32x64xf32>",
    "%r = xetile.atomic_rmw addi %n, %ti : vector<32x32xi32>, !xetile.tile<32x32xi32> "
    "-> vector<32x32xi32>",
    f"%r = xetile.atomic_rmw addf %w, %ts, %mask : vector<8x16xf32>, {SCATTERED}, "
    "vector<8x16xi1> -> vector<8x16xf32>",
    "%r = xetile.transpose %b, [1, 0] : vector<32x64xf16> -> vector<64x32xf16>",
    f"%r = xetile.transpose %b, [1, 0] {{wg_map = {WG}}} : vector<32x64xf16> -> vector<64x32xf16>",
    "%r = xetile.reduction <add>, %c [0] : vector<32x64xf32> -> vector<1x64xf32>",
    "%r = xetile.reduction <maximumf>, %c [0, 1] : vector<32x64xf32> -> vector<1x1xf32>",
    "%r = xetile.reduction <mul>, %c [1] {reduction_size = 16 : i64} : vector<32x64xf32> "
    "-> vector<32x4xf32>",
    "%r = xetile.broadcast %row [0] : vector<1x64xf32> -> vector<32x64xf32>",
    "%r = xetile.broadcast %c [1] {broadcast_size = 2 : i64} : vector<32x64xf32> "
    "-> vector<32x128xf32>",
    f"%r = xetile.convert_layout %a {{wg_map_result = {WG}, wg_map_source = {WG}}} : "
    "vector<32x32xf16>",
    f"%r = xetile.load %ts, %mask {{padding = 2 : i64}} : {SCATTERED}, vector<8x16xi1> "
    "-> vector<8x16xf32>",
    f"%r = xetile.load %ts : {SCATTERED} -> vector<8x16xf32>",
    f"xetile.store %w, %ts, %mask : vector<8x16xf32>, {SCATTERED}, vector<8x16xi1>",
    f"xetile.store %w, %ts : vector<8x16xf32>, {SCATTERED}",
    f"%r = arith.addf %a, %a {{map = {WG}}} : vector<32x32xf16>",
    f"%r = math.exp %c {{map = {WG}}} : vector<32x64xf32>",
]


def program(*ops: str) -> str:
    arguments = ", ".join(f"{name}: {kind}" for name, kind in ARGUMENTS.items())
    body = "\n".join(f"    {op}" for op in ops)
    return f"module {{\n  func.func @f({arguments}) {{\n{body}\n    return\n  }}\n}}\n"


def body_of(text: str) -> list[str]:
    """The ops of the function, without the return."""
    return [line.strip() for line in text.splitlines()[2:-3]]


@pytest.mark.parametrize("op", CANONICAL)
def test_canonical_form_prints_as_it_reads(op: str) -> None:
    text = print_module(parse_module(program(op)))
    assert body_of(text) == [op]


@pytest.mark.parametrize("op", CANONICAL)
def test_generic_form_reads_as_the_same(op: str) -> None:
    module = parse_module(program(op))
    generic = print_module(module, generic=True)
    assert '"func.func"' in generic
    again = parse_module(generic)
    assert print_module(again) == print_module(module)
    assert print_module(again, generic=True) == generic


def test_properties_among_attributes_are_read() -> None:
    """Older generic text has no `<{...}>`: the properties stand in the dictionary."""
    text = program(
        '%r = "xetile.atomic_rmw"(%n, %ti) {kind = 1 : i64, note = "x", '
        "operandSegmentSizes = array<i32: 1, 1, 0>} : "
        "(vector<32x32xi32>, !xetile.tile<32x32xi32>) -> vector<32x32xi32>"
    ).replace("operandSegmentSizes = array<i32: 1, 1, 0>", "unused")
    assert "atomic_rmw addi" in print_module(parse_module(text))


# Spelling of the RFCs (left) and what it is in canonical form (right).
READ = {
    "init_tile with bare types": (
        "%r = xetile.init_tile %m[%i, %j] : memref<512x256xf16> into tile<8x16xf16>",
        "%r = xetile.init_tile %m[%i, %j] : memref<512x256xf16> -> !xetile.tile<8x16xf16>",
    ),
    "offsets after a comma": (
        "%r = xetile.init_tile %m, [%i, %j] : memref<512x256xf16> into tile<8x16xf16>",
        "%r = xetile.init_tile %m[%i, %j] : memref<512x256xf16> -> !xetile.tile<8x16xf16>",
    ),
    "offsets without brackets": (
        "%r = XeTile.init_tile %m, %i, %j : memref<512x256xf16>, index, index -> tile<8x16xf16>",
        "%r = xetile.init_tile %m[%i, %j] : memref<512x256xf16> -> !xetile.tile<8x16xf16>",
    ),
    "three lists, capital dialect": (
        "%r = XeTile.init_tile %d, [%i, %j], [%i, %j], [%i, 1] : memref<?x?xf16> "
        "into tile<8x16xf16>",
        "%r = xetile.init_tile %d[%i, %j], [%i, %j], [%i, 1] : memref<?x?xf16> "
        "-> !xetile.tile<8x16xf16>",
    ),
    "default order is elided": (
        "%r = xetile.init_tile %m[0, 0] : memref<512x256xf16> -> "
        "!xetile.tile<8x16xf16, #xetile.tile_attr<order = [1, 0]>>",
        "%r = xetile.init_tile %m[0, 0] : memref<512x256xf16> -> "
        "!xetile.tile<8x16xf16, #xetile.tile_attr<>>",
    ),
    "fields in any order, wg for wg_map": (
        "%r = xetile.init_tile %cols[0, 0] : memref<512x256xf16, strided<[1, 512]>> -> "
        "!xetile.tile<32x32xf16, #xetile.tile_attr<order = [0, 1], wg = "
        "#xetile.wg_map<sg_data = [16, 16], sg_layout = [2, 2]>>>",
        "%r = xetile.init_tile %cols[0, 0] : memref<512x256xf16, strided<[1, 512]>> -> "
        "!xetile.tile<32x32xf16, #xetile.tile_attr<wg_map = <sg_layout = [2, 2], "
        "sg_data = [16, 16]>, order = [0, 1]>>",
    ),
    "a map as encoding": (
        f"%r = init_tile %m[0, 0] : memref<512x256xf16> -> !tile<32x32xf16, {WG}>",
        "%r = xetile.init_tile %m[0, 0] : memref<512x256xf16> -> !xetile.tile<32x32xf16, "
        "#xetile.tile_attr<wg_map = <sg_layout = [2, 2], sg_data = [16, 16]>>>",
    ),
    "xe_map as encoding": (
        "%r = init_tile %m[0, 0] : memref<512x256xf16> -> tile<32x32xf16, #xetile.xe_map<wg = "
        f"{WG}, sg = #xetile.sg_map<wi_layout = [2, 8], wi_data = [1, 2]>>>",
        "%r = xetile.init_tile %m[0, 0] : memref<512x256xf16> -> !xetile.tile<32x32xf16, "
        "#xetile.tile_attr<sg_map = <wi_layout = [2, 8], wi_data = [1, 2]>, "
        "wg_map = <sg_layout = [2, 2], sg_data = [16, 16]>>>",
    ),
    "load into": (
        "%r = xetile.load_tile %t {padding = 1.0} : tile<32x32xf16> into vector<32x32xf16>",
        "%r = xetile.load_tile %t {padding = 1.000000e+00 : f64} : !xetile.tile<32x32xf16> "
        "-> vector<32x32xf16>",
    ),
    "store with the tile first": (
        "xetile.store_tile %t, %a : tile<32x32xf16>, vector<32x32xf16>",
        "xetile.store_tile %a, %t : vector<32x32xf16>, !xetile.tile<32x32xf16>",
    ),
    "store with types in the other order": (
        "store_tile %t, %a : vector<32x32xf16> into tile<32x32xf16>",
        "xetile.store_tile %a, %t : vector<32x32xf16>, !xetile.tile<32x32xf16>",
    ),
    "store with types in parentheses": (
        "store_tile %t, %a : (tile<32x32xf16>, vector<32x32xf16>)",
        "xetile.store_tile %a, %t : vector<32x32xf16>, !xetile.tile<32x32xf16>",
    ),
    "prefetch with a comma": (
        "xetile.prefetch_tile %t, {l1_hint = #xetile.cache_hint<cached>} : tile<32x32xf16>",
        "xetile.prefetch_tile %t {l1_hint = #xetile.cache_hint<cached>} : !xetile.tile<32x32xf16>",
    ),
    "update without brackets": (
        "%r = xetile.update_tile_offset %t, %i, %j : tile<32x32xf16>",
        "%r = xetile.update_tile_offset %t, [%i, %j] : !xetile.tile<32x32xf16>",
    ),
    "update with all types": (
        "%r = XeTile.update_tile_offset %t, %i, %j : tile<32x32xf16>, index, index "
        "into tile<32x32xf16>",
        "%r = xetile.update_tile_offset %t, [%i, %j] : !xetile.tile<32x32xf16>",
    ),
    "mma with float and into": (
        f"%r = xetile.tile_mma %a, %b, %c {{{WG}}} : vector<32x32xf16>, vector<32x64xf16>, "
        "vector<32x64xfloat> into vector<32x64xfloat>",
        f"%r = xetile.tile_mma %a, %b, %c {{wg_map_c = {WG}}} : vector<32x32xf16>, "
        "vector<32x64xf16>, vector<32x64xf32> -> vector<32x64xf32>",
    ),
    "mma, C first": (
        "%r = xetile.tile_mma %c, %a, %b : vector<32x64xf32>, vector<32x32xf16>, "
        "vector<32x64xf16> -> vector<32x64xf32>",
        "%r = xetile.tile_mma %a, %b, %c : vector<32x32xf16>, vector<32x64xf16>, "
        "vector<32x64xf32> -> vector<32x64xf32>",
    ),
    "mma, types in the order C A B": (
        "%r = xetile.tile_mma %a, %b, %c : vector<32x64xf32>, vector<32x32xf16>, "
        "vector<32x64xf16> -> vector<32x64xf32>",
        "%r = xetile.tile_mma %a, %b, %c : vector<32x32xf16>, vector<32x64xf16>, "
        "vector<32x64xf32> -> vector<32x64xf32>",
    ),
    "mma with a function type": (
        f"%r = tile_mma %a, %b {{{WG} {WG} {WG}}} : (vector<32x32xf16>, vector<32x64xf16>) "
        "-> vector<32x64xf32>",
        f"%r = xetile.tile_mma %a, %b {{wg_map_a = {WG}, wg_map_b = {WG}, wg_map_c = {WG}}} : "
        "vector<32x32xf16>, vector<32x64xf16> -> vector<32x64xf32>",
    ),
    "atomic with the reduction's name": (
        "%r = xetile.atomic_rmw <add> %n, %ti : vector<32x32xi32>, tile<32x32xi32> "
        "to vector<32x32xi32>",
        "%r = xetile.atomic_rmw addi %n, %ti : vector<32x32xi32>, !xetile.tile<32x32xi32> "
        "-> vector<32x32xi32>",
    ),
    "atomic with a quoted kind": (
        '%r = xetile.atomic_rmw "maxs" %n, %ti : vector<32x32xi32>, !xetile.tile<32x32xi32> '
        "-> vector<32x32xi32>",
        "%r = xetile.atomic_rmw maxs %n, %ti : vector<32x32xi32>, !xetile.tile<32x32xi32> "
        "-> vector<32x32xi32>",
    ),
    "transpose, permutation first": (
        "%r = xetile.transpose [1, 0] %b : vector<32x64xf16> into vector<64x32xf16>",
        "%r = xetile.transpose %b, [1, 0] : vector<32x64xf16> -> vector<64x32xf16>",
    ),
    "transpose without a permutation": (
        f"%r = xetile.transpose %b {{{WG}}} : vector<32x64xf16> into vector<64x32xf16>",
        f"%r = xetile.transpose %b, [1, 0] {{wg_map = {WG}}} : vector<32x64xf16> "
        "-> vector<64x32xf16>",
    ),
    "transpose with source and result maps": (
        "%r = transpose {#xetile.wg_map<sg_layout = [1, 2], sg_data = [32, 32]> "
        f"{WG}}} %b : vector<32x64xf16> -> vector<64x32xf16>",
        f"%r = xetile.transpose %b, [1, 0] {{wg_map = {WG}, wg_map_source = #xetile.wg_map<"
        "sg_layout = [1, 2], sg_data = [32, 32]>} : vector<32x64xf16> -> vector<64x32xf16>",
    ),
    "reduction without a comma": (
        "%r = xetile.reduction <add> %c [1] {#xetile.wg_map<sg_layout = [2, 1], "
        "sg_data = [16, 1]>} : vector<32x64xfloat> into vector<32x1xfloat>",
        "%r = xetile.reduction <add>, %c [1] {wg_map = #xetile.wg_map<sg_layout = [2, 1], "
        "sg_data = [16, 1]>} : vector<32x64xf32> -> vector<32x1xf32>",
    ),
    "reduction_size in brackets, two dictionaries": (
        "%r = xetile.reduction <add> %c [0] {reduction_size = [8]} {#xetile.wg_map<sg_layout = "
        "[1, 2], sg_data = [1, 32]>} : vector<32x64xf32> into vector<4x64xf32>",
        "%r = xetile.reduction <add>, %c [0] {reduction_size = 8 : i64, wg_map = #xetile.wg_map<"
        "sg_layout = [1, 2], sg_data = [1, 32]>} : vector<32x64xf32> -> vector<4x64xf32>",
    ),
    "broadcast with a fat arrow": (
        f"%r = broadcast {{#xetile.wg_map<sg_layout = [1, 2], sg_data = [1, 32]> {WG}}} %row [0] : "
        "vector<1x64xf32> => vector<32x64xf32>",
        f"%r = xetile.broadcast %row [0] {{wg_map = {WG}, wg_map_source = #xetile.wg_map<"
        "sg_layout = [1, 2], sg_data = [1, 32]>} : vector<1x64xf32> -> vector<32x64xf32>",
    ),
    "convert_layout, maps after the operand": (
        "%r = xetile.conv_layout %a {#xetile.wg_map<sg_layout = [4, 1], sg_data = [8, 32]> "
        f"{WG}}} : vector<32x32xf16> into vector<32x32xf16>",
        "%r = xetile.convert_layout %a {wg_map_result = #xetile.wg_map<sg_layout = [4, 1], "
        f"sg_data = [8, 32]>, wg_map_source = {WG}}} : vector<32x32xf16>",
    ),
    "convert_layout, maps before the operand": (
        f"%r = convert_layout {{{WG} #xetile.wg_map<sg_layout = [4, 1], sg_data = [8, 32]>}} %a : "
        "vector<32x32xf16>",
        "%r = xetile.convert_layout %a {wg_map_result = #xetile.wg_map<sg_layout = [4, 1], "
        f"sg_data = [8, 32]>, wg_map_source = {WG}}} : vector<32x32xf16>",
    ),
    "load_gather": (
        f"%r = xetile.load_gather %ts, %mask, {{padding = 1.0}} : {SCATTERED}, vector<8x16xi1>, "
        "vector<8x16xf32>",
        f"%r = xetile.load %ts, %mask {{padding = 1.000000e+00 : f64}} : {SCATTERED}, "
        "vector<8x16xi1> -> vector<8x16xf32>",
    ),
    "store_scatter": (
        f"xetile.store_scatter %w, %mask, %ts : vector<8x16xf32>, vector<8x16xi1>, {SCATTERED}",
        f"xetile.store %w, %ts, %mask : vector<8x16xf32>, {SCATTERED}, vector<8x16xi1>",
    ),
}


@pytest.mark.parametrize("name", READ)
def test_spellings_of_the_rfcs(name: str) -> None:
    written, canonical = READ[name]
    first = print_module(parse_module(program(written)))
    assert body_of(first) == [canonical]
    assert print_module(parse_module(first)) == first


def test_early_transpose_on_load() -> None:
    text = program(
        "%t2 = xetile.init_tile %m[0, 0] : memref<512x256xf16> -> tile<64x32xf16>",
        "%r = XeTile.load_tile %t2 {transpose = [1, 0]} : tile<64x32xf16> into vector<32x64xf16>",
    )
    module = parse_module(text)
    printed = print_module(module)
    assert "transpose = [1, 0]" in printed
    assert print_module(parse_module(printed)) == printed
    loads = [op for op in module.walk() if op.name == "xetile.load_tile"]
    assert loads[0].permutation == (1, 0)  # pyright: ignore[reportAttributeAccessIssue]


def test_operand_ranges() -> None:
    text = program(
        "%o:2 = scf.if %flag -> (index, index) { scf.yield %i, %j : index, index } "
        "else { scf.yield %j, %i : index, index }",
        "%r = xetile.init_tile %m, [%o:2] : memref<512x256xf16> into tile<8x16xf16>",
        "%s = xetile.init_tile %d, [%o:2], [%o:2], [%o#0, 1] : memref<?x?xf16> into tile<8x16xf16>",
    ).replace("@f(", "@f(%flag: i1, ")
    printed = print_module(parse_module(text), renumber=True)
    assert "xetile.init_tile %arg1[%0#0, %0#1] : memref<512x256xf16>" in printed
    assert "[%0#0, %0#1], [%0#0, %0#1], [%0#0, 1] :" in printed
    assert print_module(parse_module(printed), renumber=True) == printed


def test_maps_that_recur_can_be_printed_as_aliases() -> None:
    tile = (
        f"!xetile.tile<32x32xf16, #xetile.tile_attr<wg_map = {WG.removeprefix('#xetile.wg_map')}>>"
    )
    module = parse_module(
        program(
            f"%x = xetile.init_tile %m[0, 0] : memref<512x256xf16> -> {tile}",
            f"%y = xetile.load_tile %x : {tile} -> vector<32x32xf16>",
            f"%z = arith.addf %y, %y {{map = {WG}}} : vector<32x32xf16>",
        )
    )
    text = print_module(module, readable=True)
    assert text.startswith(
        f"#tile_attr = #xetile.tile_attr<wg_map = {WG.removeprefix('#xetile.wg_map')}>\n"
    )
    assert text.count("!xetile.tile<32x32xf16, #tile_attr>") == 2
    assert f"{{map = {WG}}}" in text  # once only: left where it is
    assert print_module(parse_module(text)) == print_module(module)


def test_aliases_are_read() -> None:
    text = (
        "#mp = #wg_map<sg_layout=[2,2], sg_data=[16,16]>\n"
        "!t = !xetile.tile<32x32xf16, #mp>\n"
        "func.func @f(%m: memref<64x64xf16>) {\n"
        "  %t = xetile.init_tile %m[0, 0] : memref<64x64xf16> -> !t\n"
        "  %v = load_tile %t : tile<32x32xf16 #mp> -> vector<32x32xf16>\n"
        "  return\n}\n"
    )
    printed = print_module(parse_module(text))
    assert (
        printed.count("#xetile.tile_attr<wg_map = <sg_layout = [2, 2], sg_data = [16, 16]>>") == 2
    )
