"""What this machine can do: versions, targets and devices, settings, the kernel cache.

For everything that is missing it says how to get it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from importlib import metadata
from typing import Any

from tilewright import knobs
from tilewright.diagnostics import TilewrightError
from tilewright.runtime.cache import KernelCache
from tilewright.targets.base import TARGETS, CompileOptions, get_target
from tilewright.tools.console import out
from tilewright.tools.exits import DONE

EPILOG = """\
examples:
  tilewright info              a table to read
  tilewright info --json       the same for programs
  tilewright info --clear-cache
"""

LIBRARIES = ("xdsl", "llvmlite", "numpy", "ml_dtypes", "rich", "torch", "matplotlib", "filecheck")
_OPTIONAL = {
    "torch": "only a peer of the benchmarks: pip install torch",
    "matplotlib": "for plots and pictures: pip install 'tilewright[vis]'",
    "filecheck": "for run --filecheck: pip install 'tilewright[check]'",
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--clear-cache", action="store_true", help="delete every cached kernel")


def execute(args: argparse.Namespace) -> int:
    settings = knobs.current()
    store = KernelCache(settings.cache_path, settings.cache_size)
    if args.clear_cache:
        before = store.stats().entries
        store.clear()
        print(f"deleted {before} kernels from {store.directory}")
        return DONE
    facts = gather(store)
    if args.json:
        json.dump(facts, sys.stdout, indent=2)
        print()
    else:
        show(facts)
    return DONE


def version() -> str:
    """Version of the installed package, or of the source tree it runs from."""
    try:
        return metadata.version("tilewright")
    except metadata.PackageNotFoundError:
        return "0 (not installed: running from its source tree)"


def gather(store: KernelCache) -> dict[str, Any]:
    """Everything that the command shows, as JSON values."""
    stats = store.stats()
    return {
        "tilewright": version(),
        "python": platform.python_version(),
        "machine": {
            "system": f"{platform.system()} {platform.machine()}",
            "processor": processor(),
            "cores": len(os.sched_getaffinity(0)),
        },
        "libraries": {name: library_version(name) for name in LIBRARIES},
        "targets": {name: target_state(name) for name in TARGETS},
        "xe": xe_state(),
        "cuda": cuda_state(),
        "settings": [
            {"variable": name, "value": value, "meaning": meaning}
            for name, value, meaning in knobs.describe()
        ],
        "cache": {
            "directory": str(store.directory),
            "kernels": stats.entries,
            "bytes": stats.bytes,
            "limit": store.limit,
        },
    }


def library_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def processor() -> str:
    """The processor's name, where the system tells it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def target_state(name: str) -> dict[str, Any]:
    """Whether a target can be used here, and what it is (its description or fingerprint) or what is in the way."""
    about = TARGETS[name][1]
    try:
        target = get_target(name)
        describe = getattr(target, "describe", target.fingerprint)
        state = describe(CompileOptions(target=name))
    except TilewrightError as error:
        return {"about": about, "ready": False, "state": error.message, "hint": error.hint}
    except (ImportError, OSError, NotImplementedError) as error:
        return {"about": about, "ready": False, "state": str(error), "hint": None}
    use = how_it_runs(name)
    return {
        "about": about,
        "ready": True,
        "runs": use != "compiles",
        "use": use,
        "state": state,
        "hint": None,
    }


def how_it_runs(name: str) -> str:
    """What becomes of a target's kernels here: runs, emulates (on the CPU), or compiles (ahead of time only)."""
    if name == "cuda":
        from tilewright.targets.cuda import driver

        return "runs" if driver.available() else "compiles"
    if name == "xe":
        from tilewright.targets.xe import opencl

        device = opencl.device()
        return "compiles" if device is None else "runs" if device["kind"] == "gpu" else "emulates"
    return "runs"


def xe_state() -> dict[str, str]:
    """What looks at and runs Intel kernels here."""
    from tilewright.targets.xe import offline, opencl

    return {"offline compiler": offline.state(), "OpenCL": opencl.state()}


def cuda_state() -> dict[str, str]:
    """NVIDIA devices, the driver, and the tools that show machine code."""
    from tilewright.targets.cuda import driver, inspect

    found: dict[str, str] = {}
    try:
        version = driver.driver_version()
        found["driver"] = f"CUDA {version // 1000}.{version % 1000 // 10}"
        for ordinal in range(driver.device_count()):
            device = driver.device(ordinal)
            major, minor = device.capability
            found[f"cuda:{ordinal}"] = (
                f"{device.name}, compute capability {major}.{minor}, "
                f"{device.multiprocessors} multiprocessors"
            )
    except driver.DriverError as error:
        missing = "missing: libcuda.so.1 is not here; it comes with NVIDIA's driver"
        found["driver"] = missing if error.code == -1 else error.message
    for tool, package in inspect.PACKAGES.items():
        found[tool] = inspect.find_tool(tool) or f"missing: pip install {package}"
    return found


def show(facts: dict[str, Any]) -> None:
    """Prints the facts as tables."""
    from rich.table import Table

    console = out()
    machine = facts["machine"]
    console.print(
        f"Tilewright {facts['tilewright']}, Python {facts['python']}\n"
        f"{machine['processor']}, {machine['cores']} cores, {machine['system']}\n"
    )
    targets = Table("target", "", "what it is", "here", title="Targets", title_justify="left")
    for name, state in facts["targets"].items():
        hint = f" ({state['hint']})" if state["hint"] else ""
        targets.add_row(name, state.get("use", "-"), state["about"], f"{state['state']}{hint}")
    xe = Table("Intel Xe", "here", title="Intel Xe", title_justify="left")
    for name, found in facts["xe"].items():
        xe.add_row(name, found)
    cuda = Table("NVIDIA", "here", title="NVIDIA", title_justify="left")
    for name, found in facts["cuda"].items():
        cuda.add_row(name, found)
    libraries = Table("library", "version", title="Libraries", title_justify="left")
    for name, found in facts["libraries"].items():
        libraries.add_row(name, found or f"missing: {_OPTIONAL.get(name, f'pip install {name}')}")
    settings = Table("variable", "value", "meaning", title="Settings", title_justify="left")
    for setting in facts["settings"]:
        settings.add_row(setting["variable"], setting["value"], setting["meaning"])
    for table in (targets, cuda, xe, libraries, settings):
        console.print(table)
    cache = facts["cache"]
    console.print(
        f"\nKernel cache: {cache['kernels']} kernels, {cache['bytes'] / 1e6:.1f} MB of "
        f"{cache['limit'] / 1e6:.0f} MB in {cache['directory']}"
    )
