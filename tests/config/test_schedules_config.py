"""A schedule that needs the rollout's own policy is refused where there is another, or gives way if told to."""

import pytest
from analytic import PROMPTS, AnalyticBackbone, ColourScorer, analytic_study, key

from jagg.gradients import SCHEDULES
from jagg.train.step import Trainer

SEVERAL = {"training__optimizer_steps_per_rollout": 3, "training__micro_batch_size": 4}


@pytest.mark.parametrize("schedule", ["reuse", "retain", "reweight"])
def test_several_optimizer_steps_are_refused_or_fall_back(schedule: str) -> None:
    with pytest.raises(ValueError, match=rf"arms\.jagg\.schedule: expected native .* got {schedule}; .*off_policy"):
        analytic_study(**SEVERAL, arms__jagg__schedule=schedule)
    assert analytic_study(arms__jagg__schedule=schedule).arms["jagg"].schedule_for(1) == schedule
    study = analytic_study(**SEVERAL, arms__jagg__schedule=schedule, arms__jagg__off_policy="native")
    trainer = Trainer(study, key(), AnalyticBackbone(), {"red": ColourScorer(), "green": ColourScorer()}, PROMPTS)
    assert trainer.schedule is SCHEDULES["native"]
    assert trainer.step(1, 1)["forward_passes_nograd"] == 168


def test_native_takes_several_optimizer_steps() -> None:
    assert analytic_study(**SEVERAL).arms["jagg"].schedule_for(3) == "native"
