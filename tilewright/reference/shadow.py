"""Checking mode's books: who accessed which element, and which bytes were ever written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from tilewright.reference.values import Index

if TYPE_CHECKING:
    from tilewright.reference.machine import Site

Kind = Literal["read", "write", "atomic"]


class Shadow:
    def note(self, site: Site, address: Index, party: Index, itemsize: int, kind: Kind) -> None:
        pass

    def synchronise(self, parties: list[int]) -> None:
        pass

    def publish(self, party: int, token: Any) -> None:
        pass

    def close(self, token: Any) -> None:
        pass

    def acquire(self, party: int, token: Any) -> None:
        pass
