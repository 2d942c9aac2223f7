"""Ctrl-C between two steps of training, never inside one."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """Inside this block the first Ctrl-C waits for the step under way, so that the checkpoint loses nothing.

    The second one does not wait. SIGTERM, where it also raises `KeyboardInterrupt`, always waits. Signals that do
    something else are left alone.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            ours = [number for number in SIGNALS if signal.getsignal(number) is signal.default_int_handler]
            self._before = {number: signal.signal(number, self._note) for number in ours}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()
        if self.asked and error is None:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        if number == signal.SIGINT:
            signal.signal(number, self._before[number])

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
