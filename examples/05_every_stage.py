"""Look at a kernel on its way down: every stage has a name and is text.

    python examples/05_every_stage.py [--full]

`compile` needs no arrays: `tw.spec` gives their shapes. The same texts come from the command line:
`tilewright compile FILE.py:KERNEL --args ... --emit STAGE`.
"""

import argparse

import tilewright as tw


@tw.kernel
def scale_rows(X, S, Y):
    m = tw.program_id(0) * 32
    s = tw.load_tile(tw.init_tile(S, [m, 0], (32, 1)))
    x = tw.load_tile(tw.init_tile(X, [m, 0], (32, 64)))
    tw.store_tile(x * s, tw.init_tile(Y, [m, 0], (32, 64)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="print whole stages")
    full = parser.parse_args().full
    matrix, column = tw.spec((1024, 64), tw.f32), tw.spec((1024, 1), tw.f32)
    compiled = scale_rows.compile(matrix, column, matrix, target="cpu")
    for name, text in {**compiled.ir, **compiled.asm}.items():
        lines = text.strip().splitlines()
        shown = lines if full else lines[:6]
        print(f"--- {name}: {len(lines)} lines", *shown, sep="\n")
        if len(shown) < len(lines):
            print("    ...")
    for remark in compiled.remarks:
        print("remark:", remark)


if __name__ == "__main__":
    main()
