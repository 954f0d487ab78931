"""`-format` and `-autoformat`: columns of an ad, byte for byte as HTCondor prints them.

A column is an attribute or an expression, and a format of printf. `r` shows it unevaluated, `V` as the language writes
it; a text in a column for numbers is left out. With headings all rows are laid out before the first is printed, since
columns are as wide as their widest value.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pool.compat import c_printf
from pool.compat.shown_ad import ShownAd, byte_text, references, unparsed

_DEFAULT = {"": "%v", "V": "%V", "r": "%r", "T": "%T", "Y": "%Y"}


@dataclass(slots=True)
class MaskColumn:
    """One column.

    Attributes:
        attribute: a name or an expression; empty for the job's id.
        format: printf's, with escapes resolved; the conversion is None if no value goes into it.
        heading: empty without headings.
        width: as many bytes at least.
        automatic: becomes as wide as its widest value.
    """

    attribute: str
    format: str
    conversion: c_printf.Conversion | None
    heading: str = ""
    width: int = 0
    left: bool = False
    automatic: bool = False
    is_job_id: bool = False
    expression: Any = None

    def cell(self, ad: ShownAd) -> str:
        """The text of an ad in this column, not aligned."""
        if self.is_job_id:
            return self._job_id(ad)
        conversion = self.conversion
        if conversion is None:
            return self.format
        found = ad.raw(self.attribute)
        own = found is not None
        if not own and self.expression is None:
            from pool.classad import parse_expr

            self.expression = parse_expr(self.attribute)
        kind = conversion.kind
        if kind == "string":
            value = ad.value(self.attribute) if own else ad.evaluate(self.expression)
            if isinstance(value, str):
                return c_printf.format_string(conversion, byte_text(value))
            if not own:
                return ""
            kind = "raw"
        if kind == "raw":
            return c_printf.format_string(conversion, byte_text(unparsed(found) if own else self._unparsed()))
        value = ad.value(self.attribute) if own else ad.evaluate(self.expression)
        if kind == "value":
            text = value if isinstance(value, str) and conversion.letter == "v" else unparsed(value)
            return c_printf.format_string(conversion, byte_text(text))
        return self._number(conversion, value)

    def _number(self, conversion: c_printf.Conversion, value: Any) -> str:
        if not isinstance(value, int | float) or value != value or value in (float("inf"), float("-inf")):
            return ""
        if conversion.kind == "float":
            return c_printf.format_real(conversion, float(value))
        whole = c_printf.whole_number(value)
        if conversion.kind == "time":
            return c_printf.format_span(whole)
        if conversion.kind == "date":
            return c_printf.format_date(whole)
        return c_printf.format_integer(conversion, whole)

    def _unparsed(self) -> str:
        from pool.classad.nodes import Ref

        return "undefined" if isinstance(self.expression.node, Ref) else str(self.expression.long_text())

    def _job_id(self, ad: ShownAd) -> str:
        text = f"{ad.integer('ClusterId')}.{ad.integer('ProcId', -1)}"
        return self.format.replace("%v", text)

    def measure(self, ad: ShownAd, text: str) -> None:
        """Widen the column before its heading is printed, by what HTCondor counts: the value itself, not its quotes or
        label, reals in full precision, and no list, truth value or undefined.
        """
        width = len(text)
        if self.is_job_id:
            width -= len(self.format) - 2
        elif self.conversion is not None and self.conversion.kind == "value":
            value = ad.value(self.attribute) if ad.has(self.attribute) else ad.evaluate(self.expression)
            if isinstance(value, float):
                width = len(f"{value:.15E}") if value else 3
            elif isinstance(value, str):
                width = len(byte_text(value))
            elif isinstance(value, bool) or not isinstance(value, int):
                return
        self.width = max(self.width, width)

    def aligned(self, text: str) -> str:
        """The text as wide as the column."""
        if self.automatic and len(text) > self.width:
            self.width = len(text)
        return text.ljust(self.width) if self.left else text.rjust(self.width)


@dataclass(slots=True)
class PrintMask:
    """The columns of one command line, and what stands between them."""

    columns: list[MaskColumn] = field(default_factory=list)
    before_row: str = ""
    before_cell: str = ""
    after_cell: str = ""
    after_row: str = ""

    def add_format(self, text: str, attribute: str) -> None:
        """`-format TEXT ATTRIBUTE`.

        Raises:
            PoolError: the attribute is no expression.
        """
        references([attribute])
        text = byte_text(c_printf.collapse_escapes(text))
        conversion = c_printf.read_format(text)
        width, left = (conversion.width, conversion.left) if conversion else (0, False)
        self.columns.append(MaskColumn(attribute, text, conversion, width=width, left=left))

    def add_automatic(self, letters: str, attributes: Sequence[str]) -> None:
        """`-autoformat:LETTERS ATTRIBUTE ...`; letters without a meaning are refused.

        Raises:
            PoolError: a letter or an attribute cannot be understood.
        """
        if unknown := set(letters) - set(",ngtlVroTYhj"):
            from pool.errors import PoolError

            raise PoolError(f"-autoformat:{letters}: there is no '{min(unknown)}'", hint="the letters are jlhVrTY,tng")
        references(attributes)
        self.before_cell = "" if "g" in letters else "\t" if "t" in letters else " "
        self.before_row = "\n" if "g" in letters else ""
        self.after_cell = _last(letters, {",": ",", "n": "\n"})
        self.after_row = "\n"
        headings, labels = "h" in letters or self.has_headings, "l" in letters
        if "j" in letters:
            text = "ID = %v" if labels else "%v"
            heading = " ID" if headings else ""
            self.columns.append(MaskColumn("", text, None, heading, left=True, automatic=headings, is_job_id=True))
        letter = next((one for one in "rVYT" if one in letters.replace("o", "r")), "")
        for attribute in attributes:
            label = byte_text(attribute) + " = " if labels and not headings else ""
            text = byte_text(c_printf.collapse_escapes(label)) + _DEFAULT[letter]
            heading = byte_text(attribute) if headings else ""
            conversion = c_printf.read_format(text)
            self.columns.append(
                MaskColumn(attribute, text, conversion, heading, len(heading), left=headings, automatic=headings)
            )

    @property
    def has_headings(self) -> bool:
        return any(column.heading for column in self.columns)

    def needed_attributes(self) -> list[str]:
        """The attributes to ask for."""
        wanted = references([column.attribute for column in self.columns if not column.is_job_id])
        if any(column.is_job_id for column in self.columns):
            wanted += ["ClusterId", "ProcId"]
        return list(dict.fromkeys(wanted))

    def cells(self, ad: ShownAd) -> list[str]:
        """An ad's texts. Each is seen, so that columns are wide enough when rows are printed."""
        texts = [column.cell(ad) for column in self.columns]
        for column, text in zip(self.columns, texts, strict=True):
            if column.automatic:
                column.measure(ad, text)
        return texts

    def row(self, cells: Iterable[str]) -> str:
        """A row as it is printed, its end included."""
        return self._joined(
            [
                column.aligned(cell) if column.width or column.automatic else cell
                for column, cell in zip(self.columns, cells, strict=True)
            ]
        )

    def header(self) -> str:
        """The headings as they are printed; nothing without headings."""
        if not self.has_headings:
            return ""
        return self._joined([column.heading.ljust(column.width) for column in self.columns])

    def _joined(self, cells: list[str]) -> str:
        return self.before_row + (self.after_cell + self.before_cell).join(cells) + self.after_row


def _last(letters: str, meanings: dict[str, str]) -> str:
    found = [meanings[letter] for letter in letters if letter in meanings]
    return found[-1] if found else ""
