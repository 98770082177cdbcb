"""Noise from named streams, trajectories, and the evaluation sampler."""

import hashlib

import torch
from analytic import AnalyticBackbone, Curved, Linear
from torch import Tensor
from torch.testing import assert_close

from jagg.backbones.protocol import TextFeatures
from jagg.flow import StepNoise, evaluation_noise, rollout, sample_ode, shifted_sigmas
from jagg.flow.schedule import constant_diffusion, transition_plan
from jagg.flow.transition import log_prob, sde_step

SHAPE = (4, 3)


def plan(g: float = 0.3, quantise: bool = False, steps: int = 6):
    sigmas = shifted_sigmas(steps, 3.0)
    return transition_plan(
        sigmas, constant_diffusion(sigmas, g), tuple(range(steps)), window=4, quantise_timestep=quantise
    )


def noise_of(count: int, **names: int) -> StepNoise:
    streams = {"study_seed": 0, "run_seed": 0, "step": 1} | names
    return StepNoise(**streams, prompt_ids=["p"] * count, image_indices=list(range(count)), latent_shape=SHAPE)


def distinct(tensors: Tensor) -> int:
    return len({hashlib.sha256(tensor.numpy().tobytes()).hexdigest() for tensor in tensors})


def text(count: int) -> TextFeatures:
    return AnalyticBackbone().encode_prompts(["red", "green", "blue"][:1] * count)


def test_shared_initial_noise_still_gives_different_images() -> None:
    noise = noise_of(16)
    initial = noise.initial(shared=True)
    made = rollout(AnalyticBackbone(), plan(), text(16), initial, noise.transition, 16)
    assert distinct(initial) == 1
    assert distinct(made.clean) == 16
    assert distinct(noise.initial(shared=False)) == 16


def test_every_name_of_a_stream_counts_and_streams_are_apart() -> None:
    base = noise_of(1)
    draws = [base.initial(False), base.initial(True), base.transition(0), base.transition(1)]
    draws += [noise_of(1, **{name: 5}).initial(False) for name in ("study_seed", "run_seed", "step")]
    assert distinct(torch.cat(draws)) == len(draws)


def test_an_image_has_the_same_noise_alone_and_in_a_batch() -> None:
    whole = noise_of(4)
    alone = StepNoise(0, 0, 1, ["p"], [2], SHAPE)
    assert torch.equal(whole.initial(False)[2:3], alone.initial(False))
    assert torch.equal(whole.transition(3)[2:3], alone.transition(3))
    assert distinct(torch.stack([evaluation_noise(1, "p7", 2, SHAPE), evaluation_noise(1, "p7", 2, SHAPE)])) == 1
    others = [
        evaluation_noise(1, "p7", 2, SHAPE),
        evaluation_noise(1, "p7", 3, SHAPE),
        evaluation_noise(2, "p7", 2, SHAPE),
    ]
    assert distinct(torch.stack([*others, evaluation_noise(1, "p8", 2, SHAPE)])) == 4


def test_drawing_leaves_the_global_generator_alone() -> None:
    backbone, prompts = AnalyticBackbone(), text(2)
    before = torch.get_rng_state()
    noise = noise_of(2)
    rollout(backbone, plan(), prompts, noise.initial(False), noise.transition, 2)
    evaluation_noise(1, "p", 0, SHAPE)
    assert torch.equal(before, torch.get_rng_state())


def test_a_rollout_is_its_steps() -> None:
    backbone, noise, of = AnalyticBackbone(), noise_of(3), plan()
    made = rollout(backbone, of, text(3), noise.initial(False), noise.transition, 3)
    assert not made.latents.requires_grad
    for j in range(of.sampling_steps):
        sigma = torch.full((3,), of.sigmas[j])
        with torch.no_grad():
            velocity = backbone.velocity(made.latents[j], sigma, text(3))
        step = sde_step(made.latents[j], velocity, of.sigmas[j], of.sigmas[j + 1], 0.3, noise.transition(j))
        assert torch.equal(made.latents[j + 1], step.next)
        assert torch.equal(made.log_probs[j], log_prob(step.next, step.mean, step.std))


def test_micro_batches_give_the_same_trajectories() -> None:
    noise = noise_of(6)
    whole, parts = (
        rollout(AnalyticBackbone(), plan(), text(6), noise.initial(False), noise.transition, size) for size in (6, 2)
    )
    assert_close(whole.latents, parts.latents)
    assert_close(whole.log_probs, parts.log_probs, rtol=1e-6, atol=1e-6)


def test_quantisation_changes_what_the_network_is_told_and_not_the_sampler() -> None:
    told = []

    class Listening(AnalyticBackbone):
        def velocity(self, latents: Tensor, sigma: Tensor, text: TextFeatures) -> Tensor:
            told.append(sigma[0].item())
            return super().velocity(latents, sigma, text)

    noise = noise_of(1)
    of = plan(quantise=True)
    rollout(Listening(), of, text(1), noise.initial(False), noise.transition, 1)
    assert told == torch.tensor([int(1000 * sigma) / 1000 for sigma in of.sigmas[:-1]]).tolist()
    assert of.sigmas == plan().sigmas


def test_the_evaluation_sampler_is_exact_on_a_straight_path() -> None:
    """For a constant velocity the path is straight and Euler steps are exact."""

    class Straight(AnalyticBackbone):
        def velocity(self, latents: Tensor, sigma: Tensor, text: TextFeatures) -> Tensor:
            return torch.full_like(latents, 0.25)

    start = torch.randn(5, *SHAPE, dtype=torch.float64)
    assert_close(sample_ode(Straight(), text(5), start, shifted_sigmas(7, 3.0)), start - 0.25)


def test_the_evaluation_sampler_is_the_rollout_without_noise() -> None:
    backbone = AnalyticBackbone(Linear())
    start = torch.randn(3, *SHAPE, dtype=torch.float64)
    made = rollout(backbone, plan(g=1e-12), text(3), start, lambda j: torch.zeros(3, *SHAPE), 3)
    assert_close(sample_ode(backbone, text(3), start, plan().sigmas), made.latents[-1])
    assert_close(made.clean, made.latents[-1])


def test_the_last_transitions_noise_does_not_reach_what_is_decoded() -> None:
    noise, last = noise_of(3), plan().sampling_steps - 1

    def other(denoising_step: int) -> Tensor:
        return noise.transition(denoising_step) * (-1 if denoising_step == last else 1)

    start = noise.initial(shared=False)
    backbone = AnalyticBackbone(Curved())
    made, again = (rollout(backbone, plan(), text(3), start, draw, 3) for draw in (noise.transition, other))
    assert torch.equal(made.clean, again.clean)
    assert not torch.equal(made.latents[-1], again.latents[-1])


def test_every_earlier_transitions_noise_reaches_what_is_decoded() -> None:
    noise = noise_of(1)
    start = noise.initial(shared=False)
    backbone = AnalyticBackbone(Curved())
    made = rollout(backbone, plan(), text(1), start, noise.transition, 1)
    for j in range(plan().sampling_steps - 1):
        again = rollout(backbone, plan(), text(1), start, lambda k, j=j: noise.transition(k) * (-1 if k == j else 1), 1)
        assert not torch.equal(made.clean, again.clean), j


def test_the_evaluation_sampler_makes_an_image_alone_as_in_a_batch() -> None:
    backbone = AnalyticBackbone(Curved())
    start = torch.stack([evaluation_noise(1, f"p{i}", 0, SHAPE) for i in range(4)])
    together = sample_ode(backbone, text(4), start, plan().sigmas)
    assert_close(sample_ode(backbone, text(1), start[2:3], plan().sigmas), together[2:3])
