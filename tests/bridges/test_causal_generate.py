"""`custom_generate`: with nothing to verify it is `generate` itself; with a verifier, `backtrack` on the same rows."""

import pytest
import torch
import transformers as hf
from tokenizers import Tokenizer, models, pre_tokenizers

from sandtable.arguments import ArgumentError
from sandtable.bridges.huggingface import CustomGenerate, backtracking, load
from sandtable.decoding import Predicate, backtrack, best_of_n

SIZE = 23


def make(seed=0, **changes):
    config = dict(vocab_size=SIZE, n_embd=16, n_layer=2, n_head=4, n_positions=60, initializer_range=0.4)
    config |= dict(bos_token_id=1, eos_token_id=2, pad_token_id=0, resid_pdrop=0.3, embd_pdrop=0.3)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return hf.GPT2LMHeadModel(hf.GPT2Config(**(config | changes))).eval()


def padded(prompts=((3, 4, 5), (6,), (7, 8, 9, 10, 11), (12, 13))):
    """Prompts padded on the left, as generate wants them."""
    width = max(map(len, prompts))
    ids = torch.tensor([[0] * (width - len(row)) + list(row) for row in prompts])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in prompts])
    return dict(input_ids=ids, attention_mask=mask)


def no_nines(view):
    return [9 not in row[start:length] for row, start, length in zip(*map(list, _parts(view)), strict=True)]


def _parts(view):
    return view.tokens.tolist(), view.prompts.tolist(), view.lengths.tolist()


@pytest.mark.parametrize("limits", [dict(max_new_tokens=15), dict(max_length=17), dict(max_new_tokens=1)])
@pytest.mark.parametrize("ends", [2, [2, 5, 9], None])
def test_greedy_without_a_quota_is_generate_itself(limits, ends):
    model = make()
    model.generation_config.eos_token_id = ends
    for inputs in (padded(), padded([[3, 4, 5]]), {"input_ids": torch.tensor([[3, 4], [6, 7]])}):
        expected = model.generate(**inputs, do_sample=False, **limits)
        ours = model.generate(**inputs, do_sample=False, **limits, custom_generate=backtracking(no_nines, quota=0))
        assert ours.dtype == expected.dtype
        assert torch.equal(ours, expected)


def test_it_is_backtrack_on_the_unpadded_rows():
    model, inputs = make(), padded()
    method = backtracking(no_nines, quota=3, stride=2, threshold=0.4, redo="sample", verify_redo=True, generator=7)
    law = dict(temperature=1.3, top_k=15, top_p=0.97)
    out = model.generate(**inputs, do_sample=True, max_new_tokens=20, **law, custom_generate=method)
    prompts = [ids[mask.bool()].tolist() for ids, mask in zip(*inputs.values(), strict=True)]
    options = dict(quota=3, stride=2, threshold=0.4, redo="sample", verify_redo=True, generator=7)
    made = backtrack(load(model), prompts, no_nines, max_tokens=20, **law, **options)
    for row, prompt, written in zip(out.tolist(), prompts, made.completions, strict=True):
        assert row == [0] * (5 - len(prompt)) + prompt + written + [0] * (len(row) - 5 - len(written))
    assert out.shape[1] == 5 + max(map(len, made.completions))
    assert torch.equal(method.generation.queries, made.queries)
    assert made.backtracks.sum() > 0


def test_law_of_generate_s_own_defaults():
    model = make()
    method = backtracking(no_nines, quota=0, generator=0)
    model.generate(**padded([[3]] * 3), do_sample=True, top_k=2, max_new_tokens=3, custom_generate=method)
    tokens = torch.tensor(method.generation.rows)
    with torch.no_grad():
        best = model(tokens[:, :-1]).logits.topk(2, dim=-1).indices
    assert (best == tokens[:, 1:, None]).any(-1).all()


def test_seeds():
    model, inputs = make(eos_token_id=None), padded()
    asked = dict(do_sample=True, max_new_tokens=12)

    def run(**seed):
        return model.generate(**inputs, **asked, custom_generate=backtracking(no_nines, **seed)).tolist()

    assert run(generator=1) == run(generator=1) != run(generator=2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        first, second = run(), run()
        torch.manual_seed(0)
        assert run() == first != second


def test_return_dict_num_return_sequences_and_other_decoders():
    model = make()
    score = Predicate(lambda view: view.tokens.double().mean(1), is_value=True)
    method = CustomGenerate(best_of_n, score, n=3, generator=0)
    asked = dict(do_sample=True, max_new_tokens=6, num_return_sequences=2, return_dict_in_generate=True)
    out = model.generate(**padded(), **asked, custom_generate=method)
    assert isinstance(out, hf.generation.GenerateDecoderOnlyOutput)
    assert out.sequences.shape[0] == 8
    assert torch.equal(out.sequences[::2, :5], padded()["input_ids"])


def test_a_model_in_training_stays_so_but_generates_without_dropout():
    model = make()
    expected = model.generate(**padded(), do_sample=False, max_new_tokens=15)
    model.train()
    method = backtracking(no_nines, quota=0)
    assert torch.equal(model.generate(**padded(), do_sample=False, max_new_tokens=15, custom_generate=method), expected)
    assert model.training


def test_verifiers_of_text():
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(SIZE)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = hf.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="w0", pad_token="w0", padding_side="left")
    model = make(eos_token_id=None)
    inputs = tokenizer(["w3 w4", "w5"], padding=True, return_tensors="pt", return_token_type_ids=False)

    def judge(view):
        return ["w1" not in text for text in view.completion]

    method = backtracking(judge, tokenizer=tokenizer, quota=40, stride=1, redo="sample", generator=0)
    out = model.generate(**inputs, do_sample=True, max_new_tokens=10, custom_generate=method)
    assert method.generation.backtracks.min() > 0
    assert not any("w1" in text for text in tokenizer.batch_decode(out[:, 2:]))
    with pytest.raises(ArgumentError, match="pass tokenizer="):
        model.generate(**inputs, do_sample=True, max_new_tokens=10, custom_generate=backtracking(judge))


class Streamer:
    def put(self, value):
        pass

    def end(self):
        pass


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (dict(repetition_penalty=1.2), "RepetitionPenaltyLogitsProcessor"),
        (dict(do_sample=True, min_p=0.1), "MinPLogitsWarper"),
        (dict(num_beams=2), "num_beams=2"),
        (dict(penalty_alpha=0.6, top_k=4), "contrastive search"),
        (dict(dola_layers="low"), "dola generation"),
        (dict(prompt_lookup_num_tokens=3), "assisted generation"),
        (dict(force_words_ids=[[4]]), "constrained beam search"),
        (dict(streamer=Streamer()), "streamer"),
        (dict(assistant_model=make(1)), "assistant_model"),
        (dict(max_time=3.0), "MaxTimeCriteria"),
        (dict(return_dict_in_generate=True, output_scores=True), "output_scores"),
        (dict(token_type_ids=torch.zeros(4, 5, dtype=torch.long)), "token_type_ids"),
        (dict(attention_mask=torch.tensor([[1, 1, 1, 0, 0]] * 4)), "padding must be on the left"),
        (dict(position_ids=torch.arange(5).expand(4, 5) + 3), "must count the tokens of every row from 0"),
    ],
)
def test_nothing_that_generate_is_asked_for_is_ignored(asked, message):
    model = make()
    with pytest.raises(ArgumentError, match=message) as error:
        model.generate(**(padded() | asked), max_new_tokens=4, custom_generate=backtracking(no_nines))
    assert "\n" not in str(error.value)


def test_wrong_methods():
    with pytest.raises(ArgumentError, match="protect_prompt=False"):
        backtracking(no_nines, protect_prompt=False)
    for wrong, message in [
        (dict(stride=0), "stride=0"),
        (dict(quotas=3), "quotas=3: not a setting of backtrack.*did you mean 'quota'"),
        (dict(verify_redo="no"), "verify_redo='no': must be True or False"),
        (dict(max_tokens=3), "max_tokens=3: not a setting"),
    ]:
        with pytest.raises(ArgumentError, match=message):
            backtracking(no_nines, **wrong)
    with pytest.raises(ArgumentError, match="verifier=3: must be a Verifier"):
        backtracking(3)
