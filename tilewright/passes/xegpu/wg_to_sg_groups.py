"""The groups of ops that xegpu-wg-to-sg-distribute knows, one file each."""

from __future__ import annotations

from importlib import import_module

GROUPS = ("values", "shapes", "memory", "scattered", "control")


def load() -> None:
    """Fills the table of handlers."""
    for group in GROUPS:
        import_module(f"tilewright.passes.xegpu.wg_to_sg_{group}")
