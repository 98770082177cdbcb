"""Gradients of the samples of a batch kept apart, at the cost of one ordinary backward pass (math.md 4, reweight)."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call

from jagg.errors import InputError

NORMS = ("LayerNorm", "RMSNorm")
"""Classes of torch and diffusers that normalise the last dimension, then multiply by `weight` and add `bias`."""
_TOLERANCE = 0.02
"""Relative difference that rounding may make, in bfloat16 too; a use that is missed or counted twice makes more."""
_NAMED = 3


class SampleGradients:
    """What a batch of samples adds to the trained parameters' gradients, sample by sample.

    A batch of one is plain autograd. For more, each module that holds trained parameters takes the gradient from its
    inputs and from the gradient of its output, as autograd does, but without the sum over samples; the forward pass is
    the ordinary one, bit for bit. A module's first dimension must be the sample, and it must be run by calling it;
    `check` holds that.
    """

    def __init__(self, transformer: nn.Module) -> None:
        self._names = {p: name for name, p in transformer.named_parameters() if p.requires_grad}
        self._parameters = list(self._names)
        trained = set(self._parameters)
        self._modules = [m for m in transformer.modules() if trained & set(m.parameters(recurse=False))]
        self._gradients: dict[nn.Parameter, Tensor] = {}
        self._rerunning = False

    @contextmanager
    def recording(self, samples: int) -> Iterator[None]:
        """Forward and backward passes of this batch run inside; a batch of one needs no recording."""
        if samples == 1:
            yield
            return
        with ExitStack() as stack:
            for module in self._modules:
                stack.callback(module.register_forward_hook(self._record, with_kwargs=True).remove)
            # Autograd would add up the samples' gradients, which nobody asks for.
            stack.callback(lambda: [parameter.requires_grad_(True) for parameter in self._parameters])
            for parameter in self._parameters:
                parameter.requires_grad_(False)
            yield

    def backward(
        self, velocity: Float[Tensor, "batch tokens channels"], signal: Float[Tensor, "batch tokens channels"]
    ) -> None:
        """Add J_i^T signal_i to the gradient of each sample i; `velocity` was made while recording."""
        if len(velocity) > 1:
            with self.recording(len(velocity)):
                torch.autograd.backward(velocity, signal)
            return
        for parameter, gradient in zip(
            self._parameters, torch.autograd.grad(velocity, self._parameters, signal, allow_unused=True)
        ):
            if gradient is not None:
                self._keep(parameter, gradient[None])

    def check(
        self, velocity: Float[Tensor, "batch tokens channels"], signal: Float[Tensor, "batch tokens channels"]
    ) -> None:
        """Hold a weighted sum over the samples, of one `backward` so far, against autograd's own gradient.

        `velocity`: the same as was back-propagated, made once more without recording.

        Raises:
            InputError: a parameter takes part that no called module shows, or whose samples' gradients do not add up.
        """
        # Weights that differ, so that a sample's gradient in another one's place is seen.
        weights = torch.linspace(0.5, 1.5, len(signal), device=signal.device)
        weighted = signal * weights.to(signal)[:, None, None]
        plain = torch.autograd.grad(velocity, self._parameters, weighted, allow_unused=True)
        taken = [(parameter, gradient) for parameter, gradient in zip(self._parameters, plain) if gradient is not None]
        unseen = [self._names[parameter] for parameter, _ in taken if parameter not in self._gradients]
        wrong = [self._names[p] for p, gradient in taken if p in self._gradients and not self._is(p, weights, gradient)]
        if unseen or wrong:
            got = f"{len(unseen)} parameters used past their module, {len(wrong)} whose samples do not add up"
            raise _refusal(unseen + wrong, got)

    def _is(self, parameter: nn.Parameter, weights: Float[Tensor, "batch"], gradient: Tensor) -> bool:
        of_samples = self._gradients[parameter].flatten(1).float()
        if len(of_samples) != len(weights):
            return False
        off = (weights @ of_samples - gradient.flatten()).norm()
        # A gradient that is not finite is no fault of the modules: the run ends for it later.
        return not bool(off > _TOLERANCE * (weights @ of_samples.norm(dim=1)))

    @torch.no_grad()
    def add(self, weights: Float[Tensor, "batch"]) -> None:
        """Add the weighted sum of the samples' gradients to the parameters' gradients, and forget them."""
        for parameter, gradients in self._gradients.items():
            total = torch.einsum("b,b...->...", weights.to(gradients), gradients).to(parameter)
            parameter.grad = total if parameter.grad is None else parameter.grad.add_(total)
        self._gradients = {}

    def _keep(self, parameter: nn.Parameter, gradients: Float[Tensor, "batch *shape"]) -> None:
        if parameter in self._gradients:
            self._gradients[parameter] += gradients
        else:
            self._gradients[parameter] = gradients

    def _record(
        self, module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], output: Tensor
    ) -> Tensor | None:
        if self._rerunning or not torch.is_grad_enabled():
            return None
        if named or not all(isinstance(value, Tensor) for value in (*inputs, output)):
            first = next(module.parameters(recurse=False))
            raise _refusal([self._names.get(first, type(module).__name__)], "other inputs or outputs than tensors")
        if not output.requires_grad:
            output.requires_grad_()
        take = self._take_linear if type(module) is nn.Linear else self._take
        if type(module).__name__ in NORMS:
            take = self._take_norm
        tapped: Tensor = _Tap.apply(output, lambda saved, gradient: take(module, saved, gradient), *inputs)
        return tapped

    def _take_linear(self, module: nn.Module, inputs: tuple[Tensor, ...], gradient: Tensor) -> None:
        parameters = dict(module.named_parameters(recurse=False))
        rows, signals = (t.flatten(1, -2) if t.dim() > 2 else t[:, None] for t in (inputs[0], gradient))
        weight = parameters["weight"]
        if weight in self._gradients:
            # In place: these are the largest tensors of a reweighted step, and reading them is what it costs.
            self._gradients[weight].baddbmm_(signals.mT, rows)
        else:
            self._gradients[weight] = torch.bmm(signals.mT, rows)
        if "bias" in parameters:
            self._keep(parameters["bias"], signals.sum(dim=1))

    def _take_norm(self, module: nn.Module, inputs: tuple[Tensor, ...], gradient: Tensor) -> None:
        """A norm is linear in its weight and bias: what stands before them is its output with weight 1 and bias 0."""
        parameters = dict(module.named_parameters(recurse=False))
        plain = {name: torch.full_like(p, name == "weight") for name, p in parameters.items()}
        factors = {"weight": functional_call(_Forward(module), _renamed(plain), inputs) * gradient, "bias": gradient}
        for name, parameter in parameters.items():
            self._keep(parameter, factors[name].flatten(1, -2).sum(dim=1).to(parameter))

    @torch.enable_grad()
    def _take(self, module: nn.Module, inputs: tuple[Tensor, ...], gradient: Tensor) -> None:
        """Any other module: its forward once more, one sample at a time."""
        parameters = dict(module.named_parameters(recurse=False))
        values = {name: p.detach().requires_grad_() for name, p in parameters.items()}
        for i in range(len(gradient)):
            one = slice(i, i + 1)
            self._rerunning = True  # modules inside of this one have been recorded
            output = functional_call(_Forward(module), _renamed(values), tuple(value[one] for value in inputs))
            self._rerunning = False
            made = torch.autograd.grad(output, list(values.values()), gradient[one])
            for parameter, of_sample in zip(parameters.values(), made):
                self._gradients.setdefault(parameter, parameter.new_zeros(len(gradient), *parameter.shape))
                self._gradients[parameter][i] += of_sample


def _refusal(names: list[str], got: str) -> InputError:
    return InputError(
        "the schedule reweight cannot take this backbone's gradients sample by sample",
        where="transformer: " + ", ".join(names[:_NAMED]),
        expected="modules that are run by calling them, on tensors alone, with the sample as first dimension",
        got=got,
        fix="set the arm's schedule to retain, reuse or native, or training.micro_batch_size to 1",
    )


def _renamed(values: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"module.{name}": value for name, value in values.items()}


class _Tap(torch.autograd.Function):
    """The identity; its backward hands on a module's inputs, saved as autograd saves them, and the gradient."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, take: Any, *inputs: Tensor) -> Tensor:
        ctx.take = take
        ctx.save_for_backward(*inputs)
        return output.view_as(output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        saved = ctx.saved_tensors  # read once: with gradient checkpointing each reading is a recomputation
        ctx.take(saved, gradient)
        return gradient, None, *[None] * len(saved)


class _Forward(nn.Module):
    """A module's forward without its hooks."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: Any) -> Tensor:
        result: Tensor = self.module.forward(*inputs)
        return result
