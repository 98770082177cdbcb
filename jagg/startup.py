"""Start-up of a job: most of a small job's time is the import of model libraries."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Import libraries and load models inside without garbage collection, and leave what they made out of it for good.

    Thousands of modules make objects that last as long as the process; Python's collector would look at all of them
    again and again while they grow, and once more at the end.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collecting:
            gc.enable()
