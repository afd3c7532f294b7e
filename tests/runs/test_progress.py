"""What a long job shows."""

import io

import pytest

from crosslift.runs import progress
from crosslift.runs.progress import Bar, Lines, Silent, clock, watch_screen


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00"), (42.4, "0:42"), (59.6, "1:00"), (725, "12:05"), (3599.7, "1:00:00"), (11220, "3:07:00")],
)
def test_durations_read_like_a_clock(seconds, text):
    assert clock(seconds) == text


@pytest.fixture
def time(monkeypatch):
    """A clock that is set by hand."""

    class Clock:
        now = 100.0

    monkeypatch.setattr(progress.time, "monotonic", lambda: Clock.now)
    return Clock


def test_lines_come_at_their_pace_with_the_time_left(time):
    out = io.StringIO()
    watch = Lines(out, every=10)
    watch.start("finetune", total=100)
    watch.advance(1)
    assert out.getvalue() == ""
    time.now += 20
    watch.advance(25, "loss 0.5")
    watch.advance(26)
    assert out.getvalue() == "finetune  25/100  1:00 left  loss 0.5\n"
    time.now += 60
    watch.finish("dev 90.1")
    assert out.getvalue().splitlines()[-1] == "finetune  done in 1:20  dev 90.1"


def test_a_resumed_job_is_estimated_from_what_was_done_since(time):
    out = io.StringIO()
    watch = Lines(out, every=1)
    watch.start("finetune", total=100, done=90)
    time.now += 20
    watch.advance(95)
    assert "0:20 left" in out.getvalue()


def test_a_bar_takes_the_same_calls_and_says_lines_as_they_are(capsys):
    bar = Bar()
    bar.say("[brackets] stay")
    bar.start("demo", 10)
    bar.advance(10, "note")
    bar.finish("end")
    said = capsys.readouterr()
    assert "[brackets] stay" in said.err
    assert "demo" in said.err
    assert said.out == ""


def test_the_screen_decides_what_is_shown(monkeypatch):
    assert isinstance(watch_screen(quiet=True), Silent)
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True, raising=False)
    assert isinstance(watch_screen(), Bar)
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: False, raising=False)
    assert isinstance(watch_screen(), Lines)
