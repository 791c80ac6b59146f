"""What the commands print through: colours on a terminal, plain text elsewhere."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_STYLES = (
    (re.compile(r"^(.*?\b(?:internal )?error:)"), "bold red"),
    (re.compile(r"^(.*?\bwarning:)"), "bold yellow"),
    (re.compile(r"^(rule:|hint:)"), "bold cyan"),
    (re.compile(r"^(.*?\b(?:note|remark):)"), "bold"),
)


def out() -> Console:
    """The console on standard output. Text is printed as it is: no markup, no wrapping."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else 120
    return Console(highlight=False, markup=False, soft_wrap=True, emoji=False, width=width)


def err() -> Console:
    """The console on standard error."""
    from rich.console import Console

    return Console(highlight=False, markup=False, soft_wrap=True, emoji=False, stderr=True)


def show_warning(
    message: Warning | str, category: type[Warning], file: str, line: int, *_: object
) -> None:
    """Prints a warning of Python as a diagnostic, in place of `warnings.showwarning`."""
    from tilewright.diagnostics import Location

    place = Location(file, line, 1)
    excerpt = place.excerpt()
    render_error(f"{place}: warning: {message}" + (f"\n{excerpt}" if excerpt else ""))


def render_error(text: str) -> None:
    """Prints a diagnostic on standard error, its first words and its carets in colour."""
    from rich.text import Text

    if not sys.stderr.isatty():
        print(text, file=sys.stderr)
        return
    shown = Text()
    for line in text.splitlines():
        styled = Text(line)
        if re.fullmatch(r"\s*\|\s*\^~*", line):
            styled.stylize("bold green", line.index("^"))
        for pattern, style in _STYLES:
            if match := pattern.match(line):
                styled.stylize(style, *match.span(1))
                break
        shown.append_text(styled).append("\n")
    err().print(shown, end="")
