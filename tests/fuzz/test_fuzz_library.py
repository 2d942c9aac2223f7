"""Whatever a public constructor or function is given as a setting, it is done soon or refused in one line."""

import contextlib
import tempfile
import zlib

import numpy as np
import pytest
from examples import ELSEWHERE, RECORDS, call, good_arguments
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from judging import MUCH, NASTY, complaint
from public_api import ROOMS, targets

PUBLIC = {name: target for name, target in targets().items() if name not in RECORDS | ELSEWHERE}


def taught(target):
    with contextlib.suppress(KeyError):
        return bool(good_arguments(target)) or True
    return False


TARGETS = {name: target for name, target in PUBLIC.items() if taught(target)}
PAIRS = [(name, parameter) for name, target in TARGETS.items() for parameter in target.plain]
TRIES = 3
"""Nasty values for every parameter in the short run."""
WORK = {
    ("decoding.mask_predict", "steps"), ("decoding.run_chains", "steps"), ("decoding.rejection", "max_tries"),
    ("decoding.rejection", "threshold"), ("decoding.vgb", "steps"), ("decoding.vgb", "max_restarts"),
    ("decoding.refine", "steps"), ("lab.verify", "seeds"), ("training.fit", "steps"), ("training.fit", "seeds"),
    ("training.fit_single", "steps"), ("training.fit_single", "seeds"), ("training.evaluate", "batches"),
    ("theory.gmlm.tensorisation.tensorisation", "steps"), ("theory.gmlm.tensorisation.tensorisation", "starts"),
    ("probes.classifier.train_classifier", "epochs"), ("probes.classifier.train_classifier", "least_updates"),
    ("bridges.lda.fit_topics", "passes"), ("bridges.lda.fit_topics", "iterations"), ("bridges.lda.infer", "iterations"),
    ("probes.text_topics.pair_attention", "resamples"),
    *(
        (f"theory.pruning.random_{which}", size)
        for which in ("target", "network")
        for size in ("width", "key_width", "hidden", "layers")
    ),
}  # fmt: skip
"""What says how much is to be done: a larger number is no mistake, it takes a while."""
ANY = st.one_of(
    st.sampled_from(NASTY),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.binary(max_size=5),
    st.recursive(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)), st.lists),
    st.tuples(st.integers(-2, 9), st.floats(0, 1)),
)


@pytest.fixture(autouse=True)
def nowhere(monkeypatch, tmp_path):
    """Files that a call writes go to a folder of their own; nothing is downloaded."""
    inside = tmp_path / "a" / "b"  # so that ".." is a folder of our own as well
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    monkeypatch.setattr(tempfile, "tempdir", str(inside))
    monkeypatch.setenv("SANDTABLE_HOME", str(tmp_path / "runs"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def tried(name, changes):
    """What is wrong with the answer to a good call with some arguments replaced."""
    if any((name, parameter) in WORK and large(value) for parameter, value in changes.items()):
        return None
    if callable(changes.get("progress")):  # a function of the caller's own, which answers for itself
        return None
    target = TARGETS[name]
    found = complaint(lambda: call(target, good_arguments(target), changes))
    return found and f"{name}({', '.join(f'{key}={str(value)[:80]!r}' for key, value in changes.items())}): {found}"


def large(value):
    return isinstance(value, int | float | np.number) and not abs(value) <= MUCH


def wrong(found):
    return "\n".join(line for line in found if line)


def test_everything_public_has_an_example():
    """A new public name needs one line in `examples.py` that says how to call it."""
    assert sorted(PUBLIC.keys() - TARGETS.keys()) == []


@pytest.mark.parametrize("room", ROOMS)
def test_good_arguments_are_good(room):
    found = []
    for name, target in TARGETS.items():
        if name.startswith(f"{room}."):
            try:
                call(target, good_arguments(target))
            except Exception as error:
                found.append(f"{name}: {type(error).__name__}: {error}")
    assert not wrong(found)


@pytest.mark.parametrize("room", ROOMS)
def test_every_setting_refuses_what_it_cannot_use(room):
    found = []
    for name, parameter in PAIRS:
        if name.startswith(f"{room}."):
            start = zlib.crc32(f"{name}.{parameter}".encode())
            values = [NASTY[(start + i * 31) % len(NASTY)] for i in range(TRIES)]
            found += [tried(name, {parameter: value}) for value in values]
    assert not wrong(found)


CHANGES = st.sampled_from(sorted(TARGETS)).flatmap(
    lambda name: st.tuples(
        st.just(name), st.dictionaries(st.sampled_from(TARGETS[name].plain), ANY, min_size=1, max_size=3)
    )
)
QUIET = dict(deadline=None, database=None, suppress_health_check=list(HealthCheck))


@settings(max_examples=400, derandomize=True, **QUIET)
@given(CHANGES)
def test_several_settings_at_once(change):
    assert not tried(*change)


@pytest.mark.slow
@pytest.mark.parametrize("room", ROOMS)
def test_every_setting_with_every_nasty_value(room):
    pairs = [(name, parameter) for name, parameter in PAIRS if name.startswith(f"{room}.")]
    assert not wrong(tried(name, {parameter: value}) for name, parameter in pairs for value in NASTY)


@pytest.mark.slow
@settings(max_examples=10_000, **QUIET)
@given(CHANGES)
def test_ten_thousand_calls(change):
    assert not tried(*change)
