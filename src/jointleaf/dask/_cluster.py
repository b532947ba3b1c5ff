"""A cluster as the place of blocks: values on workers, weights out, sums back.

All tasks are pure functions of others, down to those that made the user's rows: what is lost with a
worker is computed again. For that reason nothing is scattered, no task is tied to a worker, though
those of a block prefer the one that made it, and no worker holds a state; what goes to all blocks
is itself the result of a task. Sums are added in groups of `FAN` block numbers, not by worker, so
that they do not depend on who computed what.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from copy import copy
from functools import partial
from typing import Any

import distributed
import numpy as np
from distributed import Client, Future, KilledWorker
from numpy.typing import NDArray

import dask
from jointleaf._core.row_vectors import FAN, Call, Kept, Place, Shared, computed, with_slots

_LOOK = 5.0  # seconds after which a wait looks whether the cluster is still there
_NO_WORKERS = 60.0  # seconds without a worker or a scheduler after which a fit gives up
_LONGEST = 3600.0  # seconds that one pass may take
_SMALL = 1024  # bytes of arrays that go with every task
_JOINT_CELLS = 1024  # a table of pairs of cells, 8 MB, comes from every block

_START = "from dask.distributed import Client; client = Client()"


def find_client(client: Client | None) -> Client:
    """Return the client that is given, or the default one."""
    if client is None:
        try:
            client = distributed.default_client()
        except ValueError:
            raise ValueError(
                f"client=None, and there is no default client: start one ({_START}), or give one"
            ) from None
    if not isinstance(client, Client):
        raise TypeError(f"client={client!r} must be a dask.distributed.Client: {_START}")
    if client.asynchronous:
        raise ValueError("client is asynchronous: give one that was made without asynchronous=True")
    if client.status != "running":
        raise ValueError(f"client is {client.status}: start another one ({_START})")
    return client


class Cluster(Place):
    """The workers of a client."""

    most_joint_cells = _JOINT_CELLS

    def __init__(self, client: Client) -> None:
        self.client = client
        self._homes: dict[str, str] = {}  # of blocks: keys of their tasks, and workers

    def share(self, value: Any) -> Future:
        """Return a value that workers take from each other, not all from here."""
        return self.submit(_itself, value)

    def submit(self, function: Callable[..., Any], *args: Any, worker: str | None = None) -> Future:
        """Start a task whose result is not looked up among those of equal tasks.

        A worker is where it should be computed; any other will do where that one is gone.
        """
        self._check()
        # Weights of many cells are a large argument on purpose: one task that all others depend on.
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"}):
            return self.client.submit(
                function,
                *args,
                pure=False,
                workers=None if worker is None else [worker],
                allow_other_workers=worker is not None,
            )

    # -- the operations of a place -------------------------------------------------------------

    def keep(self, function: Callable[..., Any], *args: Any) -> Kept:
        return Kept(self._each(function, args))

    def collect(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        return self.gather(self._each(function, args))

    def sum(self, function: Callable[..., Any], *args: Any) -> NDArray[np.float64]:
        level = self._each(_term, (function, *args))
        while len(level) > FAN:
            groups = [level[first : first + FAN] for first in range(0, len(level), FAN)]
            level = [self.submit(_added, group) for group in groups]
        return _added(self.gather(level))  # the last few here, which saves a message

    def _each(self, function: Callable[..., Any], args: tuple[Any, ...]) -> list[Future]:
        """Start one task for every block."""
        call, leaves = with_slots(Call(function, args))
        shared = {
            number: self._shared(leaf.value)
            for number, leaf in enumerate(leaves)
            if isinstance(leaf, Shared)
        }
        kept = {number: leaf.values for number, leaf in enumerate(leaves) if isinstance(leaf, Kept)}
        n_blocks = max(len(values) for values in kept.values())
        return [
            self.submit(
                computed,
                call,
                [shared[k] if k in shared else kept[k][block] for k in range(len(leaves))],
                worker=self._home([values[block] for values in kept.values()]),
            )
            for block in range(n_blocks)
        ]

    def _home(self, values: list[Future]) -> str | None:
        """Return the worker that made the block among values."""
        # Left to itself Dask moves a block to the worker that happens to wait, which then holds it
        # as well: in every pass some, until all workers hold most blocks.
        return next((self._homes[f.key] for f in values if f.key in self._homes), None)

    def _shared(self, value: Any) -> Any:
        if isinstance(value, np.ndarray) and value.nbytes > _SMALL:
            return self.share(value)
        return value

    # -- waiting -------------------------------------------------------------------------------

    def in_turns(self, starts: Sequence[Callable[[], Future]]) -> list[Future]:
        """Start tasks, each of which makes a block: when as many are done as there are threads.

        With all of them at once, workers that are faster would make and hold more blocks than
        others, and rows would wait in memory until they become a block.
        """
        futures: list[Future] = []
        while len(futures) < len(starts):
            self._check()
            is_running = self.client.status == "running"
            n_threads = sum(self.client.nthreads().values()) if is_running else 0
            turn = [start() for start in starts[len(futures) : len(futures) + max(1, n_threads)]]
            self.settle(turn)
            futures += turn
        return futures

    def settle(self, blocks: list[Future]) -> None:
        """Wait for blocks, and remember which worker made them: what needs one is sent there."""
        with _told_in_one_sentence():
            self._wait(blocks)
            places = self.client.who_has(blocks)
        self._homes |= {key: workers[0] for key, workers in places.items() if workers}

    def gather(self, futures: list[Future]) -> list[Any]:
        """Return the results of tasks; raise an error rather than wait for what cannot come."""
        with _told_in_one_sentence():
            self._wait(futures)
            get = partial(self.client.gather, futures, asynchronous=True)
            return self.client.sync(get, callback_timeout=_LONGEST)

    def _wait(self, futures: list[Future]) -> None:
        start = seen = time.monotonic()
        while True:
            with suppress(TimeoutError):
                distributed.wait(futures, timeout=_LOOK)
                return
            now = time.monotonic()
            self._check()
            if self.client.status == "running" and self.client.nthreads():
                seen = now
            if now - seen > _NO_WORKERS:
                raise RuntimeError(
                    f"the cluster has had no worker for {_NO_WORKERS:.0f} seconds: start workers, "
                    "and fit again"
                )
            if now - start > _LONGEST:
                raise RuntimeError(
                    f"a pass over all rows took more than {_LONGEST:.0f} seconds: use more workers"
                )

    def _check(self) -> None:
        if self.client.status in ("closing", "closed"):
            raise RuntimeError("the client was closed during a fit: fit again with another one")


@contextmanager
def _told_in_one_sentence() -> Iterator[None]:
    """Turn what Dask raises into errors with a remedy."""
    try:
        yield
    except KilledWorker:
        raise RuntimeError(
            "several workers died of the same task, most likely for want of memory: use "
            "smaller partitions, or workers with more memory"
        ) from None
    except CancelledError:
        raise RuntimeError(
            "the client was closed, or the cluster restarted, during a fit: fit again"
        ) from None
    except Exception as error:
        # The client keeps the error of a task, and its traceback would keep the futures.
        without_traceback = copy(error)
        error.__traceback__ = None
        raise without_traceback from None


def _itself(value: Any) -> Any:
    return value


def _term(function: Callable[..., NDArray], *args: Any) -> NDArray[np.float64]:
    return np.asarray(function(*args), float)


def _added(terms: list[NDArray]) -> NDArray[np.float64]:
    total = terms[0].copy()
    for term in terms[1:]:
        np.add(total, term, out=total)
    return total
