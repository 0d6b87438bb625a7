"""What a report page is made of: sections with facts, figures and tables. Methods return the same kinds."""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Figure:
    """An inline SVG with what it shows, in words."""

    svg: str
    caption: str


@dataclass(frozen=True)
class Table:
    """Rows of texts. `total` is how many rows there are where `rows` is cut."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    total: int | None = None
    numeric: Sequence[int] = ()  # columns aligned to the right

    @property
    def left_out(self) -> int:
        return max(0, (self.total or 0) - len(self.rows))


@dataclass(frozen=True)
class Section:
    """A titled part of the page."""

    title: str
    notes: Sequence[str] = ()
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = field(default=())

    @property
    def empty(self) -> bool:
        return not (self.notes or self.figures or any(table.rows for table in self.tables))
