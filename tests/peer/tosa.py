# ruff: noqa: E501
"""Random programs of TOSA, which mlir-opt lowers to linalg and tensors as the compilers of frameworks do.

Whole numbers that every order of sums gives exactly, so that results are compared bit by bit; what rounds (`exp`, a
mean) comes last, and is compared by its error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np

from tests.passes.linalg.programs import Array, program
from tests.peer.mlir_opt import Refused, mlir_opt
from tests.peer.open_extents import with_open_extents

Shape = tuple[int, ...]
EXTENTS = (1, 2, 3, 4, 5, 8)
MOST = 4096
"""Elements of a tensor."""
KEPT = 16
"""What numbers are brought back to after products and sums."""
STORED = {"f32": np.float32, "f16": np.float16, "i32": np.int32, "i16": np.int16, "i8": np.int8}
PLAIN = "tosa-optional-decompositions,canonicalize,tosa-infer-shapes,tosa-make-broadcastable,tosa-to-linalg-named"
TO_LINALG = (
    f"func.func({PLAIN},canonicalize,tosa-layerwise-constant-fold,tosa-make-broadcastable,tosa-to-scf,tosa-to-linalg,"
    "tosa-to-arith{include-apply-rescale},tosa-to-tensor),canonicalize"
)
NANS: dict[str, Any] = {"nan_mode": "#tosa.nan_mode<PROPAGATE>"}
NO_SHIFT = "dense<0> : tensor<1xi8>"


@dataclass(frozen=True)
class Tensor:
    name: str
    shape: Shape
    dtype: str
    exact: bool = True

    @property
    def type(self) -> str:
        return f"tensor<{''.join(f'{n}x' for n in self.shape)}{self.dtype}>"

    @property
    def real(self) -> bool:
        return self.dtype[0] == "f"


def said(value: Any) -> str:
    """An attribute: a truth, an axis, or numbers of windows."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value} : i32"
    return value if isinstance(value, str) else f"array<i64: {', '.join(map(str, value))}>"


class Source:
    """A function of tensors that grows by drawn steps."""

    def __init__(self, random: Random) -> None:
        self.random, self.lines, self.count = random, list[str](), 0
        self.inputs: dict[str, Array] = {}
        self.tensors: list[Tensor] = []

    # Drawing and writing.
    def pick(self, of: str | Sequence[Any]) -> Any:
        return self.random.choice(of.split() if isinstance(of, str) else of)

    def chance(self, of: float) -> bool:
        return self.random.random() < of

    def some(self, low: int, high: int, count: int) -> list[int]:
        return [self.random.randint(low, high) for _ in range(count)]

    def fresh(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def made(
        self, op: str, of: Sequence[Any], shape: Sequence[int], dtype: str, **more: Any
    ) -> Tensor:
        """The result of an op in its generic form; a list of numbers is a shape, and a string a constant's text."""
        names, kinds, exact = list[str](), list[str](), True
        for x in of:
            if isinstance(x, Tensor):
                name, kind = x.name, x.type
                exact &= x.exact
            elif isinstance(x, str):
                name, kind = self.constant(x), x.rpartition(" : ")[2]
            else:
                name, kind = self.fresh(), f"!tosa.shape<{len(x)}>"
                text = f"{{values = dense<{[*x]}> : tensor<{len(x)}xindex>}}"
                self.lines.append(f"{name} = tosa.const_shape {text} : () -> {kind}")
            names.append(name)
            kinds.append(kind)
        result = Tensor(self.fresh(), tuple(shape), dtype, exact)
        words = ", ".join(f"{k} = {said(v)}" for k, v in more.items())
        call = f'"tosa.{op}"({", ".join(names)}){words and f" <{{{words}}}>"}'
        self.lines.append(f"{result.name} = {call} : ({', '.join(kinds)}) -> {result.type}")
        return result

    def like(self, op: str, *of: Any, **more: Any) -> Tensor:
        a = next(x for x in of if isinstance(x, Tensor))
        return self.made(op, of, a.shape, a.dtype, **more)

    def named(self, array: Array, dtype: str) -> Tensor:
        """An array that the caller has."""
        result, key = Tensor(self.fresh(), array.shape, dtype), f"g{len(self.inputs)}"
        self.inputs[key] = array
        memory = result.type.replace("tensor", "memref")
        text = f"bufferization.to_tensor %{key} restrict : {memory} to {result.type}"
        self.lines.append(f"{result.name} = {text}")
        return result

    def given(self, shape: Sequence[int], dtype: str, low: int = -3, high: int = 3) -> Tensor:
        """Small numbers that the caller has, or the text."""
        array = np.array(self.some(low, high, math.prod(shape)), STORED[dtype]).reshape(shape)
        if self.chance(0.8) or not array.shape:
            return self.named(array, dtype)
        data = f'"0x{array.tobytes().hex().upper()}"' if array.size > 1 else array.reshape(-1)[0]
        result = Tensor("", array.shape, dtype)
        return replace(result, name=self.constant(f"dense<{data}> : {result.type}"))

    def constant(self, text: str) -> str:
        name, kind = self.fresh(), text.rpartition(" : ")[2]
        self.lines.append(f'{name} = "tosa.const"() <{{values = {text}}}> : () -> {kind}')
        return name

    def other(self, a: Tensor) -> Tensor:
        """Another of the same type: one there is, or one that is repeated along dimensions of 1."""
        same = [t for t in self.tensors if (t.shape, t.dtype) == (a.shape, a.dtype)]
        if same and self.chance(0.5):
            return self.pick(same)
        return self.given([n if self.chance(0.6) else 1 for n in a.shape], a.dtype)

    def clamped(self, a: Tensor, most: int = KEPT) -> Tensor:
        """Numbers brought back to where they are exact."""
        point = ".0" if a.real else ""
        low, high = (f"{n}{point} : {a.dtype}" for n in (-most, most))
        return self.like("clamp", a, min_val=low, max_val=high, **NANS)

    def number(self, dtype: str, most: int = 0) -> str:
        """One number of the text: a zero point, or what fills."""
        n = self.random.randint(-most, most)
        return f"dense<{n}{'.0' if dtype[0] == 'f' else ''}> : tensor<1x{dtype}>"

    def zeros(self, dtype: str) -> list[str]:
        return [self.number(dtype, 2 if dtype == "i8" else 0) for _ in "ab"]

    def tensor(
        self, dtypes: str = "f32 f16 i32 i8 i16", rank: int | None = None, least: int = 0
    ) -> Tensor:
        """One there is, brought to a rank and an element type."""
        a = self.pick(self.tensors[-4:])
        if a.dtype not in dtypes.split():
            a = self.cast(a, self.pick(dtypes))
        if rank is not None and len(a.shape) != rank:
            return self.reshaped(a, rank)
        return a if len(a.shape) >= least else self.reshaped(a, least)

    def reshaped(self, a: Tensor, rank: int) -> Tensor:
        """The same elements, split at random."""
        left, shape = math.prod(a.shape), list[int]()
        for _ in range(rank - 1):
            shape.append(self.pick([d for d in range(1, 17) if left % d == 0]))
            left //= shape[-1]
        shape.append(left)
        self.random.shuffle(shape)
        return self.made("reshape", [a, shape], shape, a.dtype)

    def cast(self, a: Tensor, dtype: str) -> Tensor:
        return a if a.dtype == dtype else self.made("cast", [a], a.shape, dtype)

    # Steps: each gives a tensor.
    def elementwise(self) -> Tensor:
        a = self.tensor()
        own = (
            "floor ceil"
            if a.real
            else "bitwise_and bitwise_or bitwise_xor bitwise_not clz right left intdiv"
        )
        match op := self.pick(f"add sub mul maximum minimum abs negate {own}"):
            case "floor" | "ceil" | "bitwise_not":
                return self.like(op, a)
            case "abs" | "clz":
                return self.like(op, a if a.real else self.cast(a, "i32"))
            case "negate":
                return self.like(op, a, *[self.number(a.dtype)] * 2)
            case "mul":
                b, to = self.other(a), a.dtype if a.real else "i32"
                return self.clamped(self.made(op, [a, b, NO_SHIFT], a.shape, to))
            case "maximum" | "minimum":
                mode = self.pick("PROPAGATE IGNORE")
                return self.like(op, a, self.other(a), nan_mode=f"#tosa.nan_mode<{mode}>")
            case "add" | "sub":
                a = a if a.real else self.cast(a, "i32")
                return self.clamped(self.like(op, a, self.other(a)))
            case "intdiv":
                a = self.cast(a, "i32")
                return self.like(op, a, self.given(a.shape, "i32", 1, 5))
            case "right":
                by = self.given(a.shape, a.dtype, 0, 7)
                return self.like("arithmetic_right_shift", a, by, round=self.chance(0.5))
            case "left":
                by = self.given(a.shape, a.dtype, 0, 3)
                return self.clamped(self.like("logical_left_shift", a, by))
            case _:
                return self.like(op, a, self.other(a))

    def mask(self, a: Tensor) -> Tensor:
        a = a if a.real else self.cast(a, "i32")
        kinds = "equal greater greater_equal"
        m, n = (self.made(self.pick(kinds), [a, self.other(a)], a.shape, "i1") for _ in "mn")
        match op := self.pick("plain logical_not logical_and logical_or logical_xor"):
            case "plain":
                return m
            case "logical_not":
                return self.like(op, m)
            case _:
                return self.like(op, m, n)

    def select(self) -> Tensor:
        a = self.tensor()
        return self.made("select", [self.mask(a), a, self.other(a)], a.shape, a.dtype)

    def truth(self) -> Tensor:
        m = self.mask(self.tensor(least=1))
        if self.chance(0.5):
            axis, shape = self.along(m)
            m = self.made(self.pick("reduce_all reduce_any"), [m], shape, "i1", axis=axis)
        return self.made("cast", [m], m.shape, self.pick("i32 i8 i16"))

    def along(self, a: Tensor) -> tuple[int, Shape]:
        """A dimension, and the shape without it."""
        axis = self.random.randrange(len(a.shape))
        return axis, tuple(1 if d == axis else n for d, n in enumerate(a.shape))

    def converted(self) -> Tensor:
        a = self.tensor()
        return self.cast(a, self.pick([t for t in STORED if t != a.dtype]))

    def reduce(self) -> Tensor:
        a = self.tensor("f32 f16 i32", least=1)
        axis, shape = self.along(a)
        op = self.pick("reduce_sum reduce_max reduce_min reduce_product argmax")
        if op == "argmax":
            return self.made(
                op, [a], a.shape[:axis] + a.shape[axis + 1 :], "i32", axis=axis, **NANS
            )
        if op == "reduce_product":
            a = self.clamped(a, 1)
        if op == "reduce_sum" and a.dtype == "f16":
            a = self.cast(a, "f32")
        more = NANS if op in ("reduce_max", "reduce_min") else {}
        return self.clamped(self.made(op, [a], shape, a.dtype, axis=axis, **more))

    def moved(self) -> Tensor:
        a = self.tensor(least=1)
        rank, dims = len(a.shape), range(len(a.shape))
        match op := self.pick("reshape transpose reverse tile pad slice concat"):
            case "reshape":
                return self.reshaped(a, self.random.randint(1, 5))
            case "transpose":
                order = self.random.sample(dims, rank)
                perms = f"array<i32: {', '.join(map(str, order))}>"
                return self.made(op, [a], [a.shape[d] for d in order], a.dtype, perms=perms)
            case "reverse":
                return self.like(op, a, axis=self.pick(dims))
            case "tile":
                by = [self.pick((1, 1, 2, 3)) for _ in dims]
                return self.made(
                    op, [a, by], [n * b for n, b in zip(a.shape, by, strict=True)], a.dtype
                )
            case "pad":
                by = self.some(0, 2, 2 * rank)
                shape = [n + by[2 * d] + by[2 * d + 1] for d, n in enumerate(a.shape)]
                return self.made(op, [a, by, self.number(a.dtype, 2)], shape, a.dtype)
            case "slice":
                at = [self.random.randrange(n) for n in a.shape]
                size = [self.random.randint(1, n - o) for n, o in zip(a.shape, at, strict=True)]
                return self.made(op, [a, at, size], size, a.dtype)
            case _:
                axis, shape = self.along(a)
                parts = [a]
                for n in self.random.sample(EXTENTS, self.random.randint(1, 2)):
                    parts.append(
                        self.given([n if d == axis else m for d, m in enumerate(a.shape)], a.dtype)
                    )
                self.random.shuffle(parts)
                whole = sum(p.shape[axis] for p in parts)
                shape = [*shape[:axis], whole, *shape[axis + 1 :]]
                return self.made(op, parts, shape, a.dtype, axis=axis)

    def gathered(self) -> Tensor:
        a = self.tensor(rank=3)
        n, k, c = a.shape
        if self.chance(0.3):
            w = self.random.randint(1, k)
            places = np.array([self.random.sample(range(k), w) for _ in range(n)], np.int32)
            values = self.given((n, w, c), a.dtype)
            return self.made("scatter", [a, self.named(places, "i32"), values], a.shape, a.dtype)
        w = self.pick(EXTENTS)
        return self.made("gather", [a, self.given((n, w), "i32", 0, k - 1)], (n, w, c), a.dtype)

    def table(self) -> Tensor:
        a = self.tensor("i8 i16")
        if a.dtype == "i8":
            return self.like("table", a, self.given((256,), "i8", -128, 127))
        return self.made("table", [a, self.given((513,), "i16", -100, 100)], a.shape, "i32")

    def rescale(self) -> Tensor:
        a, to = self.tensor("i32 i8 i16", least=1), self.pick("i32 i8 i16")
        channel, wide = self.chance(0.4), self.chance(0.7)
        n = a.shape[-1] if channel else 1
        shift = self.some(*((28, 34) if wide else (12, 16)), n)
        factor = self.some(*((1 << 29, (1 << 31) - 1) if wide else (1 << 12, (1 << 15) - 1)), n)
        zeros = [self.number(t, 5 if t == "i8" else 0) for t in (a.dtype, to)]
        rounding = f"#tosa.rounding_mode<{self.pick('SINGLE_ROUND DOUBLE_ROUND') if wide else 'SINGLE_ROUND'}>"
        kinds = (
            f"dense<{factor}> : tensor<{n}x{'i32' if wide else 'i16'}>",
            f"dense<{shift}> : tensor<{n}xi8>",
        )
        more = {"rounding_mode": rounding, "per_channel": channel}
        more |= {"input_unsigned": False, "output_unsigned": False}
        return self.made("rescale", [a, *kinds, *zeros], a.shape, to, scale32=wide, **more)

    def product(self) -> Tensor:
        a = self.tensor("f32 f16 i8", rank=3)
        n, m, k = a.shape
        b = self.given((n, k, self.pick(EXTENTS)), a.dtype)
        shape, to = (n, m, b.shape[2]), "f32" if a.real else "i32"
        return self.clamped(self.made("matmul", [a, b, *self.zeros(a.dtype)], shape, to))

    def window(
        self, size: Sequence[int], kernel: Sequence[int], dilated: bool
    ) -> tuple[list[int], dict[str, Any]]:
        """Extents of the result, and what the op says, for extents of an image and of a window that fits it."""
        out, pad, stride, dilation = list[int](), list[int](), list[int](), list[int]()
        for n, k in zip(size, kernel, strict=True):
            d, (low, high) = self.pick((1, 1, 2)) if dilated else 1, self.some(0, k - 1, 2)
            if n + low + high < (k - 1) * d + 1:
                d, low, high = 1, k - 1, k - 1
            left = n + low + high - (k - 1) * d - 1
            stride.append(self.pick([s for s in (1, 1, 2, 3) if left % s == 0]))
            out.append(left // stride[-1] + 1)
            pad += low, high
            dilation.append(d)
        return out, {"pad": pad, "stride": stride} | ({"dilation": dilation} if dilated else {})

    def convolution(self) -> Tensor:
        kind = self.pick("conv2d conv2d conv3d depthwise_conv2d transpose_conv2d")
        dtype, rank = self.pick("f32 f32 f16 i8"), 3 if kind == "conv3d" else 2
        to = "i32" if dtype == "i8" else dtype
        image = self.image(dtype, rank)
        n, *size, c = image.shape
        kernel, more = [self.pick((1, 2, 3)) for _ in size], self.pick((1, 2, 3, 4))
        if kind == "transpose_conv2d":
            stride, pad = [self.pick((1, 2)) for _ in size], self.some(0, 1, 4)
            words: dict[str, Any] = {"out_pad": pad, "stride": stride}
            out = [
                (i - 1) * s + k + sum(pad[2 * d : 2 * d + 2])
                for d, (i, s, k) in enumerate(zip(size, stride, kernel, strict=True))
            ]
        else:
            out, words = self.window(size, kernel, True)
        deep = kind == "depthwise_conv2d"
        weights = self.given((*kernel, c, more) if deep else (more, *kernel, c), dtype)
        channels = c * more if deep else more
        of = [image, weights, self.given((self.pick((channels, 1)),), to), *self.zeros(dtype)]
        words["acc_type"] = self.pick("f32 f16") if dtype == "f16" else to
        return self.clamped(self.made(kind, of, (n, *out, channels), to, **words))

    def image(self, dtype: str, rank: int = 2) -> Tensor:
        """An image with channels: one there is, or a new one."""
        if self.chance(0.6) and math.prod((a := self.tensor(dtype, rank + 2)).shape) <= 512:
            return a
        channels = self.pick((1, 2, 3, 4))
        return self.given((self.pick((1, 2)), *self.some(2, 7, rank), channels), dtype)

    def pooled(self) -> Tensor:
        return self.pool("max_pool2d", self.image(self.pick("f32 f16 i8")), **NANS)

    def pool(self, op: str, image: Tensor, *more: str, **words: Any) -> Tensor:
        n, *size, c = image.shape
        kernel = [self.pick((1, 2, 3)) for _ in size]
        out, stated = self.window(size, kernel, False)
        words |= {"kernel": kernel, **stated}
        return self.made(op, [image, *more], (n, *out, c), image.dtype, **words)

    def resized(self) -> Tensor:
        mode, image = self.pick("NEAREST_NEIGHBOR BILINEAR"), self.image(self.pick("f32 i8"))
        n, *size, c = image.shape
        scale, border, out = list[int](), list[int](), list[int]()
        for i in size:
            up, down = self.pick((2, 4, 8)), self.pick((1, 2))
            scale += up, down
            border.append(-((i - 1) * up % down))
            out.append(((i - 1) * up + border[-1]) // down + 1)
        kind = "i32" if (image.dtype, mode) == ("i8", "BILINEAR") else image.dtype
        of, how = [image, scale, [0, 0], border], f"#tosa.resize_mode<{mode}>"
        result = self.made("resize", of, (n, *out, c), kind, mode=how)
        return self.like("floor", result) if kind == "f32" else self.clamped(result)

    def branched(self) -> Tensor:
        """Of one branch or the other, or of a loop that doubles."""
        a = self.tensor("f32 i32")
        one, two = (self.given((), "i32", 0, 3) for _ in "xy")
        result = Tensor(self.fresh(), a.shape, a.dtype)
        x, y = (f"{result.name}_{n}" for n in "xy")
        if self.chance(0.5):
            p, b = self.made("equal", [one, two], (), "i1"), self.given(a.shape, a.dtype)
            head = f"^bb0({x}: {a.type}, {y}: {a.type}):"
            bodies = (
                f'{x}m = "tosa.maximum"({x}, {y}) <{{nan_mode = {NANS["nan_mode"]}}}> : ({a.type}, {a.type}) -> {a.type}',
                f'{x}m = "tosa.abs"({y}) : ({a.type}) -> {a.type}',
            )
            regions = ", ".join(
                f'{{\n{head}\n  {body}\n  "tosa.yield"({x}m) : ({a.type}) -> ()\n}}'
                for body in bodies
            )
            self.lines.append(
                f'{result.name} = "tosa.cond_if"({p.name}, {a.name}, {b.name}) ({regions}) : (tensor<i1>, {a.type}, {a.type}) -> {a.type}'
            )
            return result
        i = "tensor<i32>"
        kinds, step = f"({i}, {a.type})", self.given((), "i32", 1, 2)
        self.lines.append(
            f'{result.name}:2 = "tosa.while_loop"({one.name}, {a.name}) ({{\n^bb0({x}: {i}, {y}: {a.type}):\n'
            f'  {x}p = "tosa.greater"({two.name}, {x}) : ({i}, {i}) -> tensor<i1>\n  "tosa.yield"({x}p) : (tensor<i1>) -> ()\n'
            f'}}, {{\n^bb0({x}: {i}, {y}: {a.type}):\n  {x}n = "tosa.add"({x}, {step.name}) : ({i}, {i}) -> {i}\n'
            f'  {y}n = "tosa.add"({y}, {y}) : ({a.type}, {a.type}) -> {a.type}\n  "tosa.yield"({x}n, {y}n) : {kinds} -> ()\n}}) : {kinds} -> {kinds}'
        )
        return self.clamped(replace(result, name=f"{result.name}#1"))

    def rough(self) -> Tensor:
        """What rounds: the last of a program."""
        a, most = self.tensor("f32", least=1), self.given([1], "f32", 1, 3)
        most = self.made("reshape", [most, [1] * len(a.shape)], [1] * len(a.shape), "f32")
        above = self.like("maximum", a, most, **NANS)
        match kind := self.pick(
            "exp tanh sigmoid erf sin cos reciprocal rsqrt log pow mean shares"
        ):
            case "mean":
                of = self.image("f32"), *self.zeros("f32")
                result = self.pool("avg_pool2d", *of, acc_type="f32")
            case "reciprocal" | "rsqrt" | "log":
                result = self.like(kind, above)
            case "pow":
                result = self.like(kind, above, self.given(a.shape, "f32"))
            case "shares":
                axis, shape = self.along(a)
                total = self.made("reduce_sum", [e := self.like("exp", a)], shape, "f32", axis=axis)
                result = self.like("mul", e, self.like("reciprocal", total), NO_SHIFT)
            case _:
                result = self.like(kind, a)
        return replace(result, exact=False)


STEPS: tuple[Callable[[Source], Tensor], ...] = (
    *[Source.elementwise, Source.reduce, Source.moved, Source.product, Source.convolution] * 2, Source.select, Source.truth, Source.converted,
    Source.moved, Source.gathered, Source.table, Source.rescale, Source.convolution, Source.pooled, Source.resized, Source.branched,
)  # fmt: skip


def source(random: Random) -> tuple[str, bool]:
    """A program of TOSA that prints two of its tensors, lowered, and whether these are exact."""
    made = Source(random)
    shape = [random.choice(EXTENTS) for _ in range(random.randint(1, 4))]
    made.tensors.append(made.given(shape, made.pick([*STORED])))
    for _ in range(random.randint(1, 5)):
        result = random.choice(STEPS)(made)
        while math.prod(result.shape) > MOST:
            most = max(result.shape)
            size = [n // 2 if n == most else n for n in result.shape]
            result = made.made("slice", [result, [0] * len(size), size], size, result.dtype)
        made.tensors.append(result)
    if made.chance(0.25):
        made.tensors.append(made.rough())
    shown, results = dict[str, str](), [made.tensors[-1], random.choice(made.tensors)]
    for n, t in enumerate(results):
        t = made.cast(t, {"f16": "f32", "i8": "i32", "i16": "i32"}.get(t.dtype, t.dtype))
        shown[f"o{n}"] = t.type.replace("tensor", "memref")
        made.lines.append(
            f"%o{n} = bufferization.to_buffer {t.name} : {t.type} to {shown[f'o{n}']}"
        )
    exact = all(t.exact for t in results)
    if random.random() < 0.3:
        lines, function = with_open_extents(made.lines, random)
        with suppress(Refused):  # mlir-opt lowers no convolution of open extents
            text = program("\n  ".join(lines), made.inputs, shown)
            return mlir_opt(text + function, pipeline=TO_LINALG), exact
    closed = program("\n  ".join(made.lines), made.inputs, shown)
    return mlir_opt(closed, pipeline=TO_LINALG), exact
