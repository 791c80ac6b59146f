"""Runs the examples of this folder against numpy, and tells what became of each graph.

python examples/graph/run.py [NAME ...] [--text]
"""

import argparse
import importlib
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
NAMES = sorted(p.stem for p in HERE.glob("*.py") if p.stem != "run")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=NAMES, help=", ".join(NAMES))
    parser.add_argument("--text", action="store_true", help="also print graph and kernels")
    options = parser.parse_args()
    sys.path.insert(0, str(HERE))
    for name in options.names:
        example = importlib.import_module(name)
        arrays = example.arrays(np.random.default_rng())
        graph = example.graph()
        run = graph.compile()
        got = run(*arrays)
        want = example.expected(
            *(a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays)
        )
        error = np.linalg.norm(got - want) / np.linalg.norm(want)
        sizes = run.sizes(*arrays)
        print(f"{graph.explain(**sizes)}\n  error {error:.1e} against float64\n")
        if options.text:
            print(f"{graph}\n{run.source(**sizes)}")
        assert error < 1e-5


if __name__ == "__main__":
    main()
