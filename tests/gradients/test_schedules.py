"""Where the graphs come from changes neither trajectories nor gradients, from one fixed rollout (math.md 4)."""

from dataclasses import dataclass, field

import pytest
import torch
from analytic import AnalyticBackbone, Curved, Linear
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from jagg.backbones import load_backbone
from jagg.backbones.lora import attach_adapters, initialise_adapters, lora_config
from jagg.backbones.protocol import Backbone
from jagg.config import LoRA
from jagg.cost.activations import SavedActivations
from jagg.cost.passes import windows_passes
from jagg.errors import InputError
from jagg.flow import StepNoise, shifted_sigmas
from jagg.flow.rollout import Rollout
from jagg.flow.schedule import constant_diffusion, transition_plan
from jagg.gradients import ESTIMATORS, SCHEDULES, estimator_of, schedule_of
from jagg.gradients.estimators.debiased import debiased
from jagg.gradients.per_sample_gradients import SampleGradients
from jagg.gradients.schedules.protocol import Method, UpdateStatistics
from jagg.gradients.window import Estimator
from jagg.train.ledger import Ledger, PassCounts

OTHERS = sorted(set(SCHEDULES) - {"native"})
# Sums over nodes and samples go in another order and matrix products have other shapes, so float32 rounds otherwise;
# the same operations in the same order agree bit for bit, which the test of single transitions holds.
RELATIVE = 1e-5


@dataclass
class Step:
    """One step's rollout and update of a policy, by any schedule."""

    backbone: Backbone = field(default_factory=AnalyticBackbone)
    estimator: Estimator = ESTIMATORS["jagg"]
    images: int = 6
    steps: int = 8
    window: int = 4
    first: int = 0
    batch_size: int = 6
    jagg_frac: float = 1.0
    max_residual: float | None = None
    advantages: Tensor | None = None
    seed: int = 0

    def run(self, schedule: str) -> tuple[Rollout, UpdateStatistics, dict[str, Tensor], PassCounts]:
        """Trajectories, statistics, gradients and counts."""
        transformer, sigmas = self.backbone.transformer, shifted_sigmas(self.steps, 3.0)
        transformer.zero_grad(set_to_none=True)
        trained = tuple(range(self.first, self.steps))
        plan = transition_plan(
            sigmas, constant_diffusion(sigmas, 0.3), trained, window=self.window, quantise_timestep=False
        )
        names = ["red"] * self.images, list(range(self.images))
        noise = StepNoise(self.seed, 0, 1, *names, self.backbone.latent_shape)
        text = self.backbone.encode_prompts(["a red circle on a blue background"] * self.images)
        method = Method(self.estimator, self.jagg_frac, 1e-4, self.batch_size, self.max_residual)
        ledger, of = Ledger(self.backbone), schedule_of(schedule)

        def generator(start: int) -> torch.Generator:
            return torch.Generator().manual_seed(self.seed + start)

        initial = noise.initial(False)
        made = of.rollout(ledger, method, plan, text, initial, noise.transition, generator)
        advantages = self.advantages if self.advantages is not None else torch.linspace(-2, 2, self.images)
        statistics = of.accumulate(ledger, method, made, advantages, slice(None), generator)
        counts = ledger.take()
        counts.check([windows_passes(statistics.windows, self.steps, of)], self.images)
        gradients = {name: p.grad.clone() for name, p in transformer.named_parameters() if p.grad is not None}
        return made, statistics, gradients, counts


def adapt(backbone: Backbone) -> None:
    """Put adapters in that are off their start, where half of their gradients would be zero."""
    adapters = attach_adapters(backbone.transformer, lora_config(LoRA(rank=2, alpha=4), backbone.lora_targets))
    initialise_adapters(adapters, 0)
    for name, parameter in adapters.items():
        if ".lora_B." in name:
            nn.init.normal_(parameter, std=0.1, generator=torch.Generator().manual_seed(1))


def flat(gradients: dict[str, Tensor]) -> Tensor:
    return torch.cat([gradients[name].flatten() for name in sorted(gradients)])


def check_same(step: Step, schedule: str, relative: float = RELATIVE) -> None:
    native, other = step.run("native"), step.run(schedule)
    assert set(native[2]) == set(other[2])
    wanted, got = flat(native[2]), flat(other[2])
    assert (got - wanted).norm() <= relative * wanted.norm()
    assert (other[1].ratio - 1).abs().max() < 1e-12
    torch.testing.assert_close(other[1].loss, native[1].loss, rtol=1e-5, atol=1e-6)
    assert [w.nodes for w in other[1].windows] == [w.nodes for w in native[1].windows]
    assert other[3].backward_passes == native[3].backward_passes


advantage = st.one_of(st.just(0.0), st.just(5.0), st.just(-5.0), st.floats(-5, 5, width=32))


@settings(max_examples=25, deadline=None)
@given(
    schedule=st.sampled_from(OTHERS),
    estimator=st.sampled_from(sorted(ESTIMATORS)),
    seed=st.integers(0, 2**20),
    steps=st.integers(2, 9),
    window=st.integers(1, 6),
    first=st.integers(0, 1),
    batch_size=st.integers(1, 7),
    jagg_frac=st.sampled_from([0.0, 0.6, 1.0]),
    advantages=st.lists(advantage, min_size=2, max_size=6),
    lora=st.booleans(),
)
def test_every_schedule_gives_the_gradient_of_native(
    schedule: str, estimator: str, advantages: list[float], lora: bool, **geometry: int
) -> None:
    values, backbone = torch.tensor(advantages, dtype=torch.float32), AnalyticBackbone()
    if lora:
        adapt(backbone)
    step = Step(backbone, estimator_of(estimator), images=len(values), advantages=values, **geometry)
    native, other = step.run("native"), step.run(schedule)
    wanted, got = flat(native[2]), flat(other[2])
    # Where the images' gradients cancel, rounding is relative to what cancels.
    parts = Step(**vars(step) | {"advantages": values.abs()}).run("native")[2]
    assert (got - wanted).norm() <= RELATIVE * max(wanted.norm(), flat(parts).norm())
    assert (other[1].ratio - 1).abs().max() < 1e-12
    assert other[3].backward_passes == native[3].backward_passes


@pytest.mark.parametrize("schedule", ["reuse", "retain", "reweight"])
@pytest.mark.parametrize(
    ("estimator", "max_residual"),
    [(debiased(draw="proxy"), None), (debiased(full_residual=0.05), None), (ESTIMATORS["jagg"], 0.02)],
    ids=["draw by proxy", "probability by residual", "confidence"],
)
def test_what_the_states_decide_is_decided_alike(
    schedule: str, estimator: Estimator, max_residual: float | None
) -> None:
    check_same(Step(estimator=estimator, max_residual=max_residual, batch_size=4), schedule)


@pytest.mark.parametrize("schedule", ["reuse", "retain"])
def test_single_transitions_agree_bit_for_bit(schedule: str) -> None:
    """With windows of one transition, native back-propagates the very batches that the rollout ran."""
    step = Step(estimator=ESTIMATORS["exact"], window=1)
    native, other = step.run("native"), step.run(schedule)
    assert (native[1].ratio == 1).all()
    assert torch.equal(native[0].latents, other[0].latents)
    assert torch.equal(flat(native[2]), flat(other[2]))


@pytest.mark.parametrize("schedule", OTHERS)
def test_trajectories_are_those_of_native_bit_for_bit(schedule: str) -> None:
    step = Step(batch_size=4)
    native, other = step.run("native")[0], step.run(schedule)[0]
    assert torch.equal(native.latents, other.latents)
    assert torch.equal(native.log_probs, other.log_probs)


@pytest.mark.parametrize("schedule", OTHERS)
@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
@pytest.mark.parametrize("family", ["flux", "qwen"])
@pytest.mark.parametrize("estimator", ["exact", "jagg"])
def test_real_transformers_agree(
    schedule: str, lora: bool, family: str, estimator: str, request: pytest.FixtureRequest
) -> None:
    config, folder = request.getfixturevalue(f"tiny_{family}_folder")
    backbone = load_backbone(config, folder)
    if lora:
        adapt(backbone)
    step = Step(backbone, estimator_of(estimator), images=4, steps=4, window=4, batch_size=4)
    check_same(step, schedule)


@pytest.mark.parametrize(("schedule", "with_grad", "without_grad"), [
    ("native", 14, 26), ("reuse", 14, 20), ("retain", 14, 6), ("reweight", 14, 6),
])  # fmt: skip
def test_forward_passes_are_the_closed_form(schedule: str, with_grad: int, without_grad: int) -> None:
    """math.md 4: at T = 20, W = 4, frac 0.6, rollout included; a backward pass is two forwards."""
    counts = Step(images=2, steps=20, jagg_frac=0.6).run(schedule)[3]
    assert counts == PassCounts(2 * 14, 2 * with_grad, 2 * without_grad)


def test_retain_keeps_two_graphs_a_window_and_lets_go_of_them_in_the_update() -> None:
    step = Step(steps=8)
    made = step.run("retain")[0]
    assert made.graphs == {}
    assert [len(drawn.estimate.nodes) for drawn in made.drawn.values()] == [2, 2]


def test_reweight_never_keeps_more_than_one_windows_nodes_of_one_batch() -> None:
    peaks = {}
    for schedule in ("retain", "reweight"):
        for batch_size in (6, 2):
            step = Step(steps=8, batch_size=batch_size)
            with SavedActivations(step.backbone.transformer.parameters()) as saved:
                step.run(schedule)
            peaks[schedule, batch_size] = saved.peak_bytes
            assert saved.alive_bytes == 0
    assert peaks["retain", 6] == pytest.approx(2 * peaks["reweight", 6], rel=0.01)
    assert peaks["reweight", 6] == pytest.approx(3 * peaks["reweight", 2], rel=0.01)


class Normed(Curved):
    """With both kinds of norm, their weights off 1."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.root = nn.LayerNorm(3), nn.RMSNorm(3)
        for number, parameter in enumerate([*self.layer.parameters(), *self.root.parameters()]):
            parameter.data = torch.tensor([0.5, 0.0, 2.0]) + number

    def forward(self, latents: Tensor, sigma: Tensor, text: Tensor) -> Tensor:
        return self.root(super().forward(self.layer(latents), sigma, text))


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("module", [Curved, Linear, Normed])
def test_gradients_of_samples_are_those_of_each_sample_alone(module: type[nn.Module], recompute: bool) -> None:
    backbone = AnalyticBackbone(module().double())
    if recompute and module is not Linear:
        backbone.transformer.enable_gradient_checkpointing()
    generator, dtype = torch.Generator().manual_seed(0), torch.float64
    latents, signals = torch.randn(2, 3, *backbone.latent_shape, dtype=dtype, generator=generator)
    text, sigma = backbone.encode_prompts(["red", "green", "blue"]), torch.tensor([0.9, 0.5, 0.1], dtype=dtype)
    made = SampleGradients(backbone.transformer)
    with made.recording(3):
        velocity = backbone.velocity(latents, sigma, text)
    made.backward(velocity, signals)
    for i in range(3):
        parameters = dict(backbone.transformer.named_parameters())
        alone = backbone.velocity(latents[[i]], sigma[[i]], text[[i]])
        wanted = torch.autograd.grad(alone, list(parameters.values()), signals[[i]])
        for parameter, gradient in zip(parameters.values(), wanted):
            torch.testing.assert_close(made._gradients[parameter][i], gradient)
    assert all(parameter.requires_grad and parameter.grad is None for parameter in parameters.values())


class PastItsLayer(Curved):
    """Uses a layer's weight without calling the layer, as fused projections do."""

    def _layers(self, inputs: Tensor) -> Tensor:
        hidden = functional.linear(inputs, self.hidden.weight, self.hidden.bias)
        return self.out(torch.tanh(hidden))


class DirectForward(Curved):
    """Runs a layer past `__call__`."""

    def _layers(self, inputs: Tensor) -> Tensor:
        return self.out(torch.tanh(self.hidden.forward(inputs)))


class UsedTwice(Curved):
    """Calls a layer, and uses its weight once more without calling it."""

    def _layers(self, inputs: Tensor) -> Tensor:
        return self.out(torch.tanh(self.hidden(inputs))) + 3 * inputs @ (self.out.weight @ self.hidden.weight).T


class Merged(Curved):
    """Calls a layer with all samples in one row."""

    def _layers(self, inputs: Tensor) -> Tensor:
        merged = self.hidden(inputs.flatten(0, 1)[None])
        return self.out(torch.tanh(merged[0].unflatten(0, inputs.shape[:2])))


class TokensFirst(Curved):
    """Calls a layer with tokens as its first dimension; here there are as many as samples."""

    def _layers(self, inputs: Tensor) -> Tensor:
        return self.out(torch.tanh(self.hidden(inputs.transpose(0, 1)).transpose(0, 1)))


class NamedInput(Curved):
    """Calls a layer by keyword."""

    def _layers(self, inputs: Tensor) -> Tensor:
        return self.out(input=torch.tanh(self.hidden(inputs)))


class Nested(Curved):
    """A module with a parameter of its own that calls another one inside."""

    class Shifted(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner, self.shift = inner, nn.Parameter(torch.tensor([0.5, -1.0, 2.0, 0.1, 1.0]))

        def forward(self, inputs: Tensor) -> Tensor:
            return self.inner(inputs + self.shift)

    def __init__(self) -> None:
        super().__init__()
        self.hidden = self.Shifted(self.hidden)


@pytest.mark.parametrize(("module", "named"), [
    (PastItsLayer, "hidden.weight"), (DirectForward, "hidden.weight"), (UsedTwice, "out.weight"), (Merged, "hidden."),
    (TokensFirst, "hidden.weight"), (NamedInput, "out.weight"),
])  # fmt: skip
def test_parameters_that_no_called_module_shows_are_an_error_that_names_them(
    module: type[nn.Module], named: str
) -> None:
    step = Step(AnalyticBackbone(module()), images=8, batch_size=4)
    with pytest.raises(InputError, match=f"sample by sample[\\s\\S]*{named}"):
        step.run("reweight")
    Step(AnalyticBackbone(module()), batch_size=1).run("reweight")  # plain autograd, so nothing can be missed


def test_a_module_inside_of_a_module_is_counted_once() -> None:
    check_same(Step(AnalyticBackbone(Nested()), batch_size=3), "reweight")


def test_the_check_of_a_backbone_is_done_once_a_run() -> None:
    ledger, latents = Ledger(AnalyticBackbone()), torch.randn(3, 4, 3)
    text, evaluations = ledger._backbone.encode_prompts(["red"] * 3), []
    for _ in range(2):
        apart = ledger.apart()
        with torch.enable_grad():
            velocity = apart.velocity(latents, torch.ones(3), text)
        apart.backward(velocity, torch.ones_like(velocity))
        evaluations.append(ledger._backbone.evaluations)
    assert evaluations == [6, 9]
    assert ledger.take() == PassCounts(6, 6, 0)
