"""Passes by name, and pipelines of them as text: ``a,b{option=value}``, nested as MLIR nests them.

A pass of Tilewright or of stock xDSL goes through a whole module, so that the ops around which MLIR writes a
pipeline, ``builtin.module(gpu.module(a),func.func(b))``, are read and change nothing: it is ``a,b``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, field, fields, make_dataclass
from functools import partial
from inspect import signature
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass, PassPipeline

from tilewright.diagnostics import Location, UnsupportedError, did_you_mean
from tilewright.frozen import frozen
from tilewright.passes.pipeline import Pass, Pipeline
from tilewright.passes.programs import PROGRAMS
from tilewright.targets.base import pipelines, split_name
from tilewright.tools.console import err
from tilewright.tools.exits import UsageError


def available_passes() -> dict[str, Callable[[], type[ModulePass]]]:
    """Every pass by name; one of Tilewright hides a stock pass of the same name."""
    from xdsl.transforms import get_all_passes

    passes: dict[str, Callable[[], type[ModulePass]]] = dict(get_all_passes())
    places: dict[str, dict[str, ListedPass]] = {}
    for pipeline in pipelines():
        for each in (*pipeline.passes, *pipeline.more, *PROGRAMS):
            places.setdefault(each.name, {}).setdefault(pipeline.target, (each, pipeline))
    passes.update({name: partial(as_module_pass, found) for name, found in places.items()})
    return passes


ListedPass = tuple[Pass[Any], Pipeline[Any]]
"""A pass in the list of a target."""


def as_module_pass(places: Mapping[str, ListedPass]) -> type[ModulePass]:
    """A pass, by the targets that have it, as xDSL has them: its options are fields, and `target` names the machine,
    where it asks one."""
    each, first = next(iter(places.values()))
    parameters = signature(each.make, eval_str=True).parameters.values() if each.make else ()
    options = [(p.name, p.annotation, field(default=p.default)) for p in parameters]
    if each.machine:
        options.append(("target", str, field(default=first.machine if len(places) == 1 else "cpu")))

    def apply(self: Any, ctx: Any, module: ModuleOp) -> None:
        machine = getattr(self, "target", "")
        done, pipeline = each, first
        if len(places) > 1 and machine:
            family, chip = split_name(machine)
            if family not in places:
                have = ", ".join(places)
                raise UnsupportedError(
                    f"{each.name} is no pass of {family}", hint=f"of {have} it is"
                )
            (done, pipeline), machine = places[family], chip or ""
        if done.make is not None:
            done = done.make(**{p.name: getattr(self, p.name) for p in parameters})
        for remark in pipeline.alone(done, module, machine.removeprefix(f"{pipeline.target}-")):
            err().print(f"remark: {remark}")

    namespace = {
        "name": each.name,
        "apply": apply,
        "__doc__": f"{each.story} ({', '.join(places)})",
    }
    made = make_dataclass(each.name, options, bases=(ModulePass,), namespace=namespace, frozen=True)
    # A diagnostic of ours is not taken for a fault of xDSL's.
    made.__module__ = __name__
    return made


@frozen
class PipelineElement:
    """A pass as it stands in a pipeline: its name, the whole text with its options, and where that begins."""

    name: str
    text: str
    start: int


_ANCHOR = re.compile(r"[\w-]+(?:\.[\w-]+)+\(|any\(")
_ELEMENT = re.compile(r'([\w-]+)(?:\[[^\]]*\])?(?:\{(?:[^{}"]|"[^"]*")*\})?')
_BLANK = re.compile(r"\s*")


def elements(text: str) -> list[PipelineElement]:
    """The passes of a pipeline, in order; UsageError points at what cannot be read."""
    found: list[PipelineElement] = []
    at, depth = _after_blanks(text, 0), 0
    while at < len(text) or depth or found:
        if (anchor := _ANCHOR.match(text, at)) is not None:
            depth, at = depth + 1, _after_blanks(text, anchor.end())
            if not text.startswith(")", at):
                continue
        elif (element := _ELEMENT.match(text, at)) is not None:
            found.append(PipelineElement(element[1], element[0], at))
            at = _after_blanks(text, element.end())
        else:
            raise _error("a pass is expected here", text, at)
        while depth and text.startswith(")", at):
            depth, at = depth - 1, _after_blanks(text, at + 1)
        if at == len(text) and not depth:
            break
        if not text.startswith(",", at):
            wanted = "',' or ')'" if depth else "',' or the end"
            unclosed = "these options are never closed" if text.startswith("{", at) else ""
            raise _error(unclosed or f"{wanted} is expected here", text, at)
        at = _after_blanks(text, at + 1)
    return found


def _after_blanks(text: str, at: int) -> int:
    blank = _BLANK.match(text, at)
    return blank.end() if blank is not None else at


def module_pipeline(text: str) -> str:
    """A pipeline in MLIR's form, which names the op that it is for; UsageError when it does not."""
    if re.match(r"\s*builtin\.module\(", text) is None:
        raise UsageError(
            f'--pass-pipeline {text!r} is not of the form "builtin.module(...)"',
            hint="-p takes passes without it: -p canonicalize,cse",
        )
    return text


def make_pipeline(text: str, callback: Any = None) -> PassPipeline:
    """The pipeline that ``text`` lists; UsageError names what is no pass or no option."""
    listed = elements(text)
    known = available_passes() if listed else {}
    passes: list[ModulePass] = []
    for element in listed:
        if element.name not in known:
            raise _error(
                f"no pass is called {element.name!r}", text, element.start, len(element.name),
                hint=did_you_mean(element.name, known) or "tilewright opt --list shows all passes",
            )  # fmt: skip
        passes.append(_configured(known[element.name](), element, text))
    return PassPipeline(tuple(passes), callback)


def _configured(kind: type[ModulePass], element: PipelineElement, text: str) -> ModulePass:
    """The pass with the options of its element."""
    from xdsl.utils.arg_spec import parse_pipeline
    from xdsl.utils.exceptions import ArgSpecParseError

    try:
        (spec,) = parse_pipeline(element.text)
    except ArgSpecParseError as error:
        reason = str(error).strip().splitlines()[-1].strip()
        raise _error(
            f"the options of {element.name} cannot be read: {reason}", text, element.start,
            len(element.text), hint=f"options are written {element.name}{{name=value other=value}}",
        ) from None  # fmt: skip
    options = [f for f in fields(kind) if f.name != "name" and f.init]
    names = ", ".join(map(_option, options))
    rule = f"its options are {names}" if names else f"{element.name} has no options"
    for name in spec.parameters:
        if name.replace("-", "_") not in {f.name for f in options}:
            at = element.text.index(name, len(element.name))
            message = f"{element.name} has no option {name!r}"
            raise _error(message, text, element.start + at, len(name), rule=rule)
    try:
        return kind.from_pass_spec(spec)
    except (ValueError, TypeError) as error:
        message = f"{element.name}: {str(error).strip().splitlines()[-1]}"
        raise _error(message, text, element.start, len(element.text), rule=rule) from None


def _option(field: Field[Any]) -> str:
    """``kind=subgroup``, or the name alone where nothing is its default."""
    name = field.name.replace("_", "-")
    return name if field.default in (MISSING, None) else f"{name}={field.default}"


def _error(
    message: str,
    text: str,
    at: int,
    length: int = 1,
    *,
    rule: str | None = None,
    hint: str | None = None,
) -> UsageError:
    shown = re.sub(r"\s", " ", text)
    where = Location("<pipeline>", 1, at + 1, at + 1 + length, shown)
    return UsageError(message, location=where, rule=rule, hint=hint)
