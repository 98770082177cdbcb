"""What the arms of a study cost, as text: passes, operations, and memory by schedule (math.md 3 and 4)."""

from collections.abc import Mapping
from dataclasses import dataclass

from jagg import config as configuration
from jagg.algorithms import plans
from jagg.cost.passes import Passes, passes_range, planned_windows
from jagg.gradients.estimators import arm_estimator
from jagg.gradients.schedules import SCHEDULES


@dataclass(frozen=True)
class ModelCost:
    """What one sample costs in one pass through a transformer."""

    untrained_forward_flops: int
    """Matrix products of the model as it is published, 2 operations a multiply-add."""
    forward_flops: int
    """Those of the model as it is trained, adapters included."""
    backward_flops: int
    """Those of the backward pass: of frozen weights the product for the inputs alone, and the forward that gradient
    checkpointing repeats."""
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

    Where the states of a run decide, a number is a range. `costs`: by backbone; one that is not in it gets no
    operations and no memory.
    """
    header = ("backbone", "algorithm", "arm", "windows", "approximate", "backward", "forward", "ratio", "TFLOP")
    rows: list[tuple[str, ...]] = [header]
    for backbone, model in study.backbones.items():
        evaluations = model.guidance.evaluations_per_velocity
        for name, algorithm in study.algorithms.items():
            each = {
                arm: passes_range(algorithm, of, name, _schedule(study, of), evaluations)
                for arm, of in study.arms.items()
            }
            _, reference = each[study.comparison.reference]
            for arm, (fewest, most) in each.items():
                cost = costs.get(backbone)
                flops = _span(*(cost.trajectory_flops(p) / 1e12 for p in (fewest, most))) if cost else "unknown"
                rows.append((backbone, name, arm, *_cells(fewest, most, reference.backward_passes), flops))
    notes = (
        f"ratio: backward passes of {study.comparison.reference} over the arm's",
        "TFLOP: matrix products of the transformer, rollout and update, 10^12 a trajectory; a forward pass without "
        "adapters of "
        + ", ".join(f"{backbone} is {cost.untrained_forward_flops / 1e12:.4g}" for backbone, cost in costs.items()),
    )
    return "\n".join([*_aligned(rows, 3), "", *notes, *_remarks(study), "", *schedules_table(study, costs)])


def schedules_table(study: configuration.Study, costs: Mapping[str, ModelCost]) -> list[str]:
    """Operations and memory of every arm under every schedule open to the study; the arm's own has a star."""
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
            native = cost.trajectory_flops(passes_range(algorithm, reference, name, "native", evaluations)[1])
            for arm, of in study.arms.items():
                for schedule in _open_schedules(study):
                    bounds = passes_range(algorithm, of, name, schedule, evaluations)
                    flops = [cost.trajectory_flops(passes) for passes in bounds]
                    own = "*" if schedule == _schedule(study, of) else ""
                    graphs, gradients = _held(study, algorithm, of, schedule, name)
                    numbers = (
                        _span(*(passes.forward_passes_grad + passes.forward_passes_nograd for passes in bounds)),
                        _span(*(passes.backward_passes for passes in bounds)),
                        _span(*(number / 1e12 for number in flops)),
                        _span(*(native / number for number in flops)),
                        f"{graphs * evaluations * cost.activation_bytes / 1e9:.4g}",
                        f"{gradients * cost.gradient_bytes / 1e9:.4g}",
                    )
                    rows.append((backbone, name, arm, schedule + own, *numbers))
    return [
        *_aligned(rows, 4),
        "",
        f"saves: operations of {study.comparison.reference} under native over these, rollout included; * the arm's own",
        f"GB: 10^9 bytes at most at a time, on one device, of {_images(study)} images in an update and micro-batches "
        f"of {study.training.micro_batch_size}; weights, optimizer, what runs without a graph, and with gradient "
        "checkpointing the block that is being recomputed come on top",
    ]


def _schedule(study: configuration.Study, arm: configuration.Arm) -> str:
    return arm.schedule_for(study.training.optimizer_steps_per_rollout)


def _open_schedules(study: configuration.Study) -> list[str]:
    """Schedules that the study's optimizer steps allow: after the first one, the policy is no longer the rollout's."""
    return list(SCHEDULES) if study.training.optimizer_steps_per_rollout == 1 else ["native"]


def _images(study: configuration.Study) -> int:
    training = study.training
    return training.prompts_per_step * training.group_size // training.optimizer_steps_per_rollout


def _held(
    study: configuration.Study, algorithm: configuration.Algorithm, arm: configuration.Arm, schedule: str, name: str
) -> tuple[float, float]:
    """Graphs of a transition and gradients that live at a time, for the plan and the states that need most."""
    estimator, jagg_frac = arm_estimator(arm), configuration.resolve(arm.routing.jagg_frac, name)
    by_confidence = arm.routing.max_residual is not None
    held = [
        SCHEDULES[schedule].held(
            planned_windows(
                plan, estimator, SCHEDULES[schedule], jagg_frac, by_confidence=by_confidence, fewest=fewest
            ),
            study.training.micro_batch_size,
            _images(study),
        )
        for plan in plans(arm.applied_to(algorithm))
        for fewest in (True, False)
    ]
    return max(of.graphs for of in held), max(of.gradients for of in held)


def _aligned(rows: list[tuple[str, ...]], texts: int) -> list[str]:
    """Columns side by side, the first `texts` of them to the left."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            f"{cell:<{width}}" if i < texts else f"{cell:>{width}}" for i, (cell, width) in enumerate(zip(row, widths))
        )
        for row in rows
    ]


def _remarks(study: configuration.Study) -> list[str]:
    """What the tables cannot say of an arm by numbers alone."""
    updates = study.training.optimizer_steps_per_rollout
    return [
        *(f"{name}: from every window trusted to every window over max_residual, hence exact"
          for name, arm in study.arms.items() if arm.routing.router == "confidence"),
        *(f"{name}: from windows without a residual to windows at full_residual or over it"
          for name, arm in study.arms.items() if arm_estimator(arm).depends_on_states),
        *(f"{name}: by native instead of {arm.schedule}, which {updates} optimizer steps a rollout do not allow"
          for name, arm in study.arms.items() if _schedule(study, arm) != arm.schedule),
    ]  # fmt: skip


def _cells(fewest: Passes, most: Passes, reference: float) -> tuple[str, ...]:
    bounds = (fewest, most)
    return (
        _span(*(passes.windows_exact + passes.windows_approximate for passes in bounds)),
        _span(*(passes.windows_approximate for passes in bounds)),
        _span(*(passes.backward_passes for passes in bounds)),
        _span(*(passes.forward_passes_grad + passes.forward_passes_nograd for passes in bounds)),
        _span(*(reference / passes.backward_passes for passes in bounds)),
    )


def _span(*numbers: float) -> str:
    """One number, or from the least to the greatest where they differ."""
    ends = dict.fromkeys(f"{number:.4g}" for number in sorted(numbers))
    return "-".join(ends)
