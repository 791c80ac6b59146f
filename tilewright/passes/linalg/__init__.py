"""From linalg on tensors or memrefs to tile programs: buffers, then what is computed together, then tiles."""
