"""The builder of last-stage IR, under the name that this target's modules know it by."""

from tilewright.codegen.builder import Branch, Builder, Idx, Loop, function, index, lane_type

__all__ = ["Branch", "Builder", "Idx", "Loop", "function", "index", "lane_type"]
