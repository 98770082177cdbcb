"""Closed forms: passes of a trajectory, from the configuration alone (math.md 3 and 4)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields

from jagg import config as configuration
from jagg.algorithms import plans
from jagg.errors import InputError
from jagg.flow.schedule import TransitionPlan
from jagg.gradients.estimators import estimator_of
from jagg.gradients.routing import is_exact, route
from jagg.gradients.schedules import schedule_of
from jagg.gradients.schedules.protocol import Schedule
from jagg.gradients.window import Estimator
from jagg.keys import RunKey


@dataclass(frozen=True)
class Passes:
    """Of one trajectory, in passes of one sample through the transformer; fractions are expectations."""

    windows_exact: float
    windows_approximate: float
    backward_passes: float
    forward_passes_grad: float
    forward_passes_nograd: float
    """The rollout's forwards included."""


def plan_passes(
    plan: TransitionPlan,
    estimator: Estimator,
    schedule: Schedule,
    jagg_frac: float,
    evaluations_per_velocity: int = 1,
) -> Passes:
    """Passes of a trajectory under one plan."""
    routed = [
        (route(estimator, window[0], len(window), plan.sampling_steps, jagg_frac), len(window))
        for window in plan.windows
    ]
    nodes = [chosen.expected_nodes(length) for chosen, length in routed]
    forwards = [schedule.window_forwards(count, length) for count, (_, length) in zip(nodes, routed)]
    exact = sum(is_exact(chosen) for chosen, _ in routed)
    return Passes(
        windows_exact=float(exact),
        windows_approximate=float(len(routed) - exact),
        backward_passes=evaluations_per_velocity * math.fsum(nodes),
        forward_passes_grad=evaluations_per_velocity * math.fsum(forward.with_grad for forward in forwards),
        forward_passes_nograd=evaluations_per_velocity
        * (plan.sampling_steps + math.fsum(forward.without_grad for forward in forwards)),
    )


def expected_passes(
    algorithm: configuration.Algorithm,
    arm: configuration.Arm,
    algorithm_name: str,
    evaluations_per_velocity: int = 1,
) -> Passes:
    """Expected passes of a trajectory of an arm: the mean over the algorithm's equally likely plans.

    Raises:
        InputError: unknown algorithm family, estimator or schedule.
    """
    estimator, schedule = estimator_of(arm.estimator), schedule_of(arm.schedule)
    jagg_frac = configuration.resolve(arm.routing.jagg_frac, algorithm_name)
    each = [plan_passes(plan, estimator, schedule, jagg_frac, evaluations_per_velocity) for plan in plans(algorithm)]
    return Passes(**{f.name: sum(getattr(passes, f.name) for passes in each) / len(each) for f in fields(Passes)})


def trained_passes(study: configuration.Study, key: RunKey, trained: tuple[int, ...]) -> Passes:
    """Passes of a trajectory of one run whose trained transitions are known, as run.json lists them.

    Raises:
        InputError: the algorithm never trains these transitions.
    """
    algorithm, arm = study.algorithms[key.algorithm], study.arms[key.arm]
    plan = next((plan for plan in plans(algorithm) if plan.trained == trained), None)
    if plan is None:
        raise InputError("transitions that the algorithm never trains", where=str(key), got=list(trained))
    return plan_passes(
        plan,
        estimator_of(arm.estimator),
        schedule_of(arm.schedule),
        configuration.resolve(arm.routing.jagg_frac, key.algorithm),
        study.backbones[key.backbone].guidance.evaluations_per_velocity,
    )


def trajectory_flops(passes: Passes, forward_flops: int, gradient_checkpointing: bool) -> float:
    """Transformer operations of a trajectory: a backward pass is two forwards, and a third where it recomputes."""
    return forward_flops * (
        passes.forward_passes_grad
        + passes.forward_passes_nograd
        + (3 if gradient_checkpointing else 2) * passes.backward_passes
    )


def passes_table(study: configuration.Study, forward_flops: Mapping[str, int]) -> str:
    """Expected passes of a trajectory for every backbone, algorithm and arm of a study, as text.

    `forward_flops`: backbone -> operations of one forward pass; a backbone that is not in it gets no operations.
    """
    header = ("backbone", "algorithm", "arm", "windows", "approximate", "backward", "forward", "ratio", "TFLOP")
    rows: list[tuple[str, ...]] = [header]
    for backbone, model in study.backbones.items():
        evaluations = model.guidance.evaluations_per_velocity
        for name, algorithm in study.algorithms.items():
            each = {arm: expected_passes(algorithm, of, name, evaluations) for arm, of in study.arms.items()}
            reference = each[study.comparison.reference].backward_passes
            for arm, passes in each.items():
                one = forward_flops.get(backbone)
                total = trajectory_flops(passes, one, study.training.gradient_checkpointing) if one else None
                flops = f"{total / 1e12:.4g}" if total else "unknown"
                rows.append((backbone, name, arm, *_cells(passes, reference), flops))
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    lines = [
        "  ".join(
            f"{cell:<{width}}" if i < 3 else f"{cell:>{width}}" for i, (cell, width) in enumerate(zip(row, widths))
        )
        for row in rows
    ]
    notes = (
        f"ratio: backward passes of {study.comparison.reference} over the arm's",
        "TFLOP: matrix products of the transformer, rollout and update, 10^12 a trajectory; a forward pass of "
        + ", ".join(f"{backbone} is {flops / 1e12:.4g}" for backbone, flops in forward_flops.items()),
    )
    return "\n".join([*lines, "", *notes])


def _cells(passes: Passes, reference: float) -> tuple[str, ...]:
    numbers = (
        passes.windows_exact + passes.windows_approximate,
        passes.windows_approximate,
        passes.backward_passes,
        passes.forward_passes_grad + passes.forward_passes_nograd,
        reference / passes.backward_passes,
    )
    return tuple(f"{number:.4g}" for number in numbers)
