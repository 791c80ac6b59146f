"""spirv, xevm: the attributes that GPU programs carry for later stages, kept as written."""

from __future__ import annotations

from xdsl.ir import Attribute, Data, Dialect
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer

# Nothing here looks into them: the text between the brackets is all that counts.
NAMES = (
    "entry_point_abi",
    "interface_var_abi",
    "resource_limits",
    "storage_class",
    "target_env",
    "vce",
)


class VerbatimAttr(Data[str]):
    """`#spirv.target_env<...>`: the text between the brackets, brackets included."""

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> str:
        if not parser.lexer.input.content.startswith("<", parser.pos):
            return ""
        body = parser._parse_dialect_symbol_body()  # pyright: ignore[reportPrivateUsage]
        return f"<{body}>"

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(self.data)


def _verbatim(dialect: str, name: str) -> type[Attribute]:
    fields = {"name": f"{dialect}.{name}", "__module__": __name__}
    return irdl_attr_definition(type(f"{name}_attr", (VerbatimAttr,), fields))


Spirv = Dialect("spirv", [], [_verbatim("spirv", name) for name in NAMES])

Xevm = Dialect("xevm", [], [_verbatim("xevm", "target")])
