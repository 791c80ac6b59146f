"""Rules that the public implementation has and the RFC has not: a warning, an error when asked for.

Legality is the RFC's rule where it is wider (DESIGN §3). A verifier that meets a program which only the
narrower rule refuses calls `narrower`. What becomes of that is the caller's choice, made around the
verification: collect the warnings, or turn them into errors (`--strict`).
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

from xdsl.ir import Operation
from xdsl.utils.exceptions import VerifyException

from tilewright.frozen import frozen


@frozen
class Warning:
    """A program that the RFC allows and the public implementation does not."""

    op: Operation
    message: str


_strict: ContextVar[bool] = ContextVar("strict", default=False)
_sink: ContextVar[list[Warning] | None] = ContextVar("sink", default=None)


@contextmanager
def strictness(strict: bool = False) -> Generator[list[Warning]]:
    """Verify inside of this: narrower rules are errors if `strict`, else gathered in the list given."""
    gathered: list[Warning] = []
    strict_token, sink_token = _strict.set(strict), _sink.set(gathered)
    try:
        yield gathered
    finally:
        _strict.reset(strict_token)
        _sink.reset(sink_token)


def narrower(op: Operation, message: str) -> None:
    """`op` breaks a rule of the implementation that the RFC does not have.

    Raises:
        VerifyException: under `strictness(strict=True)`.
    """
    if _strict.get():
        raise VerifyException(message)
    sink = _sink.get()
    if sink is not None:
        sink.append(Warning(op, message))
