"""Time left is told from what was seen; on a terminal a line is rewritten, elsewhere one is written at the end."""

import io
import sys

import pytest

from sandtable.arguments import Ticker
from sandtable.training.pace import Pace


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_time_left_is_the_rest_at_the_speed_so_far():
    clock = Clock()
    pace = Pace(clock)
    assert pace.left(10, 100) is None
    clock.now += 5
    assert pace.left(20, 100) == pytest.approx(40)
    clock.now += 5
    assert pace.left(60, 100) == pytest.approx(8)
    clock.now += 90
    assert pace.left(3, 100) is None  # another stack begins
    clock.now += 1
    assert pace.left(4, 100) == pytest.approx(96)
    assert pace.left(4, 200) is None


def test_words():
    clock = Clock()
    pace = Pace(clock)
    assert pace.training(500, 1000, 1234.5, 0.25) == "step 500/1000 · 1.23e+03 model-steps/s · loss 0.25"
    clock.now += 65
    assert pace.words(750, 1000) == " · 0:01:05 left"
    assert pace.words(1000, 1000) == ""


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_sees_one_line_that_changes(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    tick = Ticker(Pace().training)
    for step in (1, 2, 3):
        tick(step, 3, 10.0, 1.0)
    written = sys.stderr.getvalue()
    assert written.count("\r") == 2
    assert written.count("\n") == 1
    assert "3/3" in written.rpartition("\r")[2]


def test_elsewhere_only_the_end_is_told(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    tick = Ticker(Pace().training)
    for step in (1, 2, 3, 1, 2, 3):
        tick(step, 3, 10.0, 1.0)
    assert sys.stderr.getvalue().splitlines() == ["step 3/3 · 10 model-steps/s · loss 1"] * 2
