"""What a figure is: panels of one width, which a page lays side by side or below each other, and the rows they show."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jagg.report.data import Row, StudyData
from jagg.report.style import INK, panel
from jagg.stats.compare import POOLED
from jagg.stats.join import Cell


@dataclass(frozen=True)
class Plot:
    """A figure, what it says to those who cannot see it, its rows, and how many panels stand side by side."""

    name: str
    title: str
    caption: str
    panels: dict[str, Figure]
    rows: list[Row]
    columns: int = 3

    def files(self) -> Iterator[tuple[str, Figure]]:
        """File name without its ending, and figure, of each panel."""
        for name, figure in self.panels.items():
            yield f"{self.name}-{name}", figure


LABELS = 1.12
"""Room for the names of cells left of a panel, in inches."""
RUN = ("backbone", "algorithm", "arm", "seed")


def cell_panels(data: StudyData, height: float = 2.1) -> Iterator[tuple[Cell, str, str, Figure, Axes]]:
    """An empty panel for each cell and metric: cell, metric, the panel's name, figure and axes."""
    for cell in data.cells:
        for metric in data.study.scorers:
            figure, axis = panel(f"{cell[0]}, {cell[1]}\n{data.metric_label(metric)}", height)
            yield cell, metric, f"{cell[0]}-{cell[1]}-{metric}", figure, axis


def metric_columns(data: StudyData) -> int:
    """Panels side by side where each metric has one."""
    return min(3, len(data.study.scorers))


def place_label(place: Cell) -> str:
    """A cell, or the mean over cells, on two lines of an axis."""
    return "mean over\ncells" if place == (POOLED, POOLED) else "\n".join(place)


def of_cell(rows: Iterable[Row], cell: Cell, metric: str | None = None) -> list[Row]:
    """Rows of one cell, and of one metric where given."""
    return [
        row
        for row in rows
        if (row["backbone"], row["algorithm"]) == cell and (metric is None or row["metric"] == metric)
    ]


def margin_band(data: StudyData, axis: Axes, metric: str, vertical: bool = False) -> None:
    """The margin of equivalence around 0 as a shaded band, and the line of no difference."""
    margin = data.margin(metric)
    span, line = (axis.axvspan, axis.axvline) if vertical else (axis.axhspan, axis.axhline)
    if margin is not None:
        span(*margin, color=INK, alpha=0.08, linewidth=0)
    line(0, color=INK, linewidth=0.8)


def say_if_empty(axis: Axes, rows: Iterable[Row]) -> None:
    """In the place of a panel's axes, where it has no rows: that nothing was there to be drawn."""
    if not list(rows):
        for artist in [*axis.patches, *axis.lines]:
            artist.remove()
        axis.set_axis_off()
        axis.text(0.5, 0.5, "no complete runs to show", transform=axis.transAxes, ha="center", fontsize=8)
