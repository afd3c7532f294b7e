"""When training against the clock ends."""

import time

import pytest
import torch

from crosslift.runs.timed_work import time_is_up

CPU = torch.device("cpu")


def test_one_process_goes_by_its_own_clock():
    assert time_is_up(time.monotonic() - 1, 1, CPU)
    assert not time_is_up(time.monotonic() + 60, 1, CPU)
    assert not time_is_up(float("inf"), 2, CPU)  # no limit: nobody has to be asked


def ask(rank, home, deadlines):
    torch.distributed.init_process_group("gloo", init_method=f"file://{home}/meet", rank=rank, world_size=2)
    said = [time_is_up(time.monotonic() + pair[rank], 2, CPU) for pair in deadlines]
    (home / f"{rank}.txt").write_text(" ".join(map(str, said)))
    torch.distributed.destroy_process_group()


@pytest.mark.slow
def test_processes_whose_clocks_differ_end_together(tmp_path):
    deadlines = [(60.0, -1.0), (-1.0, 60.0)]  # in seconds from now: of the first process, of the second
    torch.multiprocessing.spawn(ask, (tmp_path, deadlines), nprocs=2)
    assert (tmp_path / "0.txt").read_text() == (tmp_path / "1.txt").read_text() == "False True"
