"""What the comment lines of a test program say: how it is meant to be run, and with what outcome.

Such files carry the command lines of their own tool chain (`// RUN: ...`), the output they expect (`// CHECK...`)
and sometimes that they fail there (`// XFAIL: *`).  Read here are the facts that bear on running them anywhere.
"""

from __future__ import annotations

import importlib.util
import re

from tilewright.diagnostics import CompileError
from tilewright.frozen import frozen
from tilewright.tools.exits import MissingTool


@frozen
class Directives:
    """`level`: of `xegpu-op-level=`, None where nothing says it.  `entry`: of `-e NAME`.  `compares`: whether the
    output is compared with CHECK lines; `checks`: whether there are any.  `may_fail`: an XFAIL of all targets.
    """

    level: str | None
    entry: str | None
    compares: bool
    checks: bool
    may_fail: bool


def directives(text: str) -> Directives:
    """The directives of a program's text."""
    lines = [line.strip() for line in text.splitlines()]
    run = "\n".join(line for line in lines if re.match(r"//\s*RUN:", line))
    level = re.search(r"xegpu-op-level=(workgroup|subgroup|lane)\b", run)
    entry = re.search(r"\s(?:-e|--entry-point)[ =]([A-Za-z_$][\w$.]*)", run)
    return Directives(
        level=level[1] if level else None,
        entry=entry[1] if entry else None,
        compares=not run or re.search(r"filecheck", run, re.IGNORECASE) is not None,
        checks=any(re.match(r"//.*\bCHECK(-[A-Z]+(-\d+)?)?:", line) for line in lines),
        may_fail=any(re.match(r"//\s*XFAIL:\s*\*", line) for line in lines),
    )


def require_filecheck() -> None:
    """MissingTool where CHECK lines cannot be compared."""
    if importlib.util.find_spec("filecheck") is None:
        raise MissingTool(
            "--filecheck needs the package filecheck", "pip install 'tilewright[check]'"
        )


def check_lines(text: str, name: str, printed: str) -> bool:
    """Whether ``printed`` has what the CHECK lines of ``text`` say; the first difference goes to stderr."""
    import io

    from filecheck.finput import FInput
    from filecheck.matcher import Matcher
    from filecheck.options import Options
    from filecheck.parser import Parser, pattern_for_opts

    found = directives(text)
    if not found.checks:
        if found.compares:
            raise CompileError(
                f"{name} has no CHECK line to compare its output with",
                hint="omit --filecheck, or state what is expected: // CHECK: [ALLCLOSE: TRUE]",
            )
        return True
    options = Options(match_filename=name)
    parser = Parser(options, io.StringIO(text), *pattern_for_opts(options))
    return Matcher(options, FInput("<output>", printed), parser).run() == 0
