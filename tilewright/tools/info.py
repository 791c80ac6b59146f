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
from tilewright.cache import KernelCache
from tilewright.diagnostics import TilewrightError
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
    """The processor's name, where the system gives it."""
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
    about = TARGETS[name].about
    try:
        target = get_target(name)
        state = target.describe(CompileOptions(target=name))
        use = target.use()
        tools = dict(target.tools())
    except TilewrightError as error:
        return {"about": about, "ready": False, "state": error.message, "hint": error.hint}
    except (ImportError, OSError, NotImplementedError) as error:
        return {"about": about, "ready": False, "state": str(error), "hint": None}
    return {
        "about": about,
        "ready": True,
        "runs": use != "compiles",
        "use": use,
        "tools": tools,
        "state": state,
        "hint": None,
    }


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
    tools = Table("target", "tool", "here", title="Tools and devices", title_justify="left")
    for name, state in facts["targets"].items():
        for tool, found in state.get("tools", {}).items():
            tools.add_row(name, tool, found)
    libraries = Table("library", "version", title="Libraries", title_justify="left")
    for name, found in facts["libraries"].items():
        libraries.add_row(name, found or f"missing: {_OPTIONAL.get(name, f'pip install {name}')}")
    settings = Table("variable", "value", "meaning", title="Settings", title_justify="left")
    for setting in facts["settings"]:
        settings.add_row(setting["variable"], setting["value"], setting["meaning"])
    for table in (targets, tools, libraries, settings):
        console.print(table)
    cache = facts["cache"]
    console.print(
        f"\nKernel cache: {cache['kernels']} kernels, {cache['bytes'] / 1e6:.1f} MB of "
        f"{cache['limit'] / 1e6:.0f} MB in {cache['directory']}"
    )
