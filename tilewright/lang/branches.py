"""``if`` at run time: both branches are compiled, and what they bind differently is merged.

Each branch is first written into a block of its own. What must cross its border (see
`tilewright.lang.liveness`) then decides the types of the scf.if.
"""

from __future__ import annotations

import ast
from typing import Any

from xdsl.dialects import scf
from xdsl.ir import Block, Region, SSAValue

from tilewright.diagnostics import Note
from tilewright.lang import carry
from tilewright.lang.carry import Leaf, Mismatch, meet_leaf
from tilewright.lang.expressions import Expressions
from tilewright.lang.frame import Binding, Break, Flow, Return, Unbound
from tilewright.lang.liveness import Names, binds, leaves
from tilewright.lang.syntax import BREAK, RETURN_IN_LOOP
from tilewright.lang.values import Value, describe_type


class Branches(Expressions):
    """Compiles ``if`` statements whose condition is known at run time."""

    def _if_at_run_time(
        self, node: ast.If, condition: Value, rest: list[ast.stmt], live: Names
    ) -> tuple[Flow, bool]:
        """Compiles an ``if``; gives how it ends, and whether ``rest`` has been compiled with it.

        When a branch may leave (return, continue), what follows the ``if`` belongs to the branches
        that do not: it is compiled into them.
        """
        leaving = leaves(node.body) or leaves(node.orelse)
        tails = (node.body + rest, node.orelse + rest) if leaving else (node.body, node.orelse)
        blocks = (Block(), Block())
        flows: list[Flow] = []
        scopes: list[dict[str, Binding]] = []
        for block, body in zip(blocks, tails, strict=True):
            with self.scratch_names(), self.emitter.inside(block):
                flow = self.settled(self.block(body, live))
                flows.append(flow)
                scopes.append(self.names)
        self.at(node)
        values: list[tuple[str | None, Any, Any]] = []
        if any(isinstance(flow, Return) for flow in flows):
            a, b = (flow.value if isinstance(flow, Return) else None for flow in flows)
            values.append((None, a, b))
        else:
            flags = frozenset(flag for flag in self.break_flags[-1:] if flag)
            for name in sorted(binds(tails[0]) | binds(tails[1]) | flags):
                first, second = (scope.get(name) for scope in scopes)
                if name in live and first is not None and second is not None:
                    values.append((name, first.value, second.value))
                elif first is not None or second is not None:
                    missing = self._one_sided(node, name, first or second)
                    self.names[name] = Binding(missing, node)
        results = self._merge(node, condition, blocks, values, scopes)
        if any(isinstance(flow, Return) for flow in flows):
            return Return(results[0], node), True
        for (name, _, _), value in zip(values, results, strict=True):
            assert name is not None
            self.bind(name, value, node)
        return None, leaving

    def settled(self, flow: Flow) -> Flow:
        """How statements end, seen from outside of a branch or body: a break clears its flag."""
        if isinstance(flow, Break):
            flag = self.break_flags[-1] if self.break_flags else None
            if flag is None:
                raise self.lacking(flow.node, *BREAK)
            self.bind(flag, False, flow.node)
            return None
        if isinstance(flow, Return) and (self.runtime_loops or self.unrolled_loops):
            raise self.lacking(flow.node, *RETURN_IN_LOOP)
        return flow

    def _one_sided(self, node: ast.AST, name: str, binding: Binding | None) -> Unbound:
        line = getattr(binding.node if binding else node, "lineno", 0)
        return Unbound(
            f"is bound in one branch only (line {line})",
            f"give {name} a value before the if, or in both branches",
        )

    def _merge(
        self,
        node: ast.If,
        condition: Value,
        blocks: tuple[Block, Block],
        values: list[tuple[str | None, Any, Any]],
        scopes: list[dict[str, Binding]],
    ) -> list[Any]:
        """Ends both branches and makes the scf.if; gives each merged structure."""
        plans: list[tuple[Any, list[Leaf | None]]] = []
        yields: tuple[list[SSAValue], list[SSAValue]] = ([], [])
        kept: list[Leaf] = []
        for name, a, b in values:
            unbound = next((x for x in (a, b) if isinstance(x, Unbound)), None)
            if unbound is not None:
                plans.append((unbound, []))
                continue
            plan = self._meet(node, name, a, b, scopes)
            plans.append((a, plan))
            for x, y, leaf in zip(carry.parts(a), carry.parts(b), plan, strict=True):
                if leaf is None:
                    continue
                kept.append(leaf)
                for side, part in enumerate((x, y)):
                    with self.emitter.inside(blocks[side]), self.blame(node):
                        yields[side].append(carry.ssa_as(part, leaf))
        for block, operands in zip(blocks, yields, strict=True):
            with self.emitter.inside(block):
                self.emitter.emit(scf.YieldOp(*operands))
        has_else = bool(kept) or len(list(blocks[1].ops)) > 1
        op = scf.IfOp(
            condition.ssa,
            [leaf.type for leaf in kept],
            Region(blocks[0]),
            Region(blocks[1]) if has_else else None,
        )
        results = iter(self.emitter.emit(op).results)
        merged: list[Any] = []
        for structure, plan in plans:
            if isinstance(structure, Unbound):
                merged.append(structure)
                continue
            parts = [
                part if leaf is None else leaf.wrap(next(results))
                for part, leaf in zip(carry.parts(structure), plan, strict=True)
            ]
            merged.append(carry.rebuild(structure, iter(parts)))
        return merged

    def _meet(
        self, node: ast.If, name: str | None, a: Any, b: Any, scopes: list[dict[str, Binding]]
    ) -> list[Leaf | None]:
        """A leaf type for each part in which the two branches differ."""
        what = name or "the returned value"
        try:
            if not carry.shapes_agree(a, b):
                raise Mismatch(f"{describe_type(a)} and {describe_type(b)}")
            return [
                None if carry.same_object(x, y) else meet_leaf(x, y)
                for x, y in zip(carry.parts(a), carry.parts(b), strict=True)
            ]
        except Mismatch as mismatch:
            error = self.error(
                node,
                f"{what} differs between the branches: {mismatch}",
                rule="a name that is used after an if has one type, whichever branch ran",
                hint="convert one of them with .to(dtype), or use another name",
            )
            for scope in scopes if name else []:
                binding = scope.get(name or "")
                if binding is not None:
                    text = f"{name} is {describe_type(binding.value)} here"
                    error.with_note(Note(text, self.location(binding.node)))
            raise error from None
