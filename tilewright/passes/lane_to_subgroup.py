from tilewright.diagnostics import UnsupportedError
def lane_to_subgroup(kernel, lanes, block):
    raise UnsupportedError("lane-level text has no compiled path")
