"""Run in a fresh process by the compile suite of the GPU: prints how long compiling took, as JSON."""

import importlib
import itertools
import json
import time
from typing import Any

torch: Any = importlib.import_module("torch")
a = torch.ones(256, 256, device="cuda", dtype=torch.bfloat16)
c = torch.zeros_like(a)
torch.cuda.synchronize()

times = [time.perf_counter()]
from benchmarks.suites.gpu_kernels import product  # noqa: E402
from tilewright.targets.base import get_target  # noqa: E402

for module in ("tilewright.lang.build", "tilewright.runtime.launch", "tilewright.dialects"):
    importlib.import_module(module)
get_target("cuda")
times.append(time.perf_counter())
for _ in range(2):
    product[2, 1](a, a.T, c)
    torch.cuda.synchronize()
    times.append(time.perf_counter())
libraries, compiled, again = (y - x for x, y in itertools.pairwise(times))
print(json.dumps({"libraries": libraries, "compile": compiled, "again": again}))
