"""Passes over kernels and host code, one module each; `pipeline` strings them together."""

from tilewright.dialects import formats as _formats  # noqa: F401  # pyright: ignore[reportUnusedImport]  (before xDSL's dialects)
