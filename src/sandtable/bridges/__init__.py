"""The real world: text corpora, their tokens and topics, models of others, and ours and our samples for others.

In come texts (`corpus`), cut into `tokens` and windows of a world; their topics, by `lda`; sentence pairs (`parallel`);
and models: `huggingface.load` for decoding, `huggingface.from_hf` as one of ours, `readers` for the embeddings and the
attention of any of them. `pretraining` makes a small BERT, `topics` asks a model whether topics show in it. Out go our
Transformers, to Hugging Face (`huggingface.to_hf`) and to `transformer_lens`, and samples of worlds (`columns`). What a
bridge needs and does not find is named with the extra that has it. Nothing that comes in is ever run or unpickled.
"""

from sandtable.bridges import (
    columns,
    corpus,
    huggingface,
    lda,
    parallel,
    pretraining,
    readers,
    tokens,
    topics,
    transformer_lens,
)

__all__ = [
    "columns",
    "corpus",
    "huggingface",
    "lda",
    "parallel",
    "pretraining",
    "readers",
    "tokens",
    "topics",
    "transformer_lens",
]
