"""Draw the figures of the gallery again, each from a run of the code: `uv run python docs/make_gallery.py [NAME …]`.

Figures of claims are those that `sandtable verify --scale smoke` leaves in its store; three are drawn here. All of them
take about a minute on two cores. The files in `docs/figures/` are committed.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import torch
from matplotlib.figure import Figure

import sandtable as st
from sandtable.bridges import tokens, topics
from sandtable.lab import Store
from sandtable.lab.figures import curves, svg, word_lists
from sandtable.lab.figures.automata import state_diagram
from sandtable.theory.gmlm.dialects import agree_by_chance

FIGURES = Path(__file__).parent / "figures"


def of_claim(name: str, figure: str) -> str:
    """The figure of a claim, from a run at smoke scale."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        (outcome,) = st.lab.verify([st.lab.load()[name]], scale="smoke", store=store)
        if not outcome.ok:
            raise SystemExit(f"{name}: {outcome.verdict}, expected {outcome.expected}; no figure is drawn")
        place = store.verdict(name, "smoke")
        record = store.read_json(place)
        assert record is not None
        (file,) = (each["file"] for each in record["figures"] if each["name"] == figure)
        return place.with_name(file).read_text()


def real() -> Figure:
    """Topics that latent Dirichlet allocation finds in the docstrings of the standard library."""
    corpus = st.bridges.corpus.load(packages=["stdlib"], limit=3000)
    with tempfile.TemporaryDirectory() as folder:
        text = tokens.tokenize(corpus, tokens.train_tokenizer(corpus, vocab=4000, framed=False), folder=folder)
        found = topics.find_topics(text, topics=24, seed=0)
        order = found.coherence.npmi.argsort(descending=True, stable=True)[:6].tolist()
        top = found.topics.top_words(text.words, 6)
        groups = {f"NPMI {float(found.coherence.npmi[k]):.2f}": top[k] for k in order}
    return word_lists(groups, title="Topics in docstrings", xlabel="P(word | topic)")


def translation() -> Figure:
    """Right translations against passes where two dictionaries are right, but not mixed: a refiner of 600 steps."""
    task, passes = st.worlds.translation_task("dialect", symbols=6, length=4), range(1, 6)
    model = st.models.Seq2Seq(
        task.vocab, layers=1, heads=2, width=32, longest=6, longest_target=6, source_positions=True
    )
    optimizer = st.training.Adam(5e-3)
    fit = st.fit(model, task, st.objectives.Refinement(), steps=600, batch_size=64, chunk=1, optimizer=optimizer)
    source = task.sample(1000, torch.Generator().manual_seed(1)).given
    assert source is not None
    refine = partial(st.decoding.refine, fit[0].eval(), source.x, beams=1, generator=0)

    def right(temperature: float) -> list[float]:
        outs = [refine(steps=n, temperature=temperature) for n in passes]
        return [float(task.valid(source.x, out.tokens).double().mean()) for out in outs]

    return curves(
        list(passes),
        {"likeliest words": right(0.0), "drawn words": right(1.0)},
        predictions={"by chance": [agree_by_chance(2, 4)] * len(passes)},
        xlabel="passes",
        ylabel="right translations",
        title="Rewriting all words at once",
    )


def automata() -> Figure:
    """The car on a circle of four places, the dihedral group of eight elements, as a state diagram."""
    car = st.worlds.automata.fixture("D8")
    arrows: dict[tuple[int, int], list[str]] = {}
    for state, row in enumerate(car.table):
        for token, target in enumerate(row):
            arrows.setdefault((state, target), []).append(car.vocab.tokens[token])
    return state_diagram(car.states, arrows, start=car.start, title="A car on a circle")


DRAWN: Mapping[str, Callable[[], str | Figure]] = {
    "topics": partial(of_claim, "topics/value-matrix-limit", "value matrices"),
    "landscape": partial(of_claim, "topics/attention-landscape", "block values, τ = 80"),
    "real": real,
    "dyck": partial(of_claim, "dyck/misleading-attention", "attention"),
    "verifier": partial(of_claim, "verifier/slip-oracle", "accuracy against quota"),
    "vgb": partial(of_claim, "vgb/amplification", "amplification"),
    "gmlm": partial(of_claim, "gmlm/kl-mixing", "rates"),
    "translation": translation,
    "automata": automata,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *DRAWN], default=[], help=f"{', '.join(DRAWN)} (default: all)")
    FIGURES.mkdir(exist_ok=True)
    for name in parser.parse_args().names or DRAWN:
        made = DRAWN[name]()
        path = FIGURES / f"{name}.svg"
        path.write_text(made if isinstance(made, str) else svg(made))
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
