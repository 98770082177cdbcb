"""What autograd keeps of a forward pass, counted where it is kept: works on every device, torch's meta device too."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef


class SavedActivations:
    """Bytes of the tensors that graphs made inside this context keep alive; each storage counts once.

    A graph may outlive the context; weights are not counted. Saving goes through Python here, so it is slow.
    """

    def __init__(self, weights: Iterable[Tensor]) -> None:
        self.alive_bytes = 0
        self.peak_bytes = 0
        self._weights = {_storage(weight) for weight in weights}
        self._holders: Counter[int] = Counter()
        self._hooks = torch.autograd.graph.saved_tensors_hooks(lambda tensor: _Saved(self, tensor), _Saved.unpack)

    def __enter__(self) -> "SavedActivations":
        self._hooks.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._hooks.__exit__(*error)

    def take(self, tensor: Tensor) -> int | None:
        """Count a tensor's storage in; None for a weight."""
        storage = _storage(tensor)
        if storage in self._weights:
            return None
        self._holders[storage] += 1
        if self._holders[storage] == 1:
            self.alive_bytes += tensor.untyped_storage().nbytes()
            self.peak_bytes = max(self.peak_bytes, self.alive_bytes)
        return storage

    def release(self, storage: int, size: int) -> None:
        """Count a storage out once nothing holds it."""
        self._holders[storage] -= 1
        if self._holders[storage] == 0:
            del self._holders[storage]
            self.alive_bytes -= size


class _Saved:
    """A saved tensor; it is counted out when its graph lets go of it."""

    def __init__(self, of: SavedActivations, tensor: Tensor) -> None:
        # Detached: an operation's own output would otherwise keep its graph, and the graph it, for good.
        self.tensor, self._of = tensor.detach(), of
        self._storage, self._size = of.take(tensor), tensor.untyped_storage().nbytes()

    def unpack(self) -> Tensor:
        return self.tensor

    def __del__(self) -> None:
        if self._storage is not None:
            self._of.release(self._storage, self._size)


def _storage(tensor: Tensor) -> int:
    identity: int = StorageWeakRef(tensor.untyped_storage()).cdata
    return identity
