"""Passes on XeGPU: between its generations and XeTile, and from workgroups down to lanes (`pipeline`)."""
