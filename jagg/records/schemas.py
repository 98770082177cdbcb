"""The schemas of every table; columns stay in this order, more may follow."""

import pyarrow as pa

_KEY = [("backbone", pa.string()), ("algorithm", pa.string()), ("arm", pa.string()), ("seed", pa.int64())]

SCORES = pa.schema(
    [
        *_KEY,
        ("step", pa.int64()),
        ("prompt_id", pa.string()),
        ("image_index", pa.int64()),
        ("metric", pa.string()),
        ("value", pa.float64()),
        ("unit", pa.string()),
        ("scorer", pa.string()),
        ("signature", pa.string()),
        ("environment", pa.string()),
        ("prompt_group", pa.string()),
        ("truncated", pa.bool_()),
    ]
)
"""One row an image and metric. `value`: raw signed cosine; `scorer`: name@hash of its weights; `signature`: how the
images were made (size, steps, guidance, batch, noise seed, prompts); `environment`: lock hash of the scoring job.
Rows that differ in one of these three are never differenced. `prompt_group`: the prompt's style, where it has one;
`truncated`: whether the prompt is longer than the scorer reads."""

HISTORY = pa.schema(
    [
        *_KEY,
        ("step", pa.int64()),
        ("attempt", pa.int64()),
        *[(name, pa.float64()) for name in ("reward_mean", "reward_std")],
        ("zero_spread_groups", pa.int64()),
        *[(name, pa.float64()) for name in ("ratio_max_deviation", "clip_fraction", "grad_norm", "loss")],
        *[(name, pa.float64()) for name in ("rollout_s", "update_s", "step_s")],
        *[
            (name, pa.int64())
            for name in (
                "backward_passes",
                "forward_passes_grad",
                "forward_passes_nograd",
                "optimizer_steps",
                "images",
                "peak_memory_bytes",
            )
        ],
        ("windows_exact", pa.int64()),
        ("windows_approximate", pa.int64()),
        ("backward_passes_expected", pa.int64()),
        ("reward_parts", pa.string()),
        ("noise_sha256", pa.string()),
        *[(name, pa.float64()) for name in ("reward_s", "rest_s")],
        *[
            (name, pa.int64())
            for name in (
                "forward_passes_recomputed",
                "synchronizations",
                "transformer_flops",
                "saved_activation_bytes",
            )
        ],
    ]
)
"""One row a training step; counts are global and per step, in sample-passes. `windows_*`: windows a trajectory;
`reward_parts`: JSON metric -> {mean, std}; `noise_sha256`: hash of prompt order and initial noise, equal over arms;
`reward_s`: decoding and scoring; `rest_s`: drawing and text encoding; `synchronizations`: times the trainer waited for
the device; `transformer_flops` and `saved_activation_bytes` (the most at a time): on `training.measured_steps` only.
`transformer_flops` are matrix products, 2 operations a multiply-add, counted as they ran and not derived from passes: a
backward pass has two products of a trained weight and one of a frozen one, so that with adapters it costs about one
forward; what gradient checkpointing repeats is in it."""


BACKWARD_PASSES = pa.schema(
    [
        *_KEY,
        *[
            (name, pa.int64())
            for name in (
                "trajectories",
                "trained_steps",
                "windows_exact",
                "windows_approximate",
                "backward_passes",
                "backward_passes_expected",
            )
        ],
        *[(name, pa.float64()) for name in ("backward_passes_per_trajectory", "ratio_to_baseline")],
        ("forward_passes", pa.int64()),
        *[
            (name, pa.float64())
            for name in ("transformer_flops", "rollout_s", "update_s", "update_time_ratio", "step_time_ratio")
        ],
        *[(name, pa.string()) for name in ("note", "machine", "environment")],
    ]
)
"""One row a finished run, totals over its training: trajectories are images, windows are counted over all
trajectories, times are in seconds. Ratios are this run over the reference arm's run of the same cell and seed; those of
times only where both ran on one kind of `machine` (accelerator or processor) with one `environment` (lock hash)."""

PAIRED_DIFFERENCES = pa.schema(
    [
        *[(name, pa.string()) for name in ("backbone", "algorithm", "metric", "role")],
        ("step", pa.int64()),
        *[(name, pa.string()) for name in ("arm", "reference")],
        ("num_seeds", pa.int64()),
        *[
            (name, pa.float64())
            for name in (
                "mean_reference",
                "mean_arm",
                "difference",
                "sd_difference",
                "ci_low",
                "ci_high",
                "ci_level",
            )
        ],
        ("ci_method", pa.string()),
        *[
            (name, pa.float64())
            for name in (
                "p_value",
                "p_holm",
                "sign_flip_p",
                "sign_flip_floor",
                "margin",
                "p_noninferiority",
                "p_equivalence",
            )
        ],
        ("verdict", pa.string()),
        ("smallest_detectable", pa.float64()),
        ("seeds_needed", pa.int64()),
        ("note", pa.string()),
        ("sign_flip_arrangements", pa.int64()),
        ("num_prompts", pa.int64()),
        ("num_images", pa.int64()),
        ("family_size", pa.int64()),
        ("family", pa.string()),
        ("family_tests", pa.int64()),
        *[(name, pa.float64()) for name in ("ci_low_family", "ci_high_family")],
        ("verdict_family", pa.string()),
        *[
            (name, pa.float64())
            for name in (
                "standard_error",
                "df",
                "ci_low_crossed",
                "ci_high_crossed",
                "df_crossed",
                "leave_one_seed_out_low",
                "leave_one_seed_out_high",
                "ci_low_unpaired",
                "ci_high_unpaired",
                "p_unpaired",
                "seed_correlation",
                "margin_low",
                "margin_high",
                "reference_gain",
                "aa_floor",
            )
        ],
        *[(name, pa.string()) for name in ("unit", "aggregation", "prompt_groups")],
    ]
)
"""One row a cell (or `pooled`), metric, checkpoint and arm; differences are arm minus reference in the metric's unit.

- `num_prompts` and `num_images` are those of one seed.
- `margin` is what the arm may be worse by; `margin_low` < 0 < `margin_high` are the bounds of equivalence.
- `family`: the tier of the arm's declared tests, primary, cells or secondary; else exploratory. `family_size`: tests of
  that tier, which `p_holm` counts; `family_tests`: those of all tiers, which `ci_*_family` and `verdict_family` count.
- `ci_*_crossed`: for other seeds and other prompts; `ci_*_unpaired`, `p_unpaired`: Welch, as if seeds were not paired.
- `reference_gain`: mean of the reference here minus its mean at its first checkpoint, over the same seeds.
- `aa_floor`: the A/A arm's largest deviation from 0 that its interval allows, in the same place; a gain that is no
  larger is never superior, whatever its interval.
- `unit`: of means, differences and margins. `aggregation`: how a seed's prompts are averaged, pooled or equal_weight
  (over groups); `prompt_groups`: the groups with their numbers of prompts.
- `seeds_needed`: with a margin, to show equivalence at 80 % power if the true difference is 0; without one, to detect a
  true difference as large as the one seen; of pooled cells that share no seed: in each cell."""

GRADIENT_PROBES = pa.schema(
    [
        *[(name, pa.string()) for name in ("backbone", "algorithm")],
        *[(name, pa.int64()) for name in ("seed", "step")],
        ("split", pa.string()),
        *[(name, pa.int64()) for name in ("window_length", "sampling_steps")],
        *[(name, pa.string()) for name in ("precision", "scope", "estimator")],
        *[(name, pa.int64()) for name in ("window", "start", "transitions")],
        *[(name, pa.float64()) for name in ("sigma_start", "sigma_end")],
        ("prompt_id", pa.string()),
        ("image_index", pa.int64()),
        *[
            (name, pa.float64())
            for name in (
                "nodes",
                "cosine",
                "norm_ratio",
                "relative_error",
                "bound",
                "path_error",
                "curve_error",
                "velocity_residual",
            )
        ],
        ("note", pa.string()),
    ]
)
"""One row a window, rollout (or `batch`: all rollouts together) and estimator, each against the exact window gradient.
`split`: calibration, holdout or stress. Errors and the bound are in units of the exact gradient's norm; of a random
estimator cosine, norm ratio and nodes are means over its draws and the error is their root mean square. `path_error`,
`curve_error`: the parts of JAGG's error from states off the chord and from the network's curvature along it."""

_QUALITY = [
    *[(name, pa.string()) for name in ("backbone", "algorithm", "estimator")],
    ("step", pa.int64()),
    ("split", pa.string()),
    ("window", pa.int64()),
    *[(name, pa.float64()) for name in ("sigma_start", "sigma_end")],
    ("num_rollouts", pa.int64()),
    *[
        (name, pa.float64())
        for name in (
            "cosine_mean",
            "cosine_sd",
            "fraction_above_threshold",
            "fraction_ci_low",
            "fraction_ci_high",
            "norm_ratio_mean",
            "relative_error_mean",
            "bound_mean",
            "velocity_residual_mean",
            "cosine_q05",
            "cosine_median",
            "cosine_q95",
            "path_error_mean",
            "curve_error_mean",
            "bound_share_held",
            "nodes_mean",
            "batch_cosine_mean",
            "batch_relative_error_mean",
            "norm_ratio_sd",
            "relative_error_sd",
        )
    ],
    ("note", pa.string()),
]
GRADIENT_QUALITY = pa.schema(_QUALITY)
"""One row a cell, estimator, checkpoint, split and window, over seeds and rollouts. Fractions are rollouts with a
cosine of at least the threshold, with Wilson's interval at the study's level. `bound_share_held`: rollouts whose error
is within the bound. `batch_*`: the gradient of all rollouts together, mean over seeds. `nodes_mean`: passes."""

GRADIENT_STRESS = pa.schema(
    [("window_length", pa.int64()), ("sampling_steps", pa.int64()), ("precision", pa.string()), *_QUALITY]
)
"""Gradient quality under other window lengths, denoising steps and number formats; columns as in gradient_quality."""

ROUTING_CALIBRATION = pa.schema(
    [
        *[(name, pa.string()) for name in ("backbone", "algorithm", "estimator", "rule", "setting")],
        ("value", pa.float64()),
        ("threshold", pa.float64()),
        *[(name, pa.int64()) for name in ("windows", "windows_approximate")],
        ("calibration_cosine", pa.float64()),
        ("holdout", pa.string()),
        *[(name, pa.float64()) for name in ("holdout_cosine", "optimism")],
        *[(name, pa.int64()) for name in ("holdout_windows_approximate", "holdout_windows_below")],
        ("holdout_value", pa.float64()),
        ("num_rollouts", pa.int64()),
        ("note", pa.string()),
    ]
)
"""One row a cell, rule and kind of held-out rollouts. `rule`: mean_cosine, lower_bound (both set jagg_frac) or
confidence (sets max_residual). Cosines are means over the windows that the calibrated value approximates; `optimism` is
calibration minus holdout; `holdout_value`: what the held-out rollouts themselves would have chosen."""

PARETO = pa.schema(
    [
        *[(name, pa.string()) for name in ("backbone", "algorithm", "metric", "role")],
        ("step", pa.int64()),
        *[(name, pa.string()) for name in ("arm", "reference")],
        ("num_seeds", pa.int64()),
        *[
            (name, pa.float64())
            for name in (
                "difference",
                "ci_low",
                "ci_high",
                "backward_passes_per_trajectory",
                "ratio_to_baseline",
                "update_time_ratio",
                "step_time_ratio",
            )
        ],
    ]
)
"""One row a cell, metric and arm at the last checkpoint: difference with its interval beside the arm's costs,
means over seeds; ratios are the arm over the reference."""

RUNS = pa.schema([*_KEY, ("status", pa.string()), ("trained_steps", pa.int64()), ("note", pa.string())])
"""One row a wanted run. `status`: complete, diverged, missing, or ratio check failed (a run whose probability ratio was
not 1 where it must be); only complete runs are averaged."""

CLAIMS = pa.schema(
    [
        *[(name, pa.string()) for name in ("id", "statement", "scope", "published")],
        *[(name, pa.float64()) for name in ("estimate", "ci_low", "ci_high")],
        *[(name, pa.string()) for name in ("test", "verdict", "reason")],
        ("seeds_needed", pa.int64()),
        ("evidence", pa.string()),
        ("source", pa.string()),
        ("kind", pa.string()),
        ("ci_level", pa.float64()),
        ("num_tests", pa.int64()),
        ("num_seeds", pa.int64()),
        ("family_claims", pa.int64()),
        ("verdict_family", pa.string()),
    ]
)
"""One row a claim and kind of models. `kind`: published models, any model (the claim names none), or a counterpart: the
same question to the other models of the study, which says nothing about the published ones. `verdict`: reproduced,
contradicted, inconclusive or not-testable. `estimate` and its interval are those of the test that decides (see
`reason`), of `num_tests` in the claim. `evidence`: rows of tables, as in `paired_differences.csv#12,14-16`; row 1
follows the header. `seeds_needed`: to decide an inconclusive claim with 80 % power. `num_seeds` is empty where rollouts
or exact counts and not seeds are behind the estimate. Each `verdict` is held at the study's level alone;
`verdict_family` is what remains where all `family_claims` verdicts that rest on intervals shall hold at once."""

COVERAGE = pa.schema(
    [
        ("num_seeds", pa.int64()),
        *[(name, pa.string()) for name in ("shape", "seed_sd")],
        ("studies", pa.int64()),
        *[(name, pa.float64()) for name in ("t", "crossed", "prompts_pooled")],
    ]
)
"""One row a kind of simulated study: the share of them whose nominal 95 % interval held the truth, by interval."""
