"""Reports: place, excerpt, caret, rule, hint, notes."""

from xdsl.dialects.builtin import (
    CallSiteLoc,
    FileLineColLoc,
    FusedLoc,
    IntAttr,
    NameLoc,
    NoneAttr,
    StringAttr,
    UnknownLoc,
)
from xdsl.dialects.test import TestOp

from tilewright.diagnostics import (
    CompileError,
    LaunchError,
    Location,
    Note,
    callers_of,
    error_at,
    location_of,
)


def place(line, column, file="f.py"):
    return FileLineColLoc(StringAttr(file), IntAttr(line), IntAttr(column))


def test_a_whole_report():
    error = CompileError(
        "shapes differ",
        location=Location("k.py", 12, 11, 21, "    acc = mma(a, b)"),
        rule="they are equal",
        hint="transpose one",
        notes=[Note("called here", Location("k.py", 30, 5, 8, "    run()"))],
    )
    assert str(error) == "\n".join(
        [
            "k.py:12:11: error: shapes differ",
            "   12 |     acc = mma(a, b)",
            "      |           ^~~~~~~~~",
            "rule: they are equal",
            "hint: transpose one",
            "note: k.py:30:5: called here",
            "   30 |     run()",
            "      |     ^~~",
        ]
    )


def test_carets_under_wide_and_combining_characters():
    excerpt = Location("k.py", 1, 4, 6, "f(行列, x)").excerpt()
    assert excerpt.splitlines()[1] == "      |     ^~~"
    excerpt = Location("k.py", 1, 3, 4, "\ta\u0301b").excerpt()
    assert excerpt.splitlines()[1] == "      | \t ^"
    excerpt = Location("k.py", 1, 5001, 5003, "-" * 5000 + "ab" + "-" * 5000).excerpt()
    line, marks = excerpt.splitlines()
    assert len(line) < 300 and line[marks.index("^") :].startswith("ab-") and marks.endswith("^~")


def test_without_source_or_place():
    assert str(LaunchError("no")) == "error: no"
    report = str(LaunchError("no", location=Location("/nowhere.py", 3, 1)))
    assert report == "/nowhere.py:3:1: error: no"


def test_locations_of_ops(tmp_path):
    file = tmp_path / "k.py"
    file.write_text("x = load(tile)\n")
    plain = place(1, 5, str(file))
    assert location_of(plain) == Location(str(file), 1, 5)
    named = NameLoc(StringAttr("load(tile)"), plain)
    op = TestOp(attributes={})
    op.location = named
    found = location_of(op)
    assert found is not None and (found.line, found.col, found.end_col) == (1, 5, 15)
    fused = FusedLoc([UnknownLoc(), named], NoneAttr())
    assert location_of(fused) == found
    assert location_of(UnknownLoc()) is None
    call = CallSiteLoc(named, CallSiteLoc(place(7, 2), place(9, 3)))
    assert location_of(call) == found
    assert [c.line for c in callers_of(call)] == [7, 9]
    op.location = call
    text = str(error_at(op, "bad"))
    assert text.startswith(
        f"{file}:1:5: error: bad\n    1 | x = load(tile)\n      |     ^~~~~~~~~~\n"
    )
    assert "note: f.py:7:2: called here" in text
