"""A function parsed alone is the function parsed with its file."""

import ast
from pathlib import Path

import numpy as np
import pytest

from tilewright.runtime import source

ODD = '''\
def first(x): return x


class Kinds:
    @property
    def text(self):
        """One line.
no deeper, in a string
        """
        # deeper
# no deeper
        return (self,
1, f"""{self}
x""")

    def continued(self): \\
        return 1 + \\
2

    def followed(self):
        return 2
    other = 3


if True:
    def inside(
        a,
    ):
        return a
else:
    def otherwise(): pass

def long(x):
    return """
a
b
c
d
e
f"""
def last(x):

    return x
'''


def test_a_function_parsed_alone(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    files = sorted(Path(source.__file__).parents[1].rglob("*.py"))
    texts = [files[n].read_text() for n in rng.integers(0, len(files), 8)]
    alone = 0
    for text in (ODD, texts[0].rstrip("\n"), *texts):
        if text is not ODD:  # however long its strings are
            monkeypatch.setattr(source, "_TRIES", 1000)
        lines = text.splitlines(keepends=True)
        for place, wanted in source._functions(ast.parse(text)).items():  # pyright: ignore
            found = source._parsed(lines, place) if isinstance(place, int) else None  # pyright: ignore
            if found is not None:
                alone += 1
                assert ast.dump(found, include_attributes=True) == ast.dump(
                    wanted, include_attributes=True
                )
            else:
                assert isinstance(place, tuple) or text is ODD
    assert alone >= 6
