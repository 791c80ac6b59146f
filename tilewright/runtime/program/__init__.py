"""Running whole MLIR programs: host code, launches, kernels at any level, in a worker process."""

from tilewright.runtime.program.host import HostProgram, run_program
from tilewright.runtime.program.worker import Limits, in_worker

__all__ = ["HostProgram", "Limits", "in_worker", "run_program"]
