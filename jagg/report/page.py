"""report.html: one file that opens offline, and the figures that it shows."""

import csv
import datetime
import re
from io import StringIO
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

import jagg
from jagg.config import Study
from jagg.keys import StudyPaths
from jagg.records import atomic_path
from jagg.report.content import content
from jagg.report.data import Row, read_study
from jagg.report.figures.plot import Plot
from jagg.report.images import Grid, data_uri, grids, png_bytes
from jagg.report.plots import all_plots
from jagg.report.style import drawing, to_svg
from jagg.report.words import gains


def build(study: Study, paths: StudyPaths, date: str | None = None) -> None:
    """Write figures/*.svg, figures/*.png, a CSV of the rows behind each, and report.html, from tables/ and images.

    Args:
        date: the page's date; default today's, in UTC. Nothing else differs between two builds of the same tables.

    Raises:
        InputError: a table or an image is missing or damaged.
    """
    data = read_study(study, paths)
    sheets = grids(data)
    with drawing():
        plots = {plot.name: (plot, _svgs(plot)) for plot in all_plots(data)}
    for plot, svgs in plots.values():
        for name, svg in svgs.items():
            _write_text(paths.figure(f"{name}.svg"), svg)
        _write_text(paths.figure(f"{plot.name}.csv"), _csv(plot.rows))
    for grid in sheets:
        with atomic_path(paths.figure(f"{grid.name}.png")) as temporary:
            temporary.write_bytes(png_bytes(grid.sheet()))
        _write_text(paths.figure(f"{grid.name}.csv"), _csv(grid.rows))
    _write_text(paths.figure("gains.csv"), _csv(gains(data)))
    page = _template().render(
        **content(data),
        version=jagg.__version__,
        plots={name: _inline(plot, svgs) for name, (plot, svgs) in plots.items()},
        grids=[_inline_grid(grid) for grid in sheets],
        date=date or datetime.datetime.now(datetime.UTC).date().isoformat(),
    )
    _write_text(paths.report, page)


def _svgs(plot: Plot) -> dict[str, str]:
    return {name: to_svg(figure, name) for name, figure in plot.files()}


def _write_text(path: Path, text: str) -> None:
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _csv(rows: list[Row]) -> str:
    """Rows as CSV; floats have 10 significant digits, what is unknown is empty."""
    buffer = StringIO()
    if rows:
        writer = csv.DictWriter(buffer, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(
            {name: f"{value:.10g}" if isinstance(value, float) else value for name, value in row.items()}
            for row in rows
        )
    return buffer.getvalue()


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html")


def _inline(plot: Plot, svgs: dict[str, str]) -> dict[str, Any]:
    """A figure as a part of the page: its panels scale with the page, and have names for those who cannot see them."""
    panels = []
    for panel, svg in zip(plot.panels, svgs.values()):
        opening = re.sub(r' (?:width|height)="[^"]*"', "", svg[: svg.index(">")])
        label = Markup.escape(f"{plot.title}: {panel}")
        panels.append(Markup(f'{opening} role="img" aria-label="{label}"' + svg[svg.index(">") :]))
    return {"plot": plot, "panels": panels, "files": list(svgs)}


def _inline_grid(grid: Grid) -> dict[str, Any]:
    return {"grid": grid, "images": [[data_uri(image) for image in row] for row in grid.images]}
