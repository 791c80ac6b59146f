"""NVIDIA's entries: importing this declares them all (wgmma's are made when asked for)."""

from tilewright.codegen.instructions import (
    nvptx_lane,
    nvptx_memory,
    nvptx_mma,
    nvptx_sync,
    nvptx_tma,
    nvptx_wgmma,
)

__all__ = ["nvptx_lane", "nvptx_memory", "nvptx_mma", "nvptx_sync", "nvptx_tma", "nvptx_wgmma"]
