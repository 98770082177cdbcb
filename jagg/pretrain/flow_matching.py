"""Flow matching of an embedded backbone: transformer and text encoders together (math.md 1)."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from jagg.pretrain.embedded import EmbeddedFamily, cosine_schedule

EMA_DECAY = 0.99
EMPTY_PROMPT_RATE = 0.1
"""Share of images trained on the empty prompt, in families that have an unconditional branch."""


@dataclass(frozen=True)
class FlowData:
    """Clean latents and the tokens of their captions."""

    latents: Float[Tensor, "count tokens channels"]
    tokens: dict[str, Tensor]


def train_flow(
    family: EmbeddedFamily,
    data: FlowData,
    *,
    num_steps: int,
    batch_size: int,
    learning_rate: float,
    seed: int,
    progress: Callable[[int, int], None],
) -> float:
    """Minimise the squared error of the velocity (AdamW); the moving average of the weights stays in the pipeline.

    Returns:
        The mean loss of the last tenth of the steps.
    """
    networks = trained_networks(family)
    parameters: list[Tensor] = list(networks.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=learning_rate, betas=(0.9, 0.99), weight_decay=0.0, fused=True)
    schedule = cosine_schedule(optimizer, num_steps)
    average = [parameter.detach().clone() for parameter in parameters]
    generator = torch.Generator().manual_seed(seed)
    empty = family.tokenise([family.empty_prompt]) if family.empty_prompt is not None else None
    losses = []
    for step in range(num_steps):
        batch = torch.randint(len(data.latents), (batch_size,), generator=generator)
        tokens = {name: ids[batch] for name, ids in data.tokens.items()}
        if empty is not None:
            dropped = torch.rand(batch_size, generator=generator) < EMPTY_PROMPT_RATE
            tokens = {name: torch.where(dropped[:, None], empty[name], ids) for name, ids in tokens.items()}
        loss = flow_loss(family, data.latents[batch], tokens, generator)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        schedule.step()
        torch._foreach_lerp_(average, parameters, 1 - min(EMA_DECAY, (1 + step) / (10 + step)))
        losses.append(loss.detach())
        progress(step + 1, num_steps)
    with torch.no_grad():
        torch._foreach_copy_(parameters, average)
    return torch.stack(losses[-max(1, num_steps // 10) :]).mean().item()


def flow_loss(
    family: EmbeddedFamily,
    latents: Float[Tensor, "batch tokens channels"],
    tokens: dict[str, Tensor],
    generator: torch.Generator,
) -> Float[Tensor, ""]:
    """Mean squared error of the velocity eps - x0; sigma is drawn logit-normal (Esser et al. 2024)."""
    noise = torch.randn(latents.shape, generator=generator).to(latents.device)
    sigma = torch.randn(len(latents), generator=generator).sigmoid().to(latents.device)
    noisy = torch.lerp(latents, noise, sigma[:, None, None])
    return mse_loss(family.velocity(noisy, sigma, tokens), noise - latents)


def trained_networks(family: EmbeddedFamily) -> nn.ModuleList:
    """The transformer and the text encoders."""
    components = family.pipeline.components
    return nn.ModuleList(
        component for name, component in components.items() if isinstance(component, nn.Module) and name != "vae"
    )
