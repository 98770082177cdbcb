"""Image-text scorers, by family."""

from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

from jagg.config import Scorer as ScorerConfig
from jagg.errors import unknown_name
from jagg.scorers.protocol import Scorer
from jagg.startup import uncollected

Loader = Callable[[ScorerConfig, Path, str], Scorer]


def _hpsv2(config: ScorerConfig, folder: Path, device: str) -> Scorer:
    from jagg.scorers.hpsv2 import load

    return load(config, folder, device)


def _pickscore(config: ScorerConfig, folder: Path, device: str) -> Scorer:
    from jagg.scorers.pickscore import load

    return load(config, folder, device)


def _clipscore(config: ScorerConfig, folder: Path, device: str) -> Scorer:
    from jagg.scorers.clipscore import load

    return load(config, folder, device)


SCORERS: dict[str, Loader] = {"hpsv2": _hpsv2, "pickscore": _pickscore, "clipscore": _clipscore}
"""Family -> loader; each imports its own libraries only. Entry points of group `jagg.scorers` add to it."""


def scorer_loader(family: str) -> Loader:
    """The loader of a family, built in or from an installed plug-in.

    Raises:
        InputError: no such family.
    """
    if family in SCORERS:
        return SCORERS[family]
    plug_ins = {entry.name: entry for entry in entry_points(group="jagg.scorers")}
    if family not in plug_ins:
        raise unknown_name("scorer family", family, [*SCORERS, *plug_ins])
    return plug_ins[family].load()


def load_scorer(config: ScorerConfig, folder: Path, device: str = "cpu") -> Scorer:
    """A scorer ready to score; embedded and full-size ones go through the same code.

    `folder` is the scorer's own, results/<study>/scorers/<metric>/: it holds scorer.json and the weights of an
    embedded one.

    Raises:
        InputError: unknown family, missing or damaged weights, a hub that cannot be reached, a warning while loading.
    """
    from jagg.scorers.cosine import warnings_are_errors
    from jagg.scorers.sources import check_built

    loader = scorer_loader(config.family)
    check_built(config, Path(folder))
    with uncollected(), warnings_are_errors(f"scorer family {config.family}"):
        return loader(config, Path(folder), device)


def preflight(scorers: dict[str, Scorer]) -> dict[str, float]:
    """Score one bundled 64x64 image with every scorer (metric -> scorer), before any work depends on them.

    Raises:
        InputError: a value is not one finite cosine.
    """
    from jagg.scorers.first_score import preflight_value

    return {metric: preflight_value(metric, scorer) for metric, scorer in scorers.items()}
