"""report.html: one file that opens offline, and the figures that it shows."""

import csv
import datetime
import re
from io import StringIO
from pathlib import Path
from statistics import fmean
from typing import Any

import jinja2
from markupsafe import Markup

import jagg
from jagg.config import Study
from jagg.keys import RunKey, StudyPaths
from jagg.records import atomic_path, read_json
from jagg.report.data import Row, StudyData, read_study
from jagg.report.figures import Plot, all_plots
from jagg.report.images import Grid, data_uri, grids, png_bytes
from jagg.report.style import arm_colours, drawing, to_svg
from jagg.report.tables import COMPLETE
from jagg.report.words import arm_differences, gains, is_embedded, limits, number, p_text, run_counts, signed, verdicts


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
        plots = {plot.name: (plot, to_svg(plot.figure, plot.name)) for plot in all_plots(data)}
    for plot, svg in plots.values():
        _write_text(paths.figure(f"{plot.name}.svg"), svg)
        _write_text(paths.figure(f"{plot.name}.csv"), _csv(plot.rows))
    for grid in sheets:
        with atomic_path(paths.figure(f"{grid.name}.png")) as temporary:
            temporary.write_bytes(png_bytes(grid.sheet()))
        _write_text(paths.figure(f"{grid.name}.csv"), _csv(grid.rows))
    today = date or datetime.datetime.now(datetime.UTC).date().isoformat()
    _write_text(paths.report, _template().render(**_content(data, plots, sheets), date=today))


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
    environment.filters.update(number=number, signed=signed, p=p_text)
    return environment.get_template("report.html")


def _content(data: StudyData, plots: dict[str, tuple[Plot, str]], sheets: list[Grid]) -> dict[str, Any]:
    study = data.study
    return {
        "version": jagg.__version__,
        "study": study,
        "reference": data.reference,
        "embedded": is_embedded(data),
        "counts": run_counts(data),
        "not_complete": [row for row in data.runs if row["status"] != COMPLETE],
        "verdicts": verdicts(data),
        "gains": gains(data),
        "backbones": [_backbone(data, name) for name in study.backbones],
        "scorers": [_scorer(data, name) for name in study.scorers],
        "colours": arm_colours(list(study.arms), data.reference),
        "plots": {name: {"plot": plot, "svg": _inline(svg, plot)} for name, (plot, svg) in plots.items()},
        "differences": data.last_differences(),
        "passes": passes_by_arm(data),
        "grids": [
            {"grid": grid, "images": [[data_uri(image) for image in row] for row in grid.images]} for grid in sheets
        ],
        "arm_differences": arm_differences(data),
        "limits": limits(data),
        "environments": environments(data),
    }


def _inline(svg: str, plot: Plot) -> Markup:
    """The figure as a part of the page: scaled by it, and named for those who cannot see it."""
    opening = svg[: svg.index(">")]
    opening = re.sub(r' (?:width|height)="[^"]*"', "", opening)
    title = Markup.escape(plot.title)
    return Markup(f'{opening} role="img" aria-label="{title}"' + svg[svg.index(">") :])


def _backbone(data: StudyData, name: str) -> Row:
    path = data.paths.backbone(name) / "model.json"
    record = read_json(path) if path.exists() else {}
    config = data.study.backbones[name]
    return {
        "name": name,
        "label": record.get("label", name),
        "kind": config.source.kind,
        "config": config,
        "quality": _backbone_quality(record.get("quality", {})),
    }


def _backbone_quality(quality: Row) -> str:
    """What an embedded backbone's own check measured on held-out captions."""
    if not quality:
        return "–"
    colours = quality["colour_accuracy"]
    return (
        f"right background {colours['background']:.0%}, right shape colour {colours['shape']:.0%} of "
        f"{quality['colour_accuracy_samples']} samples; autoencoder {quality['autoencoder_psnr_db']:.1f} dB"
    )


def _scorer(data: StudyData, metric: str) -> Row:
    path = data.paths.scorer(metric) / "scorer.json"
    record = read_json(path) if path.exists() else {}
    weight = data.study.reward.weights.get(metric)
    role = "held out" if weight is None else f"optimised, weight {weight:g}"
    kind = data.study.scorers[metric].source.kind
    return {
        "name": metric,
        "label": record.get("label", metric),
        "kind": kind,
        "role": role,
        "quality": _scorer_quality(record.get("held_out_accuracy", {})),
    }


def _scorer_quality(accuracy: Row) -> str:
    """How often an embedded scorer ranks a right caption above one with one word wrong, on held-out images."""
    pairs = {"colour": "right_colour", "shape": "right_shape", "background": "right_background"}
    if not accuracy:
        return "–"
    return ", ".join(f"{word} {accuracy[name]:.0%}" for word, name in pairs.items()) + " (chance 50 %)"


def passes_by_arm(data: StudyData) -> list[Row]:
    """Each cell and arm: passes a trajectory, times in seconds a training step; means over seeds."""
    found = []
    for backbone, algorithm in data.cells:
        for arm in data.study.arms:
            wanted = (backbone, algorithm, arm)
            runs = [row for row in data.passes if (row["backbone"], row["algorithm"], row["arm"]) == wanted]
            if not runs:
                continue
            per_trajectory = sorted({row["backward_passes_per_trajectory"] for row in runs})
            found.append(
                {
                    "cell": f"{backbone}, {algorithm}",
                    "arm": arm,
                    "runs": len(runs),
                    "per_trajectory": per_trajectory,
                    "ratio": _mean(runs, "ratio_to_baseline"),
                    "as_expected": all(row["backward_passes"] == row["backward_passes_expected"] for row in runs),
                    "forward": fmean(row["forward_passes"] / row["trajectories"] for row in runs),
                    "rollout_s": fmean(row["rollout_s"] / row["trained_steps"] for row in runs),
                    "update_s": fmean(row["update_s"] / row["trained_steps"] for row in runs),
                    "update_ratio": _mean(runs, "update_time_ratio"),
                    "step_ratio": _mean(runs, "step_time_ratio"),
                }
            )
    return found


def _mean(rows: list[Row], name: str) -> float | None:
    values = [row[name] for row in rows if row[name] is not None]
    return fmean(values) if values else None


def environments(data: StudyData) -> list[Row]:
    """Environments that the complete runs record, with the number of runs in each."""
    found: dict[str, Row] = {}
    for key in data.complete_keys():
        environment = _environment(data, key)
        if environment is not None:
            entry = found.setdefault(environment["lock_sha256"], {**environment, "runs": 0})
            entry["runs"] += 1
    return [found[name] for name in sorted(found)]


def _environment(data: StudyData, key: RunKey) -> Row | None:
    environment: Row | None = data.record(key).get("environment")
    return environment
