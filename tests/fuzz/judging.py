"""Is it answered as it should be: done soon, or refused in one line — never a traceback, a hang or a full memory."""

import contextlib
import io
import resource
import signal
import warnings
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sandtable.arguments import ArgumentError

SECONDS = 5.0
MEMORY = 3 << 30
"""Bytes a call may ask for on top of what the process holds."""
LONGEST_LINE = 1000

NASTY: tuple[Any, ...] = (
    None, True, False, 0, 1, 2, 3, 5, -1, -7, 10**9, 10**12, 2**31, 2**63, 2**64, -(2**63), 10**30, 10**400,
    0.0, -0.0, 0.5, 1.0, 1.5, -0.5, 2.0, 1e-300, 1e300, 5e-324, float("nan"), float("inf"), float("-inf"),
    "", " ", "a", "αβγ", "\u202e\x00\x1b[31m", "a\nb", "x" * 5000, "0", "1e3", "..", "/proc/nowhere", "cuda:99",
    b"", b"bytes", (), (0,), (1, 2), (2, 1), (-1, 5), (0, 0), (1.5, float("nan")), ("a",), ("a", "a"), ((),),
    ((0, 1), (1, 0)), ((0, 1), (1,)), (None,), [], [0], [1, 2, 3], ["a", ""], [[]], [[1, 2], [3]], [10**12],
    {}, {"a": 1}, {0: "b"}, {"": None}, {"a": {"b": []}}, set(), {1, 2}, frozenset(), range(3), slice(1), ...,
    object(), int, float, len, Decimal("1.5"), Fraction(1, 3), 1j, (10**9, 10**9), "1" * 5000,
    np.int64(3), np.float32(0.5), np.array(2), np.array([1.0, 2.0]), np.array([]), np.array(["a"]), np.bool_(True),
    np.array([object()]), torch.tensor(2), torch.tensor(0.5), torch.tensor([1.0, 2.0]), torch.zeros(0),
    torch.zeros(2, 2), torch.tensor(float("nan")), torch.nn.Linear(1, 1),
)  # fmt: skip
"""What nobody should pass, and a few values that are sometimes right."""
MUCH = 20
"""Where a parameter asks for work, numbers beyond this one are not tried: it would be done, bit by bit."""


class TooLong(BaseException):
    """The time is up; not an Exception, so that no `except Exception` can swallow it."""


@contextlib.contextmanager
def limited(seconds: float = SECONDS, memory: int = MEMORY) -> Iterator[None]:
    """At most so much time, and so much more memory than the process has now."""

    def stop(*_: object) -> None:
        raise TooLong(f"took more than {seconds:g} s")

    before = signal.signal(signal.SIGPROF, stop)  # time of the processor: a busy machine is no hang
    limits = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + memory, limits[1]))
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        resource.setrlimit(resource.RLIMIT_AS, limits)


def complaint(call: Callable[[], object]) -> str | None:
    """What is wrong with the answer; None where it is as it should be."""
    quiet = io.StringIO()
    try:
        with (
            torch.random.fork_rng(devices=[]),
            limited(),
            contextlib.redirect_stdout(quiet),
            contextlib.redirect_stderr(quiet),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            call()
    except ArgumentError as error:
        line = str(error)
        if "\n" in line or not line.strip() or len(line) > LONGEST_LINE:
            return f"not one line: {line[:300]!r} ({len(line)} characters)"
        return None
    except TooLong as error:
        return f"TooLong: {error}"
    except BaseException as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    return None
