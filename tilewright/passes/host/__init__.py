"""Passes on host code of MLIR programs: what calls the runtime's library, loops and memory."""
