"""report.html: one file that opens offline, and the figures that it shows."""

import csv
import datetime
import re
from collections.abc import Iterable
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
from jagg.report.narrative import gains
from jagg.report.plots import all_plots
from jagg.report.style import drawing, to_svg


def build(study: Study, paths: StudyPaths, date: str | None = None) -> None:
    """Write figures/*.svg, figures/*.png, a CSV of the rows behind each, and report.html, from tables/ and images.

    Figures of an earlier report that this one does not have are removed.

    Args:
        date: the page's date; default today's, in UTC. Nothing else differs between two builds of the same tables.

    Raises:
        InputError: a table or an image is missing or damaged.
    """
    data = read_study(study, paths)
    sheets = grids(data)
    with drawing():
        plots = {plot.name: (plot, _svgs(plot)) for plot in all_plots(data)}
    files = _figure_files(plots.values(), sheets) | {"gains.csv": _csv(gains(data)).encode()}
    for name, made in files.items():
        _write(paths.figure(name), made)
    page = _template().render(
        **content(data),
        version=jagg.__version__,
        plots={name: _inline(plot, svgs) for name, (plot, svgs) in plots.items()},
        grids=[_inline_grid(grid) for grid in sheets],
        date=date or datetime.datetime.now(datetime.UTC).date().isoformat(),
    )
    _write(paths.report, page.encode())
    for old in paths.figure("").iterdir():
        if old.name not in files and old.suffix in (".svg", ".png", ".csv"):
            old.unlink()


def _figure_files(plots: Iterable[tuple[Plot, dict[str, str]]], sheets: list[Grid]) -> dict[str, bytes]:
    """File name -> content of every figure and of the rows behind it."""
    files: dict[str, bytes] = {}
    for plot, svgs in plots:
        files |= {f"{name}.svg": svg.encode() for name, svg in svgs.items()}
        files[f"{plot.name}.csv"] = _csv(plot.rows).encode()
    for grid in sheets:
        files |= {f"{grid.name}.png": png_bytes(grid.sheet()), f"{grid.name}.csv": _csv(grid.rows).encode()}
    return files


def _svgs(plot: Plot) -> dict[str, str]:
    return {name: to_svg(figure, name) for name, figure in plot.files()}


def _write(path: Path, content: bytes) -> None:
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


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
