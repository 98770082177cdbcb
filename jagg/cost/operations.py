"""Matrix products as they are run, 2 operations a multiply-add."""

from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count


def operation_counter() -> FlopCounterMode:
    """A context that counts; torch's own counter lacks the CPU's attention kernel and products added in place.

    A fused attention kernel computes its scores again in the backward pass and is counted so.
    """
    return FlopCounterMode(display=False, custom_mapping=_NOT_COUNTED_BY_TORCH)


def _attention(query: Any, key: Any, value: Any, *others: Any, **named: Any) -> int:
    operations: int = sdpa_flop_count(query, key, value)
    return operations


def _attention_backward(gradient: Any, query: Any, key: Any, value: Any, *others: Any, **named: Any) -> int:
    operations: int = sdpa_backward_flop_count(gradient, query, key, value)
    return operations


def _product_added(total: Any, left: Any, right: Any, *others: Any, **named: Any) -> int:
    operations: int = 2 * left[0] * left[1] * left[2] * right[2]
    return operations


_NOT_COUNTED_BY_TORCH = {
    torch.ops.aten.baddbmm_: _product_added,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
}
