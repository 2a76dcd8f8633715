"""A command of `itemfold` in a process of its own, which can kill itself with signal 9."""

import multiprocessing
import os
import signal
import sys
from types import FrameType
from typing import Any

MODULES = ["itemfold.cli.train", "itemfold.training.fit", "itemfold.training.strategies"]
SERVER = multiprocessing.get_context("forkserver")  # imports the package once
SERVER.set_forkserver_preload(MODULES)


def command(*arguments: object, dies_at: tuple[str, int] | None = None) -> int:
    """The exit status of a command that is killed when a function is called for the n-th time."""
    texts = [str(argument) for argument in arguments]
    process = SERVER.Process(target=_run, args=(texts, dies_at))
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def _run(arguments: list[str], dies_at: tuple[str, int] | None) -> None:
    import torch

    from itemfold.cli.app import app

    torch.set_num_threads(1)  # so that other processes cannot change the order of sums
    with open(os.devnull, "w") as sys.stdout:
        if dies_at is not None:
            _die_at(*dies_at)
        app(arguments)


def _die_at(name: str, number: int) -> None:
    calls = 0

    def count(frame: FrameType, event: str, _: Any) -> None:
        nonlocal calls
        if event == "call" and frame.f_code.co_qualname == name:
            calls += 1
            if calls == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(count)
