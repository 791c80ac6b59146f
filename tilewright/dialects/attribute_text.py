"""The text of attributes and types, as mlir-opt and the RFCs write it, where stock xDSL reads less.

| text | where |
|---|---|
| `loc(#loc3)`, defined at the end; `fused<"k">["a", #loc]`; `"f":1:2 to 3:4` | `mlir-opt --mlir-print-debuginfo` |
| `dense_resource<blob>` with its data in `{-# dialect_resources: .. #-}`; `external_resources` | models, reproducers |
| `dense<"0x05"> : tensor<4xi1>`, eight elements a byte; `sparse<[[0, 1]], [5]>` | long constants |
| `#other.thing<..>` of a dialect that nobody registered | what other tools leave at an op: kept, not used |
| `#wg_map<..>`, `!tile<..>`, `vector<16 x f32>` | the RFCs |
"""

from __future__ import annotations

import math
import re
from functools import cached_property
from typing import Any, cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    BytesAttr,
    DenseIntOrFPElementsAttr,
    DenseResourceAttr,
    FileLineColLoc,
    FloatAttr,
    FusedLoc,
    IndexType,
    IntegerAttr,
    IntegerType,
    LocationAttr,
    MemRefType,
    UnrankedMemRefType,
    UnregisteredAttr,
)
from xdsl.ir import Attribute
from xdsl.ir.affine import AffineConstantExpr, AffineMap
from xdsl.parser import Parser
from xdsl.utils.exceptions import ParseError
from xdsl.utils.mlir_lexer import MLIRTokenKind

from tilewright.dialects.numerals import float_attr, no_float
from tilewright.dialects.unknown import OF_A_MACHINE

_METADATA = re.compile(r'\{-#(?:"(?:[^"\\]|\\.)*+"|(?!#-\})[^"])*+#-\}')
_BLOB = re.compile(r'(?:"([^"]*)"|([\w.$-]+))\s*:\s*"0x([0-9A-Fa-f]*)"')
_ALIGNMENT = 4
"""Bytes in front of a blob's data."""

# What the RFCs write without its dialect.
_RFC_ATTRIBUTES = frozenset({"wg_map", "sg_map", "xe_map", "tile_attr", "tile"})


class AttributesParser(Parser):
    """The xDSL parser, which reads the attributes and types of the table above."""

    def __init__(self, context: Any, text: str, filename: str):
        super().__init__(context, text, filename)
        self.alias_errors: list[ParseError] = []
        self._ahead: set[str] = set()
        """Aliases that were read where they were used first, ahead of their definition."""

    @property
    def _text(self) -> str:
        return self.lexer.input.content

    # Aliases and locations.
    def _parse_alias_def(self) -> None:
        """A malformed alias does not hide those after it: each is reported."""
        start, name = self.pos, self._current_token.text
        if name in self._ahead:
            self._ahead.remove(name)
            del self.attribute_aliases[name]
        try:
            super()._parse_alias_def()
        except ParseError as error:
            self.alias_errors.append(error)
            end = self._text.find("\n", max(start, error.span.start))
            self._resume_from(len(self._text) if end < 0 else end)

    @cached_property
    def _locations(self) -> dict[str, int]:
        """Where the values of the aliases of locations stand, which may come behind their uses."""
        return {m[1]: m.start(2) for m in re.finditer(r"(?m)^(#[\w$.-]+) = (loc\()", self._text)}

    def _parse_location(self) -> LocationAttr:
        token = self._current_token
        if token.kind is MLIRTokenKind.HASH_IDENT and token.text not in self.attribute_aliases:
            if (at := self._locations.pop(token.text, None)) is not None:
                self._resume_from(at)
                self.attribute_aliases[token.text] = self.parse_attribute()
                self._ahead.add(token.text)
                self._resume_from(token.span.start)
        elif token.text == "fused":
            self._consume_token()
            if self.parse_optional_punctuation("<") is None:
                self._resume_from(token.span.start)
                return super()._parse_location()
            why = self.parse_attribute()
            self.parse_punctuation(">")
            parts = self.parse_comma_separated_list(self.Delimiter.SQUARE, self._parse_location)
            return FusedLoc(ArrayAttr(parts), why)
        found = super()._parse_location()
        if isinstance(found, FileLineColLoc) and self.parse_optional_keyword("to"):
            for _ in range(2):  # the end of a range, [line]:column, has no attribute here
                self.parse_optional_integer()
                self.parse_optional_punctuation(":")
        return found

    # Data behind the module.
    def _parse_file_metadata_dictionary(self) -> None:
        """Blobs were found where they were needed; the rest is for the tool that wrote it."""
        whole = _METADATA.match(self._text, self.pos)
        if whole is None:
            self.raise_error("{-# has no #-} behind it")
        self._resume_from(whole.end())

    @cached_property
    def _blobs(self) -> dict[str, str]:
        parts = _METADATA.findall(self._text) if "{-#" in self._text else []
        return {m[1] or m[2]: m[3] for part in parts for m in _BLOB.finditer(part)}

    def _parse_builtin_dense_resource_attr(self) -> Any:
        return self.parse_dense_resource(None)

    def parse_dense_resource(self, type: Any) -> DenseIntOrFPElementsAttr | DenseResourceAttr:
        """`<blob> : type`, or without the type where it is known: the elements that the text has of the blob.

        A constant whose data was left out (`--mlir-elide-elementsattrs-if-larger`) can be read, and not run.
        """
        start = self.pos
        self.parse_punctuation("<", " in dense_resource attribute")
        key = self.parse_optional_str_literal() or self.parse_identifier(" for resource handle")
        self.parse_punctuation(">", " in dense_resource attribute")
        known = type is not None
        if not known:
            self.parse_punctuation(":", " in dense_resource attribute")
            type = self._parse_dense_literal_type()
        data = self._blobs.get(key)
        if data is None and not known:
            return DenseResourceAttr.from_params(key, type)
        if data is None:
            self.raise_error(f"the text has no data of dense_resource {key}", start, self.pos)
        raw = bytes.fromhex(data if len(data) % 2 == 0 else f"0{data}")[_ALIGNMENT:]
        return self._elements(type, raw, start)

    def _elements(self, type: Any, raw: bytes, start: int) -> DenseIntOrFPElementsAttr:
        found = DenseIntOrFPElementsAttr(type, BytesAttr(raw))
        count = math.prod(type.get_shape())
        if count * type.element_type.compile_time_size != len(raw):
            said = f"Expected {count} elements from the type, but got {len(raw)} bytes"
            self.raise_error(said, start, self.pos)
        return found

    # Constants.
    def parse_dense_int_or_fp_elements_attr(self, type: Any) -> DenseIntOrFPElementsAttr:
        start = self.pos
        try:
            found = self._packed(type)  # which is false where it has no elements
            return super().parse_dense_int_or_fp_elements_attr(type) if found is None else found
        except OverflowError:
            self.raise_error("a number is beyond what the element type holds", start, self.pos)

    def _packed(self, type: Any) -> DenseIntOrFPElementsAttr | None:
        """`<"0x05"> : tensor<4xi1>`, eight elements a byte, and `<1.5>`, one for all, which takes no list of them."""
        start = self.pos
        self.parse_punctuation("<", " in dense attribute")
        data = self.parse_optional_str_literal()
        one = None
        if data is None and not self._current_token.text.startswith((">", "[", "(")):
            one = self._parse_tensor_literal_element()
        if (data is None and one is None) or self.parse_optional_punctuation(">") is None:
            self._resume_from(start)
            return None
        if type is None:
            self.parse_punctuation(":", " in dense attribute")
            type = self._parse_dense_literal_type()
        count, element = math.prod(type.get_shape()), type.element_type
        if one is not None:
            value = one.to_type(self, element)
            single = DenseIntOrFPElementsAttr.from_list(MemRefType(element, [1]), [value])  # pyright: ignore
            return DenseIntOrFPElementsAttr(type, BytesAttr(single.data.data * count))
        if not cast(str, data).startswith(("0x", "0X")):
            self.raise_error(
                "expected string containing hex digits starting with `0x`", start, self.pos
            )
        if element != IntegerType(1) or re.fullmatch("0x00|0x(FF|ff)", cast(str, data)):
            self._resume_from(start)
            return None
        try:
            bits = bytes.fromhex(cast(str, data)[2:])
        except ValueError:
            self.raise_error("Hex string in denseAttr is invalid", start, self.pos)
        if len(bits) != -(-count // 8):
            said = f"Expected {count} elements from the type, but got {8 * len(bits)} bits"
            self.raise_error(said, start, self.pos)
        number = int.from_bytes(bits, "little")
        return DenseIntOrFPElementsAttr.from_list(type, [number >> n & 1 for n in range(count)])

    def _parse_optional_builtin_parametrized_attr(self) -> Attribute | None:
        if self._current_token.text != "sparse":
            return super()._parse_optional_builtin_parametrized_attr()
        self._consume_token()
        return self._sparse()

    def _sparse(self) -> DenseIntOrFPElementsAttr:
        """`<[[0, 0], [1, 2]], [1, 5]> : tensor<2x3xi32>`: where elements are, and which; the others are zero."""
        start = self.pos
        self.parse_punctuation("<")
        at, values = list[Any](), list[Any]()
        indices: list[int] = [0]
        if self.parse_optional_punctuation(">") is None:
            at, indices = self._parse_tensor_literal()
            self.parse_punctuation(",")
            values = self._parse_tensor_literal()[0]
            self.parse_punctuation(">")
        self.parse_punctuation(":")
        type = cast(Any, self._parse_dense_literal_type())
        shape, element = list(type.get_shape()), type.element_type
        where = [n.to_int(self, False, False) for n in at]
        rank = indices[1] if len(indices) == 2 else 1
        places = [where[n : n + rank] for n in range(0, len(where), rank)]
        fits = all(
            len(p) == len(shape) and all(i < n for i, n in zip(p, shape, strict=True))
            for p in places
        )
        if not fits or len(values) not in (1, len(places)):
            self.raise_error(f"sparse elements do not fit {type}", start, self.pos)
        numbers: list[Any] = [type.element_type.unpack(bytes(element.compile_time_size), 1)[0]]
        numbers *= math.prod(shape)
        for place, value in zip(
            places, values * (len(places) if len(values) == 1 else 1), strict=True
        ):
            flat = sum(i * math.prod(shape[d + 1 :]) for d, i in enumerate(place))
            numbers[flat] = value.to_type(self, element)
        return DenseIntOrFPElementsAttr.from_list(type, numbers)

    # Numbers.
    def parse_optional_builtin_int_or_float_attr(self) -> IntegerAttr | FloatAttr | None:
        start = self.pos
        try:
            value = super().parse_optional_builtin_int_or_float_attr()
        except OverflowError:
            self._resume_from(start)
            number = self.parse_number()
            self.parse_punctuation(":")
            kind = self.parse_type()
            if self._text[start : start + 2].lower() == "0x":
                self.raise_error(f"hexadecimal value is too large for {kind}", start, self.pos)
            value = float_attr(number, kind)
        if isinstance(value, FloatAttr) and (why := no_float(self._text[start : self.pos])):
            self.raise_error(why, start, self.pos)
        if isinstance(value, IntegerAttr) and isinstance(value.type, IndexType):
            self._within_index(value.value.data, start)
        return value

    def parse_optional_integer(
        self, allow_boolean: bool = True, allow_negative: bool = True
    ) -> int | None:
        start = self.pos
        number = super().parse_optional_integer(allow_boolean, allow_negative)
        if number is not None and number >= 1 << 64:
            self._within_index(number, start)
        return number

    def parse_optional_number(self, *, allow_boolean: bool = False) -> int | float | None:
        """One whose type follows, which may be wider than an index."""
        start = self.pos
        found = self._parse_optional_bool_int_or_float()
        if found is None or (isinstance(found[0], bool) and not allow_boolean):
            self._resume_from(start)
            return None
        return found[0]

    def parse_affine_map(self) -> AffineMap:
        start = self.pos
        found = super().parse_affine_map()
        for result in found.results:
            for part in result.dfs():
                if isinstance(part, AffineConstantExpr):
                    self._within_index(part.value, start)
        return found

    def _within_index(self, number: int, start: int) -> None:
        if not -(1 << 63) <= number < 1 << 63:
            self.raise_error("integer constant out of range for attribute", start, self.pos)

    # Types.
    def _parse_memref_attrs(self) -> MemRefType | UnrankedMemRefType:
        """As in MLIR, the memory space 0 is none."""
        kind = super()._parse_memref_attrs()
        space = kind.memory_space
        if isinstance(kind, MemRefType) and isinstance(space, IntegerAttr) and not space.value.data:
            return MemRefType(kind.element_type, kind.shape, kind.layout)
        return kind

    def parse_shape_dimension(self, allow_dynamic: bool = True) -> int:
        start = self.pos
        extent = super().parse_shape_dimension(allow_dynamic)
        if extent >= 1 << 63:
            self.raise_error("invalid dimension: an extent has 63 bits", start, self.pos)
        return extent

    def parse_dimension_list(self) -> list[int]:
        """As in MLIR, blanks may stand around the `x`: `16 x f32`."""
        dims: list[int] = []
        kinds = (MLIRTokenKind.INTEGER_LIT, MLIRTokenKind.QUESTION)
        more = self._current_token.kind in kinds
        while more:
            dims.append(self.parse_shape_dimension())
            delimiter = self.pos
            more = self._parse_optional_shape_delimiter() is not None
            if more and self._current_token.kind not in kinds:
                self._resume_from(delimiter)  # the `x` in front of the element type is the caller's
                more = False
        return dims

    def _parse_extended_type_or_attribute(self, attr_or_dialect_name: str, is_type: Any) -> Any:
        """`#wg_map<...>` and `!tile<...>`, as the RFCs and slides write them."""
        short = attr_or_dialect_name in _RFC_ATTRIBUTES
        if short and self._current_token.kind == MLIRTokenKind.LESS:
            attr_or_dialect_name = f"xetile.{attr_or_dialect_name}"
        return super()._parse_extended_type_or_attribute(attr_or_dialect_name, is_type)

    def _parse_dialect_type_or_attribute_body(
        self, attr_name: str, is_type: bool, is_opaque: bool, starting_opaque_pos: int | None
    ) -> Any:
        """An attribute of a dialect that nobody registered is kept as it is written."""
        dialect = attr_name.partition(".")[0]
        known = set(self.ctx.registered_dialect_names) | {d.name for d in self.ctx.loaded_dialects}
        known -= OF_A_MACHINE
        if not is_type and dialect not in known and self.ctx.get_optional_attr(attr_name) is None:
            kind = UnregisteredAttr.with_name_and_type(attr_name, False)
            if starting_opaque_pos is None:
                body = ""
                if self._current_token.kind is MLIRTokenKind.LESS:
                    body = self._parse_dialect_symbol_body()
            else:
                end = self._raw_scan_balanced(starting_opaque_pos)
                body = self._text[starting_opaque_pos:end]
                self._resume_from(end)
            return kind(attr_name, False, is_opaque, body)
        return super()._parse_dialect_type_or_attribute_body(
            attr_name, is_type, is_opaque, starting_opaque_pos
        )
