"""Generation: samplers and search over any model, with exact query counts.

Two protocols carry it. A `LanguageModel` starts sessions that give logits, append, and rewind each row by its own
amount: our Transformers, any Hugging Face causal model, worlds with exact next-token laws, plain functions. A
`Conditional` gives the law of hidden positions, for Gibbs and refinement samplers. A decoder is one function with one
signature — `backtrack(lm, prompts, verifier, quota=4, …)` — and returns a `Generation`: tokens, costs and, on
request, the trace. Verifiers score partial rows: predicates, acceptors, values, rewards on text, trained probes.
"""

from sandtable.decoding.adapt import as_language_model
from sandtable.decoding.ancestral import ancestral, greedy
from sandtable.decoding.backtrack import backtrack
from sandtable.decoding.beam import autoregress, beam_search
from sandtable.decoding.best_of import best_of_n, block_best_of_n
from sandtable.decoding.blocks import BlockDynamics, ModelBlocks, Parallel
from sandtable.decoding.chains import Chains, MatrixChain, Sampler, run_chains
from sandtable.decoding.clique_gibbs import CliqueGibbs, block_dynamics, k_gibbs
from sandtable.decoding.conditional import Conditional, ExactConditional, MaskedNetwork, as_conditional
from sandtable.decoding.draws import Draws
from sandtable.decoding.error_prefixes import ErrorPrefixes, collect_error_prefixes
from sandtable.decoding.exact_model import ExactModel
from sandtable.decoding.generation import Cost, Generation
from sandtable.decoding.language_model import Hidden, LanguageModel, Session
from sandtable.decoding.quality import Bleu, bleu, exact_match, stutter_rate, token_accuracy
from sandtable.decoding.refine import mask_predict, refine, without_stutter
from sandtable.decoding.rejecters import (
    Bottom,
    Learnt,
    LinearSchedule,
    Rejecter,
    Round,
    Stutter,
    learn_rejecter,
)
from sandtable.decoding.rejection import block_rejection, rejection
from sandtable.decoding.smc import smc
from sandtable.decoding.tokenwise import action_level, exhaustive_tokenwise, tokenwise_rejection
from sandtable.decoding.trace import Event, Trace
from sandtable.decoding.transformer_model import TransformerModel
from sandtable.decoding.translated import Translated, translate
from sandtable.decoding.truncation import Truncation
from sandtable.decoding.verifiers import (
    Accepts,
    EnumeratedValue,
    Floor,
    MonteCarloValue,
    Noisy,
    Predicate,
    ProbeVerifier,
    Random,
    Reward,
    ScaledNoise,
    ValueTable,
    Verifier,
    View,
    hidden_states,
)
from sandtable.decoding.vgb import vgb

__all__ = [
    "Accepts",
    "Bleu",
    "BlockDynamics",
    "Bottom",
    "Chains",
    "CliqueGibbs",
    "Conditional",
    "Cost",
    "Draws",
    "EnumeratedValue",
    "ErrorPrefixes",
    "Event",
    "ExactConditional",
    "ExactModel",
    "Floor",
    "Generation",
    "Hidden",
    "LanguageModel",
    "Learnt",
    "LinearSchedule",
    "MaskedNetwork",
    "MatrixChain",
    "ModelBlocks",
    "MonteCarloValue",
    "Noisy",
    "Parallel",
    "Predicate",
    "ProbeVerifier",
    "Random",
    "Rejecter",
    "Reward",
    "Round",
    "Sampler",
    "ScaledNoise",
    "Session",
    "Stutter",
    "Trace",
    "TransformerModel",
    "Translated",
    "Truncation",
    "ValueTable",
    "Verifier",
    "View",
    "action_level",
    "ancestral",
    "as_conditional",
    "as_language_model",
    "autoregress",
    "backtrack",
    "beam_search",
    "best_of_n",
    "bleu",
    "block_best_of_n",
    "block_dynamics",
    "block_rejection",
    "collect_error_prefixes",
    "exact_match",
    "exhaustive_tokenwise",
    "greedy",
    "hidden_states",
    "k_gibbs",
    "learn_rejecter",
    "mask_predict",
    "refine",
    "rejection",
    "run_chains",
    "smc",
    "stutter_rate",
    "token_accuracy",
    "tokenwise_rejection",
    "translate",
    "vgb",
    "without_stutter",
]
