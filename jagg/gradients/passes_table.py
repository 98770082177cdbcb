"""What the arms of a study cost, as text: passes, operations, and memory by schedule (math.md 3 and 4)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from jagg import config as configuration
from jagg.algorithms import plans
from jagg.gradients.estimators import arm_estimator
from jagg.gradients.passes import Passes, expected_passes
from jagg.gradients.routing import route
from jagg.gradients.schedules import SCHEDULES


@dataclass(frozen=True)
class ModelCost:
    """What one sample costs in one pass through a transformer."""

    forward_flops: int
    """Matrix products, 2 operations a multiply-add."""
    backward_flops: int
    """Those of the backward pass, the forward that gradient checkpointing repeats included."""
    activation_bytes: int
    """Kept by the graph of one pass, weights left out."""
    gradient_bytes: int
    """One gradient of all trained parameters."""

    def trajectory_flops(self, passes: Passes) -> float:
        """Operations of a trajectory, rollout and update."""
        forwards = passes.forward_passes_grad + passes.forward_passes_nograd
        return forwards * self.forward_flops + passes.backward_passes * self.backward_flops


def passes_table(study: configuration.Study, costs: Mapping[str, ModelCost]) -> str:
    """Expected passes of a trajectory for every backbone, algorithm and arm of a study, and the choice of schedules.

    `costs`: by backbone; one that is not in it gets no operations and no memory.
    """
    header = ("backbone", "algorithm", "arm", "windows", "approximate", "backward", "forward", "ratio", "TFLOP")
    rows: list[tuple[str, ...]] = [header]
    for backbone, model in study.backbones.items():
        evaluations = model.guidance.evaluations_per_velocity
        for name, algorithm in study.algorithms.items():
            each = {arm: expected_passes(algorithm, of, name, evaluations) for arm, of in study.arms.items()}
            reference = each[study.comparison.reference].backward_passes
            for arm, passes in each.items():
                cost = costs.get(backbone)
                flops = f"{cost.trajectory_flops(passes) / 1e12:.4g}" if cost else "unknown"
                rows.append((backbone, name, arm, *_cells(passes, reference), flops))
    notes = (
        f"ratio: backward passes of {study.comparison.reference} over the arm's",
        "TFLOP: matrix products of the transformer, rollout and update, 10^12 a trajectory; a forward pass of "
        + ", ".join(f"{backbone} is {cost.forward_flops / 1e12:.4g}" for backbone, cost in costs.items()),
    )
    return "\n".join([*_aligned(rows, 3), "", *notes, *_open_counts(study), "", *schedules_table(study, costs)])


def schedules_table(study: configuration.Study, costs: Mapping[str, ModelCost]) -> list[str]:
    """Operations and memory of every arm under every schedule, to choose by; the arm's own has a star."""
    header = (
        "backbone",
        "algorithm",
        "arm",
        "schedule",
        "forward",
        "backward",
        "TFLOP",
        "saves",
        "graphs GB",
        "grads GB",
    )
    rows: list[tuple[str, ...]] = [header]
    for backbone, cost in costs.items():
        evaluations = study.backbones[backbone].guidance.evaluations_per_velocity
        for name, algorithm in study.algorithms.items():
            reference = study.arms[study.comparison.reference]
            native = cost.trajectory_flops(_passes(algorithm, reference, "native", name, evaluations))
            for arm, of in study.arms.items():
                for schedule in SCHEDULES:
                    passes = _passes(algorithm, of, schedule, name, evaluations)
                    flops = cost.trajectory_flops(passes)
                    own = "*" if schedule == of.schedule else ""
                    numbers = (
                        passes.forward_passes_grad + passes.forward_passes_nograd,
                        passes.backward_passes,
                        flops / 1e12,
                        native / flops,
                        *(size / 1e9 for size in _memory(study, cost, algorithm, of, schedule, name, evaluations)),
                    )
                    rows.append((backbone, name, arm, schedule + own, *(f"{number:.4g}" for number in numbers)))
    images = _images(study)
    return [
        *_aligned(rows, 4),
        "",
        f"saves: operations of {study.comparison.reference} under native over these, rollout included; * the arm's own",
        f"GB: 10^9 bytes at most at a time, on one device, of {images} images in an update and micro-batches of "
        f"{study.training.micro_batch_size}; weights, optimizer, what runs without a graph, and with gradient "
        "checkpointing the block that is being recomputed come on top",
    ]


def _passes(
    algorithm: configuration.Algorithm, arm: configuration.Arm, schedule: str, name: str, evaluations: int
) -> Passes:
    return expected_passes(algorithm, arm.model_copy(update={"schedule": schedule}), name, evaluations)


def _images(study: configuration.Study) -> int:
    training = study.training
    return training.prompts_per_step * training.group_size // training.optimizer_steps_per_rollout


def _memory(
    study: configuration.Study,
    cost: ModelCost,
    algorithm: configuration.Algorithm,
    arm: configuration.Arm,
    schedule: str,
    name: str,
    evaluations: int,
) -> tuple[float, float]:
    """Bytes of graphs and of gradients, for the plan that needs most."""
    estimator, jagg_frac = arm_estimator(arm), configuration.resolve(arm.routing.jagg_frac, name)
    most = (0.0, 0.0)
    for plan in plans(arm.applied_to(algorithm)):
        nodes = [
            route(estimator, w[0], len(w), plan.sampling_steps, jagg_frac).expected_nodes(len(w)) for w in plan.windows
        ]
        # Expected nodes of a random estimator may be a fraction; memory is for the whole number above.
        held = SCHEDULES[schedule].held([math.ceil(n) for n in nodes], study.training.micro_batch_size, _images(study))
        most = max(most, (held.graphs * evaluations * cost.activation_bytes, held.gradients * cost.gradient_bytes))
    return most


def _aligned(rows: list[tuple[str, ...]], texts: int) -> list[str]:
    """Columns side by side, the first `texts` of them to the left."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            f"{cell:<{width}}" if i < texts else f"{cell:>{width}}" for i, (cell, width) in enumerate(zip(row, widths))
        )
        for row in rows
    ]


def _open_counts(study: configuration.Study) -> list[str]:
    """What the table says of arms whose passes depend on the states."""
    return [
        *(f"{name}: at least these passes; windows over max_residual are exact" for name, arm in study.arms.items()
          if arm.routing.router == "confidence"),
        *(f"{name}: at most these passes; windows under full_residual take fewer" for name, arm in study.arms.items()
          if arm_estimator(arm).depends_on_states),
    ]  # fmt: skip


def _cells(passes: Passes, reference: float) -> tuple[str, ...]:
    numbers = (
        passes.windows_exact + passes.windows_approximate,
        passes.windows_approximate,
        passes.backward_passes,
        passes.forward_passes_grad + passes.forward_passes_nograd,
        reference / passes.backward_passes,
    )
    return tuple(f"{number:.4g}" for number in numbers)
