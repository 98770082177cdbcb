"""How figures look and how they become deterministic SVG that follows the page's colours."""

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import StringIO

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

# Stands for the text colour of the page and becomes `currentColor` in the file.
INK = "#010203"
# Okabe and Ito's palette, told apart with every common colour vision; their yellow is too light for lines, and their
# black is the page's text colour. Three more (Tol's muted olive and purple, grey) for studies of many arms.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", INK, "#999933", "#AA4499", "#7F7F7F")
MARKERS = ("o", "s", "^", "D", "v", "P")
PANEL_WIDTH = 3.4
"""Width of every panel, in inches: a phone's."""
_SETTINGS = {
    "svg.fonttype": "none",
    "svg.hashsalt": "jagg",
    "font.family": "sans-serif",
    "font.size": 9,
    "font.sans-serif": ["DejaVu Sans"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "axes.grid": True,
    "grid.alpha": 0.15,
    "axes.titlesize": 9,
    "legend.frameon": False,
    **dict.fromkeys(
        (
            "text.color",
            "axes.labelcolor",
            "axes.edgecolor",
            "xtick.color",
            "ytick.color",
            "grid.color",
            "axes.titlecolor",
        ),
        INK,
    ),
}


@contextmanager
def drawing() -> Iterator[None]:
    """The look of all figures; no screen is ever asked for."""
    with matplotlib.rc_context(_SETTINGS):
        yield


def panel(title: str, height: float, left: float = 0.78) -> tuple[Figure, Axes]:
    """A figure of one panel; height without a legend, and room for labels on the left, in inches.

    Margins are fixed: panels side by side line up, and drawing takes half the time that fitting them would.
    """
    figure = Figure(figsize=(PANEL_WIDTH, height))
    axis = figure.subplots()
    axis.set_title(title, loc="left")
    top = 0.12 + 0.16 * (title.count("\n") + 1)
    figure.subplots_adjust(
        left=left / PANEL_WIDTH, right=1 - 0.12 / PANEL_WIDTH, bottom=0.5 / height, top=1 - top / height
    )
    return figure, axis


def arm_colours(arms: Sequence[str], reference: str) -> dict[str, str]:
    """Colour of each arm; the reference always has the first."""
    ordered = [reference, *(arm for arm in arms if arm != reference)]
    return {arm: COLOURS[place % len(COLOURS)] for place, arm in enumerate(ordered)}


def algorithm_markers(algorithms: Sequence[str]) -> dict[str, str]:
    """Marker of each algorithm."""
    return {algorithm: MARKERS[place % len(MARKERS)] for place, algorithm in enumerate(algorithms)}


def add_legend(figure: Figure, colours: dict[str, str], further: Sequence[Line2D] = ()) -> None:
    """One legend of arms above the panel, which grows by it; as many columns as the longest name leaves room for."""
    handles = [*(Line2D([], [], color=colour, linewidth=2, label=arm) for arm, colour in colours.items()), *further]
    longest = max(len(str(handle.get_label())) for handle in handles)
    columns = max(1, min(3, int(PANEL_WIDTH / (0.36 + 0.062 * longest))))
    height, ends = figure.get_figheight(), (figure.subplotpars.bottom, figure.subplotpars.top)
    taller = height + 0.03 + 0.165 * math.ceil(len(handles) / columns)
    figure.set_figheight(taller)
    figure.subplots_adjust(bottom=ends[0] * height / taller, top=ends[1] * height / taller)
    figure.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(0, 1),
        ncols=columns,
        fontsize=8,
        handlelength=1.2,
        columnspacing=1.2,
        borderaxespad=0.2,
    )


def css_colour(colour: str) -> str:
    """A colour as a style sheet writes it."""
    return colour.replace(INK, "currentColor")


def to_svg(figure: Figure, name: str) -> str:
    """The figure as one SVG element: equal figures give equal text, and ids are unique to `name`."""
    buffer = StringIO()
    FigureCanvasSVG(figure)
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = text.replace("url(#", f"url(#{name}-").replace('href="#', f'href="#{name}-')
    return css_colour(text)
