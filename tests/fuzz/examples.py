"""A good value for every required parameter of everything public.

A lambda makes its value anew for every call. `RECORDS` are left out: what functions return, built by nobody else.
"""

import functools
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch
from public_api import Target

import sandtable as st
from sandtable.decoding import Accepts, ExactModel, Hidden, TransformerModel, ancestral, block_dynamics
from sandtable.inputs import EOS
from sandtable.lab import Claim, Evidence, Source, exceeds
from sandtable.lab.figures import Box, Part
from sandtable.models import DeepMLP, Normal, Seq2Seq, SoftmaxAttention, Stack, Transformer
from sandtable.objectives import MaskedLM
from sandtable.probes.classifier import Classifier
from sandtable.probes.dyck import Tokenwise
from sandtable.probes.text_topics import Attended
from sandtable.probes.topic_words import TopicWords
from sandtable.theory.generation import Tree
from sandtable.theory.gmlm import fisher
from sandtable.theory.pruning import random_network, random_target
from sandtable.worlds import (
    BertMasking,
    CliqueIsing,
    DyckPrefixes,
    Ising,
    Table,
    TopicModel,
    Trap,
    UniformSubset,
)

RECORDS = {
    "worlds.Batch", "worlds.automata.regular.Piece", "objectives.l2_penalty", "models.Stack",
    "theory.automata.Action", "theory.automata.Algebra", "theory.automata.Compiled", "theory.automata.Component",
    "theory.automata.Depth", "theory.automata.Obstacle", "theory.automata.PrimeStep", "theory.automata.Sizes",
    "theory.automata.Verified", "theory.dyck.Built", "theory.dyck.Checked",
    "theory.generation.Prediction", "theory.generation.Tree", "theory.pruning.Pruned", "theory.topics.Constants",
    "theory.topics.Moments", "probes.classifier.Assessment",
    "probes.classifier.ClassifierFit", "probes.dyck.ClassMass", "probes.text_topics.Contrast",
    "probes.text_topics.PairMeans", "probes.topics.AttentionAverages", "decoding.Bleu", "decoding.Chains",
    "decoding.Generation", "decoding.ProbeVerifier", "decoding.Trace", "bridges.lda.Topics", "bridges.lda.Documents",
    "bridges.tokens.TokenCorpus", "bridges.topics.CorpusTopics", "bridges.topics.PairCell", "bridges.topics.Study",
    "lab.Check", "lab.Judgement", "lab.Outcome", "models.ActivationCache", "bridges.transformer_lens.Lens",
}  # fmt: skip


ELSEWHERE = {
    "bridges.corpus.open_records", "bridges.parallel.read_dataset", "bridges.pretraining.pretrain_bert",
    "bridges.tokens.prepare_tokens", "bridges.topics.prepare", "bridges.topics.study", "bridges.topics.find_topics",
    "decoding.learn_rejecter", "bridges.huggingface.to_hf", "lab.report.strip", "lab.report.clean_svg",
    "bridges.transformer_lens.to_transformer_lens",
}  # fmt: skip
"""What trains, downloads or needs another package: the command line is fuzzed in its place."""


def rng() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=rng())


TOPICS = TopicModel(3, 2, length=(4, 6), present=1)
BRACKETS = DyckPrefixes(2, 2, 0.5, length=4)
PARITY = st.worlds.automata.parity(length=6)
LAW = Ising((0.1, 0.2, -0.1), ((0.0, 0.3, 0.1), (0.3, 0.0, 0.2), (0.1, 0.2, 0.0)))
CLIQUE = CliqueIsing(5, 3, 2.0, (0.5, 0.5, 0.5, 0.1, 0.1))
MASKS = UniformSubset(3, 0.5)
TREE = Tree.of(Trap(3))
VALUES = np.linspace(0.2, 1.0, len(TREE))
DRAWS = randn(9, 4)
SYMBOLS = st.theory.dyck.symbol_count(2, 2)


@functools.cache
def network(vocab: int = 7, layers: int = 2, **options: Any) -> Transformer:
    settings = dict(layers=layers, width=8, heads=2, mlp=8, causal=True, initial={"*": Normal(0.3)}) | options
    return Transformer(vocab, **settings).initialise(rng())


@functools.cache
def bag_network() -> Transformer:
    return Transformer(TOPICS.vocab, embedding="one-hot", output=False, initial={"*": Normal(0.3)}).initialise(rng())


@functools.cache
def translator() -> Seq2Seq:
    return Seq2Seq(9, layers=1, heads=2, width=6, mlp=8, longest=16, longest_target=12, buckets=4, furthest=8)


@functools.cache
def causal_translator() -> Seq2Seq:
    return Seq2Seq(9, layers=1, heads=2, width=6, mlp=8, longest=16, longest_target=12, buckets=4, furthest=8,
                   causal=True)  # fmt: skip


@functools.cache
def thresholds() -> Transformer:
    return random_target(2, key_width=2, hidden=2, generator=rng())


@functools.cache
def wide_network() -> Transformer:
    return random_network(**st.theory.pruning.sizes(thresholds(), units=2), generator=rng())


@functools.cache
def bracket_model() -> Transformer:
    return st.theory.dyck.build("uniform", types=2, depth=2)


def trap() -> ExactModel:
    return ExactModel(Trap(4))


def attended() -> list[Attended]:
    ids = torch.randint(6, (2, 5), generator=rng())
    return [Attended(randn(1, 2, 2, 5, 5).softmax(-1), ids, torch.ones(2, 5, dtype=torch.bool))]


def pairs() -> dict[str, torch.Tensor]:
    return {"a": torch.tensor([[0, 1], [2, 3]]), "b": torch.tensor([[1, 4]])}


def words() -> TopicWords:
    return TopicWords(torch.eye(3, dtype=torch.bool).repeat(2, 1))


def counts() -> scipy.sparse.csr_array:
    return scipy.sparse.csr_array(np.random.default_rng(0).poisson(1.0, (12, 8)).astype(float))


@functools.cache
def hugging_face(masked: bool = False) -> Any:
    import transformers

    sizes = dict(vocab_size=9, hidden_size=8, num_attention_heads=2, num_hidden_layers=1, intermediate_size=8)
    if masked:
        return transformers.BertForMaskedLM(transformers.BertConfig(**sizes, max_position_embeddings=16)).eval()
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=9, n_embd=8, n_head=2, n_layer=1, n_positions=16, eos_token_id=8)
    ).eval()


TEXTS = ["the cat sat on the mat and the dog sat on the log today again"] * 6


@functools.cache
def tokenizer() -> Any:
    from sandtable.bridges.tokens import train_tokenizer

    return train_tokenizer(TEXTS, vocab=60)


@functools.cache
def token_corpus() -> Any:
    from sandtable.bridges.tokens import tokenize

    return tokenize(TEXTS, tokenizer(), folder=tempfile.mkdtemp())


def text_pairs() -> Any:
    from sandtable.bridges.parallel import Pairs

    return Pairs("toy", lambda: iter([("the cat", "die katze"), ("the dog", "der hund")]))


@dataclass(frozen=True)
class Settings:
    mean: float = 1.0


def measured(settings: Settings, lab: Any) -> Evidence:
    return Evidence([exceeds("positive", np.ones(9) + np.arange(9), 0.5)])


CLAIM = Claim("toy/claim", "It holds.", Source("Toy", 2024, "theorem 1"), {"desk": Settings()}, measured, seeds=9)


def half(points: torch.Tensor) -> torch.Tensor:
    return points


SHARED: dict[str, Any] = {
    "generator": rng, "masking": BertMasking(), "tree": TREE, "automaton": PARITY, "masks": MASKS, "law": LAW,
    "length": 4, "name": "name", "depth": 2, "types": 2, "width": 8, "n": 3, "k": 2, "steps": 3, "error": 0.1,
    "delta": 0.1, "size": 5, "clique": 3, "eps": 0.1, "positions": 3, "longest": 8, "bound": 1.0, "symbols": 2,
    "layer": 0, "vocab": 7, "hidden": 4, "horizon": 4, "c": 1.0, "l2": 0.1, "radius": 1.0, "gamma": 0.5, "alpha": 0.5,
    "beta": 0.5, "j0": 0.5, "threshold": 0.5, "coupling": 0.3, "slip": 0.1, "heads": 2, "quota": 2, "stride": 2,
    "key_width": 2, "lr": 0.1, "lm": trap, "prompts": lambda: [[0], [1]], "verifier": lambda: Accepts(Trap(4)),
    "max_tokens": 3, "values": VALUES, "scores": VALUES, "words": words, "attentions": attended, "sets": pairs,
    "embeddings": lambda: randn(6, 4), "counts": counts, "measured": DRAWS[:, 0] + 1, "block": 2, "tries": 3,
    "statement": "It holds.", "unit": "seed", "within": 0.5, "title": "title", "dialects": 2, "model": network,
    "models": lambda: Stack.of(network()), "rows": 3, "kind": "uniform", "where": "theorem 1", "q": 0.5, "l1": 1.0,
    "e1": 0.1, "e2": 0.1, "topics": 2, "copies": [1, 2, 4], "tau": lambda: half, "margin": 0.1, "resolution": 0.1,
    "samples": 10, "parameters": 3, "units": np.linspace(0, 1, 20), "base": lambda: Accepts(Trap(4)), "layers": 1,
}  # fmt: skip

GOOD: dict[str, dict[str, Any]] = {
    # -- worlds
    "worlds.AdaptiveBlocks": dict(blocks=((0,), (1, 2)), table=((0.5, 0.5),) * 8),
    "worlds.Automaton": dict(table=((0, 1), (1, 0))),
    "worlds.Blocks": dict(blocks=((0,), (1, 2))),
    "worlds.SlippingDyck": dict(),
    "worlds.HiddenPrefix": dict(secret=(0, 1, 1)),
    "worlds.Ising": dict(fields=(0.1, 0.2), couplings=((0.0, 0.3), (0.3, 0.0))),
    "worlds.Knapsack": dict(weights=(1, 2, 3), target=3),
    "worlds.Mixture": dict(laws=(LAW, LAW), weights=(0.5, 0.5)),
    "worlds.Table": dict(table=((0.25, 0.25), (0.25, 0.25))),
    "worlds.Vocab": dict(tokens=("a", "b")),
    "worlds.automata.Counted": dict(ones=2),
    "worlds.automata.alternating": dict(n=4),
    "worlds.TopicModel": dict(topics=2, words=3, present=1),
    "worlds.automata.cascade": dict(components=(PARITY, PARITY), wires=(lambda states, token: token,), tokens=2),
    "worlds.automata.product": {"*": (PARITY, PARITY)},
    "worlds.automata.symmetric": dict(tokens=3),
    "worlds.automata.symmetric_tokens": dict(count=3),
    "models.Transformer": dict(width=8, layers=2, heads=2),
    "worlds.automata.cyclic_power": dict(copies=2),
    "worlds.automata.dihedral": dict(n=4),
    "worlds.automata.fixture": dict(name=st.worlds.automata.fixtures()[0]),
    "worlds.automata.from_permutations": dict(generators=((1, 0, 2), (1, 2, 0))),
    "worlds.automata.from_regex": dict(pattern="(ab)*"),
    "worlds.automata.from_table": dict(table=((0, 1), (1, 0))),
    "worlds.automata.grid_2d": dict(m=2),
    "worlds.translation_task": dict(name="drop"),
    "worlds.testcases.TextVocab": dict(tokens=("a", "b")),
    "worlds.testcases.accuracy_distinct": dict(completions={"f": ["assert f([1], 2) == [1, 2]"]}),
    "worlds.testcases.correct_cases": dict(text="assert f([1], 2) == [1, 2]"),
    "worlds.testcases.distinct_correct": dict(completions=["assert f([1], 2) == [1, 2]"]),
    "worlds.testcases.first_error": dict(text="assert f([1], 2) == [1, 2]"),
    "worlds.testcases.prompt": dict(sums=[(1, 2), (3, 4)]),
    "worlds.testcases.read_line": dict(line="assert f([1], 2) == [1, 2]"),
    "worlds.testcases.token_at": dict(position=1, ids=[0, 1], decode=lambda: lambda ids: "ab"[: len(ids)]),
    # -- models and objectives
    "models.Block": dict(attn=lambda: SoftmaxAttention(8)),
    "models.Cache": dict(rows=2),
    "models.DeepMLP": dict(hidden=(4, 4)),
    "models.MultiHead": dict(head_width=4),
    "models.PartialBlock": dict(attn=lambda: SoftmaxAttention(8)),
    "models.match_names": dict(patterns=["a*"], names=["ab", "b"]),
    "objectives.MaskedBlocks": dict(mask=2),
    "objectives.Dropout": dict(objective=MaskedLM()),
    # -- training
    "training.Recipe": dict(batch_size=2),
    "training.SingleRecipe": dict(batch_size=2),
    "training.Drops": dict(at=(0.5,)),
    "training.Stages": dict(stages=((2, ("*.W_V",)),)),
    "training.evaluate": dict(models=lambda: Stack.of(bag_network()), batches=1, batch_size=2),
    "training.stream": dict(purpose="data", seed=1),
    # -- theory
    "theory.automata.PermutationGroup": dict(generators=((1, 0, 2),), degree=3),
    "theory.automata.barrington.Var": dict(index=0),
    "theory.automata.coverage.accuracy_by_count": dict(counts=[1, 2], sequences=10.0),
    "theory.automata.coverage.accuracy_by_rate": dict(rates=[0.2, 0.5], sequences=10.0),
    "theory.automata.coverage.met": dict(sequences=10.0),
    "theory.automata.coverage.visits": dict(sequences=10.0),
    "theory.automata.barrington.random_formula": dict(variables=2),
    "theory.automata.barrington.full_cycles": dict(points=4),
    "theory.automata.barrington.cycle_commutators": dict(points=4),
    "theory.automata.compile": dict(length=6),
    "theory.automata.verify": dict(model=lambda: st.theory.automata.compile(PARITY, 6), length=4, samples=10),
    "theory.dyck.approximate_balance_bounds": dict(query_depth=2, length=20, lipschitz=1.0),
    "theory.dyck.check": dict(model=bracket_model, longest=3),
    "theory.dyck.from_scores": dict(scores=lambda: st.theory.dyck.uniform_scores(types=2, depth=2)),
    "theory.dyck.load": dict(path=lambda: saved_brackets()),
    "theory.dyck.lookup": dict(points=lambda: randn(3, 4), values=lambda: randn(3, 2)),
    "theory.dyck.minimal_first_layer": dict(width=20),
    "theory.dyck.offsets": dict(scores=lambda: randn(SYMBOLS, SYMBOLS)),
    "theory.dyck.project": dict(scores=lambda: randn(SYMBOLS, SYMBOLS)),
    "theory.dyck.residual": dict(scores=lambda: randn(SYMBOLS, SYMBOLS)),
    "theory.dyck.place_of_one": dict(size=3),
    "theory.dyck.save": dict(built=lambda: brackets_built(), path=lambda: Path(tempfile.mkdtemp()) / "new.safetensors"),
    "theory.dyck.second_layer": dict(model=bracket_model),
    "theory.dyck.selector": dict(size=3),
    "theory.dyck.stack_basis": dict(pairs=2),
    "theory.dyck.symbol_embedding": dict(kind="E1"),
    "theory.dyck.with_scores": dict(
        model=bracket_model, scores=lambda: st.theory.dyck.uniform_scores(types=2, depth=2)
    ),
    "theory.dyck.with_values": dict(
        model=bracket_model, values=lambda: st.theory.dyck.second_layer(bracket_model(), types=2, depth=2)[1]
    ),
    "theory.generation.product_tv": dict(chances=np.array([0.1, 0.2])),
    "theory.pruning.bounds.attention_lipschitz_printed": dict(layers=1),
    "theory.pruning.bounds.attention_witness": dict(keys=3),
    "theory.pruning.bounds.direction_gap": dict(ratio=2.0),
    "theory.pruning.bounds.needed_ratio_printed": dict(r0=2.0),
    "theory.pruning.bounds.value_error": dict(pattern=0.1, values=1.0, size=1.0),
    "theory.pruning.multiplexer": dict(networks=lambda: [DeepMLP(2, (3,)), DeepMLP(2, (3,))]),
    "theory.pruning.prune": dict(network=wide_network, target=thresholds, units=2),
    "theory.pruning.prune_linear": dict(
        first=lambda: randn(2, 8), second=lambda: randn(8, 2), target=lambda: randn(2, 2), units=2
    ),
    "theory.pruning.prune_relu": dict(
        first=lambda: randn(2, 40), second=lambda: randn(40, 2), target=lambda: randn(2, 2), units=2
    ),
    "theory.pruning.sizes": dict(target=thresholds),
    "theory.topics.attention_loss_by_enumeration": dict(world=TopicModel(2, 2, length=3, present=1)),
    "theory.topics.excess_loss": dict(W=lambda: torch.zeros(7, 7)),
    "theory.topics.is_optimal": dict(W=lambda: torch.zeros(7, 7)),
    "theory.topics.population_loss": dict(W=lambda: torch.zeros(7, 7)),
    "theory.topics.stage_one_matrix": dict(step=3),
    "theory.topics.finite_length_stage_one_gap": dict(step=3),
    "theory.topics.stage_one_gap": dict(step=3),
    "theory.gmlm.chains.apply": dict(f=lambda: randn(8).double()),
    "theory.gmlm.chains.total_correlation": dict(block=(0, 1)),
    "theory.gmlm.clique.with_slack": dict(field=0.5),
    "theory.gmlm.clique.reach_bound": dict(k=3),
    "theory.gmlm.clique.reach_enumerated": dict(k=3),
    "theory.gmlm.clique.reach_steps": dict(k=3),
    "theory.gmlm.clique.stuck_exponent": dict(clique=9),
    "theory.gmlm.clique.stuck_steps": dict(clique=9),
    "theory.gmlm.clique.large_block": dict(size=12),
    "theory.gmlm.dialects.evidence": dict(unmask=0.5, vocabulary=5),
    "theory.gmlm.dialects.agree_by_chance": dict(words=3),
    "theory.gmlm.dialects.agree_from_noise": dict(words=3, vocabulary=5, unmask=0.5),
    "theory.gmlm.estimation.draw_sequences": dict(repetitions=2),
    "theory.gmlm.estimation.draw_masks": dict(counts=lambda: torch.ones(2, 8, dtype=torch.long), each=1),
    "theory.gmlm.estimation.draw_pairs": dict(repetitions=2),
    "theory.gmlm.estimation.estimate": dict(
        family=lambda: fisher.exponential(fisher.ising_statistics(3)),
        start=lambda: torch.zeros(6).double(),
        pairs=lambda: torch.ones(1, 8, 8).double(),
    ),
    "theory.gmlm.finite_sample.bound": dict(loss=0.1, cells=10.0, masks=3, tensorisation=1.0),
    "theory.gmlm.finite_sample.deviation": dict(masks=3, frequencies=0.1, total=1.0),
    "theory.gmlm.finite_sample.pointwise_bound": dict(masks=3),
    "theory.gmlm.fisher.evaluated": dict(
        family=lambda: fisher.exponential(fisher.ising_statistics(3)), theta=lambda: torch.zeros(6), name="theta"
    ),
    "theory.gmlm.fisher.masked_scores": dict(
        family=lambda: fisher.exponential(fisher.ising_statistics(3)), theta=lambda: torch.zeros(6).double()
    ),
    "theory.gmlm.fisher.increment": dict(scores=lambda: randn(8, 6).double(), k=1),
    "theory.gmlm.fisher.covariance_of_many": dict(scores=lambda: randn(8, 6).double(), each=2),
    "theory.gmlm.fisher.masked_loss": dict(family=lambda: fisher.exponential(fisher.ising_statistics(3))),
    "theory.gmlm.fisher.population_loss": dict(family=lambda: fisher.exponential(fisher.ising_statistics(3))),
    "theory.gmlm.kernels.kernel_of": dict(model=lambda: kernel_network(), length=2),
    "theory.gmlm.tensorisation.tensorisation": dict(starts=3, steps=2),
    # -- probes
    "probes.automata.accuracy_of_rows": dict(correct=lambda: torch.ones(2, 3, 4, dtype=torch.bool)),
    "probes.automata.best_less_median": dict(scores=lambda: torch.rand(4, 2, dtype=torch.float64)),
    "probes.automata.crossing": dict(curves=lambda: randn(2, 5), level=0.5),
    "probes.automata.drops": dict(curves=lambda: randn(2, 5), size=0.5),
    "probes.automata.smooth": dict(curves=lambda: randn(2, 5), window=2),
    "probes.automata.latest": dict(states=lambda: torch.zeros(2, 4, dtype=torch.long), which=[0]),
    "probes.automata.patterns": dict(x=lambda: torch.zeros(2, 4, dtype=torch.long)),
    "probes.automata.accuracy_by_count": dict(counts=[1, 2], rows=2, models=lambda: Stack.of(network(2))),
    "probes.automata.accuracy_by_length": dict(lengths=[3, 4], rows=2, models=lambda: Stack.of(network(2))),
    "probes.automata.accuracy_by_rate": dict(rates=[0.5], rows=2, models=lambda: Stack.of(network(2))),
    "probes.automata.correct": dict(rows=2, models=lambda: Stack.of(network(2))),
    "probes.classifier.train_classifier": dict(
        features=lambda: randn(8, 3), labels=lambda: torch.arange(8) % 2, epochs=1, least_updates=1
    ),
    "probes.classifier.assess": dict(scores=lambda: torch.linspace(0, 1, 4), labels=lambda: torch.arange(4) % 2),
    "probes.dyck.ablate": dict(kind="uniform", layer=0),
    "probes.dyck.class_mass": dict(layer=0),
    "probes.dyck.asked": dict(),
    "probes.dyck.attended": dict(counts=lambda: torch.ones(2, SYMBOLS), query=1),
    "probes.dyck.from_uniform": dict(patterns=lambda: torch.eye(4).expand(1, 2, 2, 4, 4)),
    "probes.dyck.log_slope": dict(distances=lambda: torch.tensor([1.0, 0.5, 0.25])),
    "probes.dyck.patterns": dict(layer=0, rows=lambda: BRACKETS.sample(3, rng())),
    "probes.dyck.pumped_rows": dict(copies=2),
    "probes.dyck.pumping_outputs": dict(model=bracket_model),
    "probes.dyck.stack_likeness": dict(layer=0),
    "probes.dyck.tokenwise": dict(models=lambda: Stack.of(bracket_model())),
    "probes.dynamics.attention_matrices": dict(model=["blocks.0.attn.W_Q", "blocks.0.attn.W_K", "blocks.0.attn.W_V"]),
    "probes.dynamics.rotations": dict(record=lambda: randn(2, 4, 3), steps=[0, 10, 20, 30]),
    "probes.text_topics.pair_attention": dict(sets=lambda: {"a": torch.tensor([[4, 5], [4, 0], [5, 0]])}),
    "probes.text_topics.interval": dict(draws=lambda: randn(50, 2)),
    "probes.text_topics.similarity_matrix": dict(ids=[0, 1]),
    "probes.topic_words.words_per_topic": dict(vocab=100),
    "probes.topic_words.select_words": dict(word_given_topic=lambda: randn(2, 8).softmax(1)),
    "probes.topic_words.same_topic_pairs": dict(topic=1),
    "probes.topic_words.cooccurrence": dict(words=[0, 1]),
    "probes.topic_words.top_pairs": dict(number_of_pairs=2),
    "probes.topic_words.coherence": dict(word_given_topic=lambda: randn(2, 8).softmax(1), top=3),
    "probes.topics.value_matrix": dict(models=lambda: Stack.of(bag_network())),
    "probes.topics.block_means": dict(models=lambda: Stack.of(bag_network()), name="blocks.0.attn.W_V"),
    "probes.topics.attention_averages": dict(models=lambda: Stack.of(bag_network()), documents=3),
    "probes.topics.norm_of": dict(),
    "probes.topics.time_to_fraction": dict(values=lambda: randn(2, 4), steps=[0, 1, 2, 3], fraction=0.5),
    # -- decoding
    "decoding.Bottom": dict(k=1),
    "decoding.BlockDynamics": dict(),
    "decoding.Accepts": dict(world=Trap(4)),
    "decoding.EnumeratedValue": dict(tau=lambda: lambda tokens: 1.0),
    "decoding.MonteCarloValue": dict(tau=lambda: lambda tokens: 1.0),
    "decoding.ExactModel": dict(law=Trap(4)),
    "decoding.Floor": dict(least=0.1),
    "decoding.Hidden": dict(layer=1),
    "decoding.Learnt": dict(classifier=lambda: Classifier(6)),
    "decoding.MaskedNetwork": dict(network=lambda: network(3, causal=False), mask=2),
    "decoding.ModelBlocks": dict(model=LAW),
    "decoding.Predicate": dict(function=lambda: lambda view: True),
    "decoding.Reward": dict(function=lambda: lambda texts: [1.0] * len(texts)),
    "decoding.Session": dict(model=trap, prompts=lambda: [torch.tensor([0])], room=3),
    "decoding.TransformerModel": dict(network=network),
    "decoding.ValueTable": dict(table={(): 0.5, (0,): 1.0}, default=0.5),
    "decoding.bleu": dict(outputs=["a b c d"], references=["a b c d"]),
    "decoding.stutter_rate": dict(outputs=["a b c d"]),
    "decoding.collect_error_prefixes": dict(first_error=lambda: lambda tokens, lengths: torch.full((len(tokens),), -1)),
    "decoding.hidden_states": dict(lm=lambda: TransformerModel(network()), rows=[[0], [1, 2]], hidden=Hidden(1)),
    "decoding.k_gibbs": dict(),
    "decoding.run_chains": dict(
        sampler=lambda: block_dynamics(LAW, MASKS), start=lambda: torch.zeros(2, 3, dtype=torch.long)
    ),
    "decoding.translate": dict(decode=lambda: st.decoding.mask_predict),
    "decoding.refine": dict(generator=rng),
    "decoding.autoregress": dict(model=causal_translator),
    "decoding.beam_search": dict(model=causal_translator),
    "decoding.action_level": dict(verifier=lambda: Accepts(Trap(4))),
    "decoding.backtrack": dict(verifier=lambda: Accepts(Trap(4))),
    "decoding.best_of_n": dict(verifier=lambda: Accepts(Trap(4))),
    "decoding.block_best_of_n": dict(verifier=lambda: Accepts(Trap(4))),
    "decoding.block_rejection": dict(verifier=lambda: Accepts(Trap(4))),
    "decoding.exhaustive_tokenwise": dict(verifier=lambda: Accepts(Trap(4))),
    "decoding.rejection": dict(verifier=lambda: Accepts(Trap(4))),
    "decoding.smc": dict(verifier=lambda: Accepts(Trap(4))),
    "decoding.tokenwise_rejection": dict(verifier=lambda: Accepts(Trap(4))),
    "decoding.vgb": dict(verifier=lambda: Accepts(Trap(4))),
    # -- bridges
    "bridges.columns.columns": dict(source=TOPICS, n=3),
    "bridges.columns.to_dataset": dict(source=TOPICS, n=3),
    "bridges.columns.write": dict(
        source=TOPICS, n=3, path=lambda: Path(tempfile.mkdtemp()) / "rows.jsonl", overwrite=True
    ),
    "bridges.corpus.Corpus": dict(documents=lambda: lambda: iter(TEXTS)),
    "bridges.corpus.load": dict(source=lambda: TEXTS, least_words=5),
    "bridges.corpus.stamp": dict(source=None),
    "bridges.corpus.read_lines": dict(path=Path(__file__), most=100),
    "bridges.corpus.text_of": dict(record={"text": "a"}, field="text"),
    "bridges.huggingface.CustomGenerate": dict(decoder=ancestral),
    "bridges.huggingface.HuggingFaceMasked": dict(network=lambda: hugging_face(True), mask=1),
    "bridges.huggingface.HuggingFaceModel": dict(network=hugging_face),
    "bridges.huggingface.from_hf": dict(source=hugging_face),
    "bridges.transformer_lens.lens": dict(model=network, longest=8),
    "bridges.huggingface.load": dict(source=hugging_face),
    "bridges.huggingface.load_masked": dict(source=lambda: hugging_face(True), mask=1),
    "bridges.huggingface.load_model": dict(source=hugging_face),
    "bridges.lda.infer": dict(
        documents=lambda: st.bridges.lda.Documents.of(counts()), table=lambda: randn(8, 2).softmax(0), prior=0.1
    ),
    "bridges.lda.fit_topics": dict(passes=1, topics=2),
    "bridges.lda.default_batch": dict(documents=100),
    "bridges.lda.stop_tokens": dict(words=["the", "cat"]),
    "bridges.parallel.Pairs": dict(read=lambda: lambda: iter([("a", "b")])),
    "bridges.parallel.read_files": dict(source=Path(__file__), target=Path(__file__)),
    "bridges.parallel.train_bpe": dict(texts=lambda: TEXTS, vocab=300),
    "bridges.parallel.load": dict(pairs=text_pairs, vocab=300),
    "bridges.parallel.prepare_pairs": dict(
        say=lambda: lambda text: None, place=lambda: Path(tempfile.mkdtemp()), pairs=text_pairs, vocab=300
    ),
    "bridges.pretraining.MaskedModel": dict(model=lambda: hugging_face(True)),
    "bridges.pretraining.bert_like": dict(vocab=12, layers=1, heads=2, width=8, longest=8),
    "bridges.readers.read": dict(source=network),
    "bridges.readers.TransformerReader": dict(model=network),
    "bridges.readers.HuggingFaceReader": dict(model=lambda: hugging_face(True)),
    "bridges.tokens.train_tokenizer": dict(corpus=lambda: TEXTS, vocab=60),
    "bridges.tokens.tokenize": dict(corpus=lambda: TEXTS, tokenizer=tokenizer),
    "bridges.tokens.TextWorld": dict(corpus=token_corpus),
    # -- lab
    "lab.Claim": dict(id="toy/claim", source=CLAIM.source, scales={"desk": Settings()}, measure=lambda: measured),
    "lab.Control": dict(change={"mean": 0.0}, refutes=("positive",)),
    "lab.Evidence": dict(checks=lambda: [exceeds("positive", np.arange(9.0), 0.5)]),
    "lab.Lab": dict(),
    "lab.Source": dict(authors="Toy", year=2024),
    "lab.Store": dict(root=None),
    "lab.Table": dict(columns=["a"], rows=[[1]]),
    "lab.agrees": dict(predicted=1.0, within=0.5),
    "lab.bounded": dict(values=DRAWS[:, 0], bound=9.0),
    "lab.exact": dict(expected=DRAWS[:, 0] + 1),
    "lab.judge": dict(checks=lambda: [exceeds("positive", np.arange(9.0), 0.5)]),
    "lab.law": dict(counts=[5, 5], probabilities=[0.5, 0.5]),
    "lab.orders": dict(larger=DRAWS[:, 0], smaller=DRAWS[:, 1]),
    "lab.passing": dict(values=DRAWS[:, 0], above=0.0, at_least=0.5),
    "lab.printed": dict(corrected=CLAIM, change={"mean": 0.0}, erratum="One too large."),
    "lab.proportion": dict(successes=5, trials=9, at_least=0.5),
    "lab.statistic": dict(fn=lambda: np.mean, above=0.0),
    "lab.verify": dict(claims=[CLAIM]),
    "lab.figures.Box": dict(rank=1, cell=1, stars=np.ones((1, 1), dtype=bool)),
    "lab.figures.Part": dict(tiles=("a", "b")),
    "lab.figures.cascade": dict(levels=lambda: [[Part(("a", "b"))]]),
    "lab.figures.egg_boxes": dict(boxes=lambda: [Box(1, 1, np.ones((1, 1), dtype=bool))]),
    "lab.figures.state_diagram": dict(states=("a", "b"), arrows={(0, 1): ("x",), (1, 0): ("y",)}),
    "lab.figures.comparison": dict(rows=[("a", 1.0, 0.9, 1.1, 1.0)]),
    "lab.figures.curves": dict(x=[1, 2], series={"a": [1.0, 2.0]}),
    "lab.figures.frontier": dict(groups={"a": [("b", 1.0, 2.0, 0.1)]}),
    "lab.figures.heatmaps": dict(matrices={"a": np.eye(2)}, rows=None),
    "lab.figures.landscape": dict(x=[1, 2], y=[1, 2, 3], z=np.ones((3, 2))),
    "lab.figures.scatter": dict(groups={"a": ([1, 2], [1, 2])}),
    "lab.figures.strips": dict(groups={"a": [1.0, 2.0]}),
    "lab.figures.tree": dict(parents=[-1, 0, 0]),
    "lab.figures.word_lists": dict(groups={"a": [("word", 0.5)]}),
}


def brackets_built() -> Any:
    return st.theory.dyck.Built(bracket_model(), 2, 2, 0.5)


@functools.cache
def saved_brackets() -> Path:
    return st.theory.dyck.save(brackets_built(), Path(tempfile.mkdtemp()) / "brackets.safetensors")


@functools.cache
def kernel_network() -> Transformer:
    from sandtable.theory.gmlm import chains, kernels

    return kernels.product_kernel(chains.site_conditionals(Table(((0.4, 0.1), (0.2, 0.3)))))


SMALL: dict[str, dict[str, Any]] = {
    "theory.dyck.": dict(world=BRACKETS),
    "theory.topics.": dict(world=TOPICS),
    "theory.gmlm.": dict(world=CLIQUE),
    "probes.dyck.": dict(
        world=BRACKETS, batch=lambda: BRACKETS.sample(3, rng()), models=lambda: Stack.of(network(len(BRACKETS.vocab))),
        layer=lambda: Tokenwise(randn(SYMBOLS, SYMBOLS), randn(SYMBOLS, 4)),
    ),
    "probes.topics.": dict(world=TOPICS),
    "training.": dict(model=bag_network, source=TOPICS, objective=MaskedLM(form="types"), steps=1, batch_size=2),
    "decoding.": dict(source=lambda: torch.tensor([[5, 6, 7]]), model=translator, world=CLIQUE,
                      batch=lambda: st.worlds.translation_task("drop", symbols=5, length=3).sample(3, rng()),
                      target=lambda: torch.tensor([[5, 6, EOS]])),
    "probes.translation.": dict(
        model=translator, source=lambda: torch.tensor([[5, 6, 7]]), target=lambda: torch.tensor([[5, 6, EOS]])
    ),
}  # fmt: skip
"""What targets whose names begin alike share."""


def good_arguments(target: Target) -> dict[str, Any]:
    """Arguments that `target` takes without complaint."""
    family = next((SMALL[start] for start in SMALL if target.name.startswith(start)), {})
    own = GOOD.get(target.name, {})
    chosen = dict(own)
    for name, parameter in target.parameters.items():
        if parameter.default is parameter.empty and name not in chosen:
            chosen[name] = family[name] if name in family else SHARED[name]
    return chosen


def call(target: Target, arguments: dict[str, Any], changes: dict[str, Any] | None = None) -> Any:
    """`target` with these arguments, each made anew, and `changes` as they are; "*" are those by position."""
    fresh = {name: made(value) for name, value in arguments.items() if name not in (changes or {})} | (changes or {})
    return target.call(*fresh.pop("*", ()), **fresh)


def made(value: Any) -> Any:
    """The value itself, or what its lambda makes."""
    return value() if getattr(value, "__module__", None) == __name__ and callable(value) else value
