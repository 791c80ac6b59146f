"""The RFC's appendix programs for DG2: workgroups of 128 x 128, 32 subgroups of 16 x 32, matrices of any size."""

from __future__ import annotations

import re
from pathlib import Path

RFC = Path(__file__).parents[3] / "examples" / "rfc"

# By name: grid and tile of a subgroup. Appendix 2.4 has 64 subgroups of 32 x 32 and 128 KiB of shared memory.
_MAPS = {
    "a": ("8, 4", "16, 32"),
    "b": ("8, 4", "32, 32"),
    "c": ("8, 4", "16, 32"),
    "bt": ("4, 8", "32, 32"),
    "a_pfh": ("32, 1", "4, 32"),
    "b_pfh": ("4, 8", "8, 16"),
    "bt_pfh": ("32, 1", "4, 32"),
    "bcast": ("8, 4", "1, 32"),
    "bcast2": ("32", "4"),
    "reduce": ("32, 1", "4, 1"),
    "reduce2": ("32, 1", "4, 128"),
    "a_cop": ("32, 1", "4, 32"),
    "b_cop": ("8, 4", "4, 32"),
}
_MAP = re.compile(r"^#mp_(\w+)( *= .*)sg_layout = \[([\d, ]+)\], sg_data = \[([\d, ]+)\]", re.M)


def adapted(name: str, size: int = 4096) -> str:
    """An appendix program with DG2's tiles, on matrices of `size` x `size`."""

    def tile(found: re.Match[str]) -> str:
        grid, data = _MAPS[found.group(1)]
        return f"#mp_{found.group(1)}{found.group(2)}sg_layout = [{grid}], sg_data = [{data}]"

    text = _MAP.sub(tile, (RFC / name).read_text())
    return re.sub(r"(?<!%c)4096", str(size), re.sub(r"(?<!%c)256", "128", text))
