"""How close each estimator's window gradients come to the exact ones."""

from matplotlib.ticker import MaxNLocator

from jagg.report.data import StudyData
from jagg.report.figures.plot import Plot, of_cell
from jagg.report.style import COLOURS, INK, MARKERS, add_legend, panel

THRESHOLD = 0.5
"""The published routing threshold on the cosine."""
_LINES = ("-", "--", ":")


def gradient_quality(data: StudyData) -> Plot:
    """Cosine with the exact gradient by window: a colour for each estimator, a line style for each split."""
    rows = data.gradient_quality
    estimators = list(dict.fromkeys(row["estimator"] for row in rows))
    splits = list(dict.fromkeys(row["split"] for row in rows))
    colours = {name: COLOURS[place % len(COLOURS)] for place, name in enumerate(estimators, start=1)}
    panels = {}
    for cell in data.cells:
        for step in sorted({row["step"] for row in of_cell(rows, cell)}):
            figure, axis = panel(f"{cell[0]}, {cell[1]}\ncheckpoint of training step {step}", 2.5)
            axis.axhline(THRESHOLD, color=INK, linewidth=0.8, linestyle=":")
            for place, estimator in enumerate(estimators):
                for split, line in zip(splits, _LINES):
                    mine = sorted(
                        (row["window"], row["cosine_mean"], row["cosine_sd"] or 0.0)
                        for row in of_cell(rows, cell)
                        if (row["step"], row["estimator"], row["split"]) == (step, estimator, split)
                        and row["cosine_mean"] is not None
                    )
                    if mine:
                        places, means, deviations = zip(*mine)
                        axis.errorbar(
                            places,
                            means,
                            yerr=deviations,
                            color=colours[estimator],
                            linestyle=line,
                            marker=MARKERS[place % 6],
                            markersize=4,
                            linewidth=1.4,
                            elinewidth=0.7,
                        )
            axis.set_xlabel("window, from noise to image")
            axis.set_ylabel("cosine with exact")
            windows = sorted({row["window"] for row in of_cell(rows, cell)})
            axis.set_xlim(windows[0] - 0.5, windows[-1] + 0.5)
            axis.xaxis.set_major_locator(MaxNLocator(integer=True))
            add_legend(figure, colours)
            panels[f"{cell[0]}-{cell[1]}-step-{step}"] = figure
    styles = ", ".join(f"{split} {word}" for split, word in zip(splits, ("solid", "dashed", "dotted")))
    return Plot(
        "gradient-quality",
        "Cosine of each estimator's gradient with the exact one",
        f"Mean over rollouts, bars of one standard deviation; {styles}. Dotted line: the published threshold of "
        f"{THRESHOLD}, above which a window is to be approximated.",
        panels,
        rows,
        columns=2,
    )
