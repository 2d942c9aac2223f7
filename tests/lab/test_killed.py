"""Killed, full, shared or damaged: the store ends with the bits of a run that nobody disturbed."""

import contextlib
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from small_fit import CLAIM, contents, run

from sandtable.lab import Store
from sandtable.lab.store import StoreError

SCRIPT = str(Path(__file__).with_name("small_fit.py"))


def process(root, *words):
    done = subprocess.run([sys.executable, SCRIPT, str(root), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    return done


@pytest.fixture(scope="module")
def under_fire(tmp_path_factory):
    """Two kills; two processes at once; files of too few bytes for a key, and for a checkpoint."""
    return process(tmp_path_factory.mktemp("fire"), "2", "0", "100", "9000")


def test_killed_at_random_and_resumed(under_fire):
    assert "runs finished as undisturbed" in under_fire.stdout


@pytest.mark.slow
def test_fifty_kills(tmp_path):
    print(process(tmp_path, "50", "1").stdout)


def test_two_processes_share_a_store(under_fire):
    assert "shared by two, as undisturbed" in under_fire.stdout


def test_a_full_disk_is_one_line_and_loses_nothing(under_fire):
    assert "room at last, as undisturbed" in under_fire.stdout
    said = [line for line in under_fire.stderr.splitlines() if line.startswith("StoreError")]
    assert len(said) == 2, under_fire.stderr
    for line in said:
        assert "no space left" in line
        assert "finished work is kept" in line


DAMAGE = {
    "truncated": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "a bit flipped": lambda content: content[:-9] + bytes([content[-9] ^ 4]) + content[-8:],
    "something else": lambda content: b"\x80\x04\x95 not what it was {}[]",
}


@pytest.mark.parametrize("how", DAMAGE)
def test_whatever_is_damaged_is_set_aside_and_computed_again(tmp_path, how):
    run(tmp_path, steps=8)
    whole = contents(tmp_path)
    read = [name for name in whole if not name.endswith("key.json")]  # keys are for people, nothing reads them
    assert {Path(name).suffix for name in read} == {".json", ".npz", ".safetensors"}
    for name in read:
        path = tmp_path / name
        path.write_bytes(DAMAGE[how](path.read_bytes()))
        if name.startswith("fits"):  # so that the fit is asked for
            for file in tmp_path.glob("measures/*/*.npz"):
                file.unlink()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            Store(tmp_path).last_verdict(CLAIM.id)
            run(tmp_path, steps=8)
        assert any("damaged" in str(warning.message) for warning in said), name
        assert contents(tmp_path) == whole, name


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_checkpoint_is_set_aside(tmp_path, how, monkeypatch):
    from sandtable.training import result

    undisturbed, hurt = tmp_path / "undisturbed", tmp_path / "hurt"
    run(undisturbed, steps=40)
    with monkeypatch.context() as patch:
        patch.setattr(result.Fit, "save", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with contextlib.suppress(KeyboardInterrupt):
            run(hurt, steps=40)
    (left,) = hurt.glob("fits/*/*.checkpoint/**/*.safetensors")
    left.write_bytes(DAMAGE[how](left.read_bytes()))
    with pytest.warns(UserWarning, match="damaged"):
        run(hurt, steps=40)
    assert contents(hurt) == contents(undisturbed)


@pytest.mark.parametrize("name", ["a folder with blanks", "Übung — 試験", "deep/er/still"])
def test_a_store_may_lie_anywhere(tmp_path, name, monkeypatch):
    monkeypatch.setenv("SANDTABLE_HOME", str(tmp_path / name))
    (outcome,) = run(None, steps=2)
    assert outcome.ok
    assert Store().last_verdict(CLAIM.id) is not None


def test_an_empty_home_is_no_home(monkeypatch, tmp_path):
    monkeypatch.setenv("SANDTABLE_HOME", "")
    monkeypatch.chdir(tmp_path)
    assert Store().root == Path("runs")


@pytest.mark.parametrize("root", ["x" * 300, "nul\0byte", "/proc/nowhere", "/dev/null", "/dev/null/below"])
def test_places_that_cannot_be_a_store(root):
    with pytest.raises(ValueError, match=r"not a path|not writable") as caught:
        Store(root).require_writable()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied", "x"), OSError(30, "Read-only file system")])
def test_a_folder_that_lets_nobody_in(tmp_path, monkeypatch, error):
    """As an ordinary user sees it; root may write everywhere."""
    run(tmp_path, steps=2)

    def closed(*_, **__):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(Path, "touch", closed)
        with pytest.raises(StoreError, match="not writable"):
            run(tmp_path, steps=2)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", closed)
        with pytest.raises(StoreError, match="cannot be read"):
            Store(tmp_path).last_verdict(CLAIM.id)
