"""A process of its own for every fit.

A fit then cannot leave memory, caches or threads to the next one, and one that is killed is one
result that is missing.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, TypeVar

Value = TypeVar("Value")


def run_isolated(function: Callable[..., Value], *arguments: Any) -> Value:
    """Call the function in a new process and return what it returns.

    The process is a fork: data are not copied, and nothing is imported again.

    Raises
    ------
    RuntimeError
        The function raised an error, or its process was killed.
    """
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_call, args=(sender, function, arguments))
    process.start()
    sender.close()
    try:
        value, failure = receiver.recv()
    except EOFError:
        value, failure = None, "its process was killed"
    process.join()
    if failure is not None:
        raise RuntimeError(failure)
    return value


def _call(sender: Connection, function: Callable, arguments: tuple) -> None:
    try:
        sender.send((function(*arguments), None))
    except Exception as error:  # Of any kind: it is raised in the first process.
        sender.send((None, f"{type(error).__name__}: {error}"))
