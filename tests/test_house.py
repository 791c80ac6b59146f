"""The rules of the house, held by reading the source: arrows one way, one idea a file, public names explained."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from tilewright import diagnostics, layout, ops
from tilewright.targets import base

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "tilewright"

GROUND = {
    "arguments", "cache", "diagnostics", "dtypes", "forks", "frames", "frozen", "knobs", "observer",
    "prepacked", "printed", "private", "records", "rules",
}  # fmt: skip
"""What every part may import."""
BELOW: dict[str, set[str]] = {
    **{name: set() for name in GROUND},
    "layout": set(),
    "uarch": {"layout"},
    "dialects": {"layout"},
    "passes": {"dialects", "layout", "uarch"},
    "codegen": {"dialects", "layout", "uarch"},
    "reference": {"dialects", "layout", "passes"},
    "lang": {"dialects", "runtime", "targets"},
    # A graph becomes text of the tile language, which the kernel machinery compiles; costs come from the planner.
    "graph": {"dialects", "lang", "passes", "runtime", "targets", "tilewright", "uarch"},
    "runtime": {"codegen", "dialects", "passes", "reference", "targets"},
    "targets": {"codegen", "dialects", "layout", "passes", "reference", "uarch"},
    "ops": {"runtime", "targets", "tilewright"},
    "torch": {"ops"},
    "tilewright": {"lang", "runtime"},
}
"""What each part of the package may import besides; the command line, `tools`, imports all."""


def imports(path: Path) -> Iterator[str]:
    """The modules of this package that a file names, inside of functions too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.split(".")[0] == "tilewright")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tilewright"):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                at = ROOT.joinpath(*inner.split("."))
                yield inner if at.is_dir() or at.with_suffix(".py").exists() else str(node.module)


def part_of(module: str) -> str:
    words = module.split(".")
    return words[1] if len(words) > 1 else "tilewright"


FILES = sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    words = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(words[:-1] if words[-1] == "__init__" else words)


def test_arrows_go_one_way():
    wrong: list[str] = []
    for path in FILES:
        own = part_of(name_of(path))
        if own in ("tools", "__main__"):
            continue
        allowed = BELOW[own] | GROUND | {own}
        for module in imports(path):
            if part_of(module) not in allowed:
                wrong.append(f"{path.relative_to(ROOT)} imports {module}")
    assert not wrong, "\n".join(wrong)


def test_a_target_never_imports_another_target():
    families = {p.name for p in (PACKAGE / "targets").iterdir() if (p / "__init__.py").exists()}
    wrong: list[str] = []
    for path in FILES:
        own = name_of(path).split(".")
        if own[1:2] != ["targets"] or len(own) < 3 or own[2] not in families:
            continue
        for module in imports(path):
            words = module.split(".")
            if words[1:2] == ["targets"] and len(words) > 2 and words[2] in families - {own[2]}:
                wrong.append(f"{path.relative_to(ROOT)} imports {module}")
    assert not wrong, "\n".join(wrong)


def test_a_target_is_a_package_and_a_line():
    """Outside of `targets/` no target's package is imported, and what a target is called decides nothing."""
    families = "|".join(re.escape(name) for name in base.TARGETS)
    package = re.compile(rf"tilewright\.targets\.({families})\b")
    named = re.compile(rf"({families}|xe-\w+|sm_\w*|x86-64)(-.*)?")
    wrong: list[str] = []
    for path in FILES:
        own = name_of(path)
        if part_of(own) in ("targets", "uarch"):
            continue
        wrong += [f"{own} imports {module}" for module in imports(path) if package.match(module)]
        for node in ast.walk(ast.parse(path.read_text())):
            compared: list[ast.expr] = []
            if isinstance(node, ast.Compare):
                compared = [node.left, *node.comparators]
            elif isinstance(node, ast.MatchValue):
                compared = [node.value]
            elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "startswith":
                compared = node.args
            for each in compared:
                parts = each.elts if isinstance(each, ast.Tuple | ast.List | ast.Set) else [each]
                for part in parts:
                    value = part.value if isinstance(part, ast.Constant) else None
                    if isinstance(value, str) and named.fullmatch(value):
                        wrong.append(f"{own}:{part.lineno} asks for {value!r}")
    assert not wrong, "\n".join(wrong)


def test_no_file_is_too_long():
    for folder in ("tilewright", "tests", "benchmarks", "examples", "docs"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            lines = path.read_text().count("\n")
            assert lines <= 500, (
                f"{path.relative_to(ROOT)} has {lines} lines: one idea has 500 at most"
            )


def test_a_run_of_the_tests_repeats():
    """No test draws but from the run's seed, and none judges by seconds (tests.calls counts instead)."""
    others = re.compile(r"^import secrets|default_rng\(\)|\bprocess_time\(", re.MULTILINE)
    for path in sorted((ROOT / "tests").rglob("*.py")):
        found = path != Path(__file__) and others.search(path.read_text())
        assert not found, f"{path.relative_to(ROOT)}: {found[0]}"


def test_no_chain_of_classes_is_deep():
    """A class that needs the state of many others below it is an idea cut into files: functions share a state."""
    bases: dict[str, list[str]] = {}
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                names = (ast.unparse(base).partition("[")[0] for base in node.bases)
                bases.setdefault(node.name, []).extend(name.rpartition(".")[2] for name in names)

    def depth(name: str, above: frozenset[str] = frozenset()) -> int:
        if name not in bases or name in above:
            return 0
        return 1 + max((depth(base, above | {name}) for base in bases[name]), default=0)

    deep = {name: n for name in bases if (n := depth(name)) > 4}
    assert not deep, f"chains of more than 4 classes: {deep}"


def test_every_file_says_what_it_is():
    for path in [*FILES, *sorted((ROOT / "tests").rglob("*.py"))]:
        text = path.read_text()
        assert not text.strip() or ast.get_docstring(ast.parse(text)), path.relative_to(ROOT)


# Public names -------------------------------------------------------------------------------------

SHARED = {"wg_map", "sg_map", "l1_hint", "l2_hint", "l3_hint"}
"""Parameters that mean the same everywhere: the language reference explains them once."""


def public() -> Iterator[tuple[str, Any]]:
    for module in (tw, ops, layout):
        for name in module.__all__:
            yield f"{module.__name__}.{name}", getattr(module, name)
    for module in (base, diagnostics):
        for name, each in vars(module).items():
            if not name.startswith("_") and getattr(each, "__module__", "") == module.__name__:
                yield f"{module.__name__}.{name}", each


PUBLIC = {
    name: each for name, each in public() if inspect.isfunction(each) or inspect.isclass(each)
}


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_are_explained(name: str):
    """A function's docstring names every parameter; every public member of a class has a docstring."""
    each = PUBLIC[name]
    text = inspect.getdoc(each)
    assert text, f"{name} has no docstring"
    if inspect.isfunction(each):
        if name.startswith(("tilewright.diagnostics.", "tilewright.targets.")):
            return
        for parameter in inspect.signature(each).parameters:
            known = parameter in SHARED or re.search(rf"\b{parameter}\b", text)
            assert known, f"the docstring of {name} does not say what {parameter} is"
        return
    for member, value in vars(each).items():
        function = value.fget if isinstance(value, property) else value
        if not member.startswith("_") and inspect.isfunction(function):
            assert inspect.getdoc(getattr(each, member)), f"{name}.{member} has no docstring"


def test_errors_are_named_where_operations_raise_them():
    for name in ops.__all__:
        assert "Raises LaunchError" in (inspect.getdoc(getattr(ops, name)) or ""), name
