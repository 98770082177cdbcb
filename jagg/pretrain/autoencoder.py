"""Training of an embedded autoencoder on drawn images."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from jagg.pretrain.embedded import EmbeddedFamily, cosine_schedule

BATCH_SIZE = 8
LEARNING_RATE = 2e-3
KL_WEIGHT = 1e-6
"""Weight of the mean KL divergence beside the mean squared error of pixels in [-1, 1]."""


def train_autoencoder(
    family: EmbeddedFamily,
    images: Float[Tensor, "count 3 size size"],
    *,
    num_steps: int,
    seed: int,
    progress: Callable[[int, int], None],
) -> None:
    """Minimise squared error plus a little KL divergence (AdamW), then fix the latents' shift and scale."""
    vae: nn.Module = family.pipeline.vae
    optimizer = torch.optim.AdamW(vae.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.99), weight_decay=0.0, fused=True)
    schedule = cosine_schedule(optimizer, num_steps)
    generator = torch.Generator().manual_seed(seed)
    for step in range(num_steps):
        batch = images[torch.randint(len(images), (BATCH_SIZE,), generator=generator)]
        reconstruction, kl = family.reconstruct(batch)
        loss = mse_loss(reconstruction, batch) + KL_WEIGHT * kl
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(vae.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        progress(step + 1, num_steps)
    family.normalise(images[:1024])


@torch.no_grad()
def reconstruction_psnr(family: EmbeddedFamily, images: Float[Tensor, "count 3 size size"]) -> float:
    """Peak signal-to-noise ratio of reconstructions, in dB; the peak is the pixels' range."""
    with torch.random.fork_rng(devices=[]):
        reconstruction, _ = family.reconstruct(images)
    return -10 * torch.log10(mse_loss(reconstruction.clamp(-1, 1), images) / 4).item()
