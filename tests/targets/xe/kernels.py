"""Lane-level kernels written by hand: the same algorithms as the lowering makes, for comparison and for tests."""

from __future__ import annotations


def gemm(
    m: int = 4096,
    n: int = 4096,
    k: int = 4096,
    *,
    sg: tuple[int, int] = (8, 4),
    rows: int = 32,
    columns: int = 64,
    prefetch: bool = True,
    lanes: int = 16,
) -> str:
    """XeGPU appendix 1.1 for one lane: a subgroup owns `rows` x `columns` of C, k in steps of 32, f16 -> f32.

    A is one load of two blocks [rows, 16]; B is columns/32 VNNI loads of two blocks [32, 16]; both matrices
    are prefetched three steps ahead, every subgroup its own part.
    """
    sub_m, sub_n = sg
    subgroups = sub_m * sub_n
    wg_m, wg_n = sub_m * rows, sub_n * columns
    mb, nb = rows // 8, columns // 16
    acc = [f"%c{i}_{j}" for i in range(mb) for j in range(nb)]
    names = [f"%a{i}_{j}" for i in range(mb) for j in range(nb)]
    body: list[str] = []
    for q in range(nb // 2):
        body.append(f"%b{q} = xegpu.load_nd %tb[%k, %col{q}] <{{packed}}> : !b -> vector<64xf16>")
    for kk in range(2):
        for i in range(mb):
            body.append(
                f"%sa{i}_{kk} = vector.extract_strided_slice %av {{offsets = [{kk * rows + 8 * i}], "
                f"sizes = [8], strides = [1]}} : vector<{2 * rows}xf16> to vector<8xf16>"
            )
        for j in range(nb):
            body.append(
                f"%sb{j}_{kk} = vector.extract_strided_slice %b{j // 2} {{offsets = "
                f"[{(j % 2) * 32 + kk * 16}], sizes = [16], strides = [1]}} "
                ": vector<64xf16> to vector<16xf16>"
            )
    for kk in range(2):
        for i in range(mb):
            for j in range(nb):
                c = names[i * nb + j] if kk == 0 else f"%d{i}_{j}_0"
                body.append(
                    f"%d{i}_{j}_{kk} = xegpu.dpas %sa{i}_{kk}, %sb{j}_{kk}, {c} : vector<8xf16>, "
                    "vector<16xf16>, vector<8xf32> -> vector<8xf32>"
                )
    stores = [
        f"xegpu.store_nd %r#{i * nb + j}, %tc[%row{i}, %cc{j}] : vector<8xf32>, "
        "!xegpu.tensor_desc<8x16xf32>"
        for i in range(mb)
        for j in range(nb)
    ]
    part = wg_m // subgroups
    fetch = f"""
      %kp = arith.addi %k, %c96 : index
      xegpu.prefetch_nd %pa[%pam, %kp] : !xegpu.tensor_desc<{part}x32xf16>
      %pbk = arith.addi %kp, %pbr : index
      xegpu.prefetch_nd %pb[%pbk, %pbn] : !xegpu.tensor_desc<8x32xf16>"""
    sep = "\n      "
    return f"""
!a = !xegpu.tensor_desc<{rows}x16xf16, #xegpu.block_tdesc_attr<array_length = 2>>
!b = !xegpu.tensor_desc<32x16xf16, #xegpu.block_tdesc_attr<array_length = 2>>
gpu.module @m {{
  gpu.func @gemm(%A: memref<{m}x{k}xf16>, %B: memref<{k}x{n}xf16>, %C: memref<{m}x{n}xf32>) kernel
      attributes {{tilewright.level = "lane", tilewright.subgroups = {subgroups} : i64,
                  tilewright.lanes = {lanes} : i64}} {{
    %c0 = arith.constant 0 : index
    %c8 = arith.constant 8 : index
    %c32 = arith.constant 32 : index
    %c96 = arith.constant 96 : index
    %end = arith.constant {k} : index
    %sn = arith.constant {sub_n} : index
    %pcols = arith.constant {wg_n // 32} : index
    %wm = arith.constant {wg_m} : index
    %wn = arith.constant {wg_n} : index
    %tm = arith.constant {rows} : index
    %tn = arith.constant {columns} : index
    %part = arith.constant {part} : index
    %zero = arith.constant dense<0.0> : vector<8xf32>
    %bi = gpu.block_id x
    %bj = gpu.block_id y
    %sg = gpu.subgroup_id : index
    %si = arith.divui %sg, %sn : index
    %sj = arith.remui %sg, %sn : index
    %m0 = arith.muli %bi, %wm : index
    %n0 = arith.muli %bj, %wn : index
    %mo = arith.muli %si, %tm : index
    %no = arith.muli %sj, %tn : index
    %row = arith.addi %m0, %mo : index
    %col0 = arith.addi %n0, %no : index
    {sep.join(f"%col{q} = arith.addi %col{q - 1}, %c32 : index" for q in range(1, nb // 2))}
    %pao = arith.muli %sg, %part : index
    %pam = arith.addi %m0, %pao : index
    %pr = arith.divui %sg, %pcols : index
    %pc = arith.remui %sg, %pcols : index
    %pbr = arith.muli %pr, %c8 : index
    %pbo = arith.muli %pc, %c32 : index
    %pbn = arith.addi %n0, %pbo : index
    %ta = xegpu.create_nd_tdesc %A : memref<{m}x{k}xf16> -> !a
    %tb = xegpu.create_nd_tdesc %B : memref<{k}x{n}xf16> -> !b
    %tc = xegpu.create_nd_tdesc %C : memref<{m}x{n}xf32> -> !xegpu.tensor_desc<8x16xf32>
    %pa = xegpu.create_nd_tdesc %A : memref<{m}x{k}xf16> -> !xegpu.tensor_desc<{part}x32xf16>
    %pb = xegpu.create_nd_tdesc %B : memref<{k}x{n}xf16> -> !xegpu.tensor_desc<8x32xf16>
    %r:{mb * nb} = scf.for %k = %c0 to %end step %c32 iter_args({", ".join(f"{x} = %zero" for x in names)})
        -> ({", ".join("vector<8xf32>" for _ in acc)}) {{
      %av = xegpu.load_nd %ta[%row, %k] : !a -> vector<{2 * rows}xf16>{fetch if prefetch else ""}
      {sep.join(body)}
      scf.yield {", ".join(f"%d{i}_{j}_1" for i in range(mb) for j in range(nb))}
          : {", ".join("vector<8xf32>" for _ in acc)}
    }}
    %row0 = arith.addi %row, %c0 : index
    {sep.join(f"%row{i} = arith.addi %row{i - 1}, %c8 : index" for i in range(1, mb))}
    %c16 = arith.constant 16 : index
    %cc0 = arith.addi %col0, %c0 : index
    {sep.join(f"%cc{j} = arith.addi %cc{j - 1}, %c16 : index" for j in range(1, nb))}
    {sep.join(stores)}
    gpu.return
  }}
}}
"""


def head(arguments: str, *, subgroups: int = 1, lanes: int = 16) -> str:
    """The beginning of a lane kernel; `foot` ends it."""
    return f"""
gpu.module @m {{
  gpu.func @k({arguments}) kernel attributes {{tilewright.level = "lane",
      tilewright.subgroups = {subgroups} : i64, tilewright.lanes = {lanes} : i64}} {{
    %true = arith.constant true
    %lane = gpu.lane_id
"""


FOOT = """
    gpu.return
  }
}
"""


def fragment(
    shape: tuple[int, int],
    element: str,
    block: tuple[int, int],
    *,
    count: int = 1,
    how: str = "",
    lanes: int = 16,
    at: tuple[int, int] = (0, 0),
) -> tuple[str, int]:
    """A kernel that loads one block and writes every lane's fragment to a row of %out; components of a lane."""
    n = block[0] * block[1] * count // lanes
    array = f", #xegpu.block_tdesc_attr<array_length = {count}>" if count > 1 else ""
    desc = f"!xegpu.tensor_desc<{block[0]}x{block[1]}x{element}{array}>"
    matrix = f"memref<{shape[0]}x{shape[1]}x{element}>"
    return (
        head(f"%a: {matrix}, %out: memref<{lanes * n}x{element}>", lanes=lanes)
        + f"""
    %n = arith.constant {n} : index
    %to = arith.muli %lane, %n : index
    %t = xegpu.create_nd_tdesc %a : {matrix} -> {desc}
    %v = xegpu.load_nd %t[{at[0]}, {at[1]}]{how} : {desc} -> vector<{n}x{element}>
    xegpu.store %v, %out[%to], %true <{{chunk_size = {n} : i64}}>
        : vector<{n}x{element}>, memref<{lanes * n}x{element}>, index, i1"""
        + FOOT
    ), n


def store(shape: tuple[int, int], element: str, block: tuple[int, int], at: tuple[int, int]) -> str:
    """A kernel that stores one block whose lanes hold rows of %values."""
    n = block[0] * block[1] // 16
    desc = f"!xegpu.tensor_desc<{block[0]}x{block[1]}x{element}>"
    return (
        head(f"%values: memref<{16 * n}x{element}>, %a: memref<{shape[0]}x{shape[1]}x{element}>")
        + f"""
    %n = arith.constant {n} : index
    %from = arith.muli %lane, %n : index
    %v = xegpu.load %values[%from], %true <{{chunk_size = {n} : i64}}>
        : memref<{16 * n}x{element}>, index, i1 -> vector<{n}x{element}>
    %t = xegpu.create_nd_tdesc %a : memref<{shape[0]}x{shape[1]}x{element}> -> {desc}
    xegpu.store_nd %v, %t[{at[0]}, {at[1]}] : vector<{n}x{element}>, {desc}"""
        + FOOT
    )


def product(a: str, b: str, c: str, m: int, k: int, *, lanes: int = 16, blocks: bool = True) -> str:
    """One dpas of an m x k by k x lanes block."""
    na, nb = m * k // lanes, k
    packed = " <{packed}>" if a not in ("tf32", "f32") else ""
    load, cast = (a, "")
    if a == "tf32":
        load = "f32"
        cast = f"""
    %av = arith.truncf %af : vector<{na}xf32> to vector<{na}xtf32>
    %bv = arith.truncf %bf : vector<{nb}xf32> to vector<{nb}xtf32>"""
    names = ("%af", "%bf") if cast else ("%av", "%bv")
    second = load if cast else b
    return (
        head(
            f"%a: memref<{m}x{k}x{load}>, %b: memref<{k}x{lanes}x{second}>, %c: memref<{m}x{lanes}x{c}>",
            lanes=lanes,
        )
        + f"""
    %ta = xegpu.create_nd_tdesc %a : memref<{m}x{k}x{load}> -> !xegpu.tensor_desc<{m}x{k}x{load}>
    %tb = xegpu.create_nd_tdesc %b : memref<{k}x{lanes}x{second}> -> !xegpu.tensor_desc<{k}x{lanes}x{second}>
    %tc = xegpu.create_nd_tdesc %c : memref<{m}x{lanes}x{c}> -> !xegpu.tensor_desc<{m}x{lanes}x{c}>
    {names[0]} = xegpu.load_nd %ta[0, 0] : !xegpu.tensor_desc<{m}x{k}x{load}> -> vector<{na}x{load}>
    {names[1]} = xegpu.load_nd %tb[0, 0]{packed} : !xegpu.tensor_desc<{k}x{lanes}x{second}> -> vector<{nb}x{second}>
    %acc = xegpu.load_nd %tc[0, 0] : !xegpu.tensor_desc<{m}x{lanes}x{c}> -> vector<{m}x{c}>{cast}
    %d = xegpu.dpas %av, %bv, %acc : vector<{na}x{a}>, vector<{nb}x{b}>, vector<{m}x{c}> -> vector<{m}x{c}>
    xegpu.store_nd %d, %tc[0, 0] : vector<{m}x{c}>, !xegpu.tensor_desc<{m}x{lanes}x{c}>"""
        + FOOT
    )
