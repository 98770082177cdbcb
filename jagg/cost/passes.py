"""Closed forms: passes of a trajectory, from the configuration alone (math.md 3 and 4)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

from jagg import config as configuration
from jagg.algorithms import plans
from jagg.errors import InputError
from jagg.flow.schedule import TransitionPlan
from jagg.gradients.estimators import arm_estimator
from jagg.gradients.estimators.exact import ESTIMATOR as EXACT
from jagg.gradients.routing import is_exact, route, states_decide
from jagg.gradients.schedules import schedule_of
from jagg.gradients.schedules.protocol import Schedule
from jagg.gradients.window import Estimator, WindowNodes
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
    """Passes of a trajectory under one plan, where the place of a window alone decides."""
    windows = planned_windows(plan, estimator, schedule, jagg_frac)
    return windows_passes(windows, plan.sampling_steps, schedule, evaluations_per_velocity)


def planned_windows(
    plan: TransitionPlan,
    estimator: Estimator,
    schedule: Schedule,
    jagg_frac: float,
    *,
    by_confidence: bool = False,
    fewest: bool = False,
) -> list[WindowNodes]:
    """What a plan's windows are expected to take: the most that their states may ask for, or the fewest nodes."""
    windows = []
    for transitions in plan.windows:
        length = len(transitions)
        chosen = route(estimator, transitions[0], length, plan.sampling_steps, jagg_frac)
        undecided = states_decide(chosen, by_confidence)
        if by_confidence and not fewest:
            chosen = EXACT
        expected_nodes = chosen.fewest_nodes if fewest and chosen.fewest_nodes else chosen.expected_nodes
        nodes = expected_nodes(length)
        graphs = float(length) if undecided and schedule.before_nodes_are_known else None
        windows.append(WindowNodes(nodes, length, is_exact(chosen), nodes, graphs))
    return windows


def windows_passes(
    windows: Sequence[WindowNodes], sampling_steps: int, schedule: Schedule, evaluations_per_velocity: int = 1
) -> Passes:
    """Passes of a trajectory whose windows take these nodes."""
    forwards = [
        schedule.window_forwards(window.nodes if window.graphs is None else window.graphs, window.length)
        for window in windows
    ]
    untrained = sampling_steps - sum(window.length for window in windows)
    exact = sum(window.exact for window in windows)
    return Passes(
        windows_exact=float(exact),
        windows_approximate=float(len(windows) - exact),
        backward_passes=evaluations_per_velocity * math.fsum(window.nodes for window in windows),
        forward_passes_grad=evaluations_per_velocity * math.fsum(forward.with_grad for forward in forwards),
        forward_passes_nograd=evaluations_per_velocity
        * (untrained + math.fsum(forward.without_grad for forward in forwards)),
    )


def passes_range(
    algorithm: configuration.Algorithm,
    arm: configuration.Arm,
    algorithm_name: str,
    schedule: str,
    evaluations_per_velocity: int = 1,
) -> tuple[Passes, Passes]:
    """Fewest and most expected backward passes of an arm under a schedule; equal unless the states have a say.

    Raises:
        InputError: unknown algorithm family, estimator or schedule.
    """
    estimator, of = arm_estimator(arm), schedule_of(schedule)
    jagg_frac = configuration.resolve(arm.routing.jagg_frac, algorithm_name)
    by_confidence = arm.routing.max_residual is not None
    choices = plans(arm.applied_to(algorithm))

    def bound(fewest: bool) -> Passes:
        return _mean(
            [
                windows_passes(
                    planned_windows(plan, estimator, of, jagg_frac, by_confidence=by_confidence, fewest=fewest),
                    plan.sampling_steps,
                    of,
                    evaluations_per_velocity,
                )
                for plan in choices
            ]
        )

    return bound(fewest=True), bound(fewest=False)


def _mean(each: list[Passes]) -> Passes:
    return Passes(**{f.name: sum(getattr(passes, f.name) for passes in each) / len(each) for f in fields(Passes)})


def trained_passes(study: configuration.Study, key: RunKey, trained: tuple[int, ...]) -> Passes | None:
    """Passes of a trajectory of one run whose trained transitions are known, as run.json lists them.

    None where they depend on the states that the run visits or on draws, so that no number holds for every step.

    Raises:
        InputError: the algorithm never trains these transitions.
    """
    arm = study.arms[key.arm]
    plan = next((p for p in plans(arm.applied_to(study.algorithms[key.algorithm])) if p.trained == trained), None)
    if plan is None:
        raise InputError("transitions that the algorithm never trains", where=str(key), got=list(trained))
    estimator = arm_estimator(arm)
    lengths = {len(window) for window in plan.windows}
    drawn = any(not float(estimator.expected_nodes(length)).is_integer() for length in lengths if length > 1)
    if arm.routing.max_residual is not None or estimator.depends_on_states or drawn:
        return None
    return plan_passes(
        plan,
        estimator,
        schedule_of(arm.schedule_for(study.training.optimizer_steps_per_rollout)),
        configuration.resolve(arm.routing.jagg_frac, key.algorithm),
        study.backbones[key.backbone].guidance.evaluations_per_velocity,
    )
