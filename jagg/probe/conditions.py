"""Which checkpoints, prompts and settings a probe measures; plain values, no tensors."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from jagg.algorithms import plans
from jagg.config import Algorithm, FlowGRPOFast, ProbeSplit, Study
from jagg.flow.schedule import TransitionPlan
from jagg.keys import RunKey

CALIBRATION, HOLDOUT, STRESS = "calibration", "holdout", "stress"
PROMPTS_OF = {CALIBRATION: "train", HOLDOUT: "evaluation", STRESS: "train"}
"""Split of the probe -> prompt set of the study that it takes its prompts from."""


@dataclass(frozen=True)
class Condition:
    """One batch of rollouts to be measured, on one checkpoint."""

    split: str
    step: int
    prompts: int
    algorithm: Algorithm
    estimators: tuple[str, ...]
    precision: str | None
    """Number format of the transformer; None: as trained."""

    def plans(self) -> tuple[TransitionPlan, ...]:
        """The algorithm's plans whose trained transitions lie side by side, so that each window is measured once."""
        every = plans(self.algorithm)
        first = every[0].trained[0]
        return tuple(plan for plan in every if (plan.trained[0] - first) % len(plan.trained) == 0)


def conditions(study: Study, key: RunKey) -> list[Condition]:
    """Every condition of a seed, number formats apart and checkpoints in order."""
    probe = study.probe
    assert probe is not None
    algorithm = study.algorithms[key.algorithm]
    found = [
        Condition(name, step, split.prompts, algorithm, probe.estimators, None)
        for name, split in ((CALIBRATION, probe.calibration), (HOLDOUT, probe.holdout))
        for step in _steps(split, key)
    ]
    if probe.stress is not None:
        found += [
            Condition(STRESS, step, probe.calibration.prompts, changed, probe.stress.estimators, precision)
            for step in _steps(probe.calibration, key)
            for changed in _changed(algorithm, probe.stress.windows, probe.stress.sampling_steps)
            for precision in probe.stress.precisions or (None,)
        ]
    return sorted(found, key=lambda condition: (condition.precision or "", condition.step))


def _steps(split: ProbeSplit, key: RunKey) -> tuple[int, ...]:
    return split.checkpoints if key.seed in split.seeds else ()


def _changed(algorithm: Algorithm, windows: tuple[int, ...], steps: tuple[int, ...]) -> Iterator[Algorithm]:
    """The algorithm under every combination; a stochastic stretch grows to hold a window and moves with the steps."""
    for window, sampling_steps in product(windows or (algorithm.window,), steps or (algorithm.sampling_steps,)):
        update: dict[str, object] = {"window": window, "sampling_steps": sampling_steps}
        if isinstance(algorithm, FlowGRPOFast):
            scale = sampling_steps / algorithm.sampling_steps
            low, high = (round(place * scale) for place in algorithm.sde_window_range)
            size = min(max(window, algorithm.sde_window_size), high - low)
            update |= {"sde_window_range": (low, high), "sde_window_size": size}
        yield algorithm.model_copy(update=update)
