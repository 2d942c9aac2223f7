"""`sandtable pretrain --accelerate` in two processes gives the numbers of one."""

import json
import os
import socket
import subprocess
import sys

import pytest
import torch

from sandtable.cli import main

pytest.importorskip("accelerate")
pytest.importorskip("transformers")
safetensors = pytest.importorskip("safetensors.torch")

WORDS = ["a", "b", "c", "d", "e", "f", "g", "h"]
TINY = dict(steps=20, layers=1, heads=1, width=8, vocab=60, length=12, batch_size=4)


def corpus(folder):
    """A little text in which every word decides the next."""
    lines = [" ".join(WORDS[(i * j) % 8] for j in range(1, 24)) for i in range(1, 60)]
    (folder / "text.txt").write_text("\n\n".join(lines))
    return str(folder / "text.txt")


def words(folder, text, name):
    """The command, without the program."""
    sizes = [word for key, value in TINY.items() for word in (f"--{key.replace(chr(95), chr(45))}", str(value))]
    store = ["--store", str(folder / "runs"), "--quiet"]
    return ["pretrain", "--corpus", text, "-o", str(folder / name), *sizes, *store]


def run_together(command):
    """The command in two processes that average their gradients over gloo."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = str(listener.getsockname()[1])
    address = dict(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, WORLD_SIZE="2", ACCELERATE_USE_CPU="true")
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "sandtable", *command, "--accelerate"],
            env={**os.environ, **address, "RANK": str(r), "LOCAL_RANK": str(r), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for r in range(2)
    ]
    try:
        errors = [process.communicate(timeout=240)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], "\n".join(errors)


def test_two_processes_train_the_model_of_one(tmp_path):
    text = corpus(tmp_path)
    with pytest.raises(SystemExit) as done:
        main(words(tmp_path, text, "alone"))
    assert not done.value.code
    run_together(words(tmp_path, text, "together"))
    alone, together = (safetensors.load_file(tmp_path / name / "model.safetensors") for name in ("alone", "together"))
    assert alone.keys() == together.keys()
    for name, value in alone.items():
        torch.testing.assert_close(together[name], value, atol=1e-5, rtol=1e-4)
    one, two = (json.loads((tmp_path / name / "dynamics.json").read_text()) for name in ("alone", "together"))
    assert one["steps"] == two["steps"]
    torch.testing.assert_close(torch.tensor(two["loss"]), torch.tensor(one["loss"]), atol=1e-5, rtol=1e-5)
    assert one["loss"][-1] < one["loss"][0]
