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
