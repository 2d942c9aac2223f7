"""Small encoder-decoders to decode from: random ones, and oracles that know the right translation."""

import torch
import torch.nn.functional as F

from sandtable.inputs import EOS, RESERVED
from sandtable.models import Seq2Seq
from sandtable.models.seq2seq import Held, Prepared

WORDS = 5
SIZE = RESERVED + WORDS


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def random_model(seed=1, scale=0.7, mixing=None, **options):
    """Random weights; with `mixing`, tokens tend to stay what they are, the more so the smaller it is."""
    make = dict(layers=1, heads=2, width=6, mlp=8, longest=16, longest_target=12, buckets=4, furthest=8)
    model = Seq2Seq(SIZE, **{**make, **options}).double()
    generator = rng(seed)
    for parameter in model.parameters():
        parameter.data = scale * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    if mixing is not None:
        model.embed.W_E.data = torch.nn.functional.normalize(model.embed.W_E.data)
        for name, parameter in model.named_parameters():
            if name.endswith(("W_O", "W_out")):
                parameter.data *= mixing
    return model


def sources(rows=4, longest=4, seed=2):
    """Random sources of several lengths, and their mask."""
    generator = rng(seed)
    source = torch.randint(RESERVED, SIZE, (rows, longest), generator=generator)
    seen = torch.arange(longest) < torch.randint(1, longest + 1, (rows, 1), generator=generator)
    return source.where(seen, 0), seen


class Oracle(Seq2Seq):
    """Writes the right target of a distilled task; with `slow`, one word more a pass, from left to right.

    `encoded` and `written` count the rows that each side was run on.
    """

    def __init__(self, task, *, slow=False):
        super().__init__(task.vocab, layers=1, heads=1, width=4, longest=task.longest, longest_target=task.longest)
        self.task, self.slow, self.encoded, self.written = task, slow, 0, 0

    def right(self, source):
        """The only target of non-zero probability, padded to the longest one."""
        rows = [_translate(self.task, [t - RESERVED for t in row]) for row in source.tolist()]
        return torch.stack([F.pad(torch.tensor([*row, EOS]), (0, self.task.longest - 1 - len(row))) for row in rows])

    def encode(self, source, seen=None, tap=None):
        self.encoded += len(source)
        target = self.right(source)
        return target[..., None].double(), 50 * F.one_hot((target != 0).sum(1) - 1, self.task.longest).double()

    def prepare(self, memory, seen, size, real=None, tap=None):
        return Prepared([Held(memory, memory, None)], torch.zeros(1, size, size).double(), None)

    def write(self, target, prepared, tap=None):
        self.written += len(target)
        goal = prepared.layers[0].keys[:, : target.shape[1], 0].long()
        if self.slow:
            before = F.pad((target == goal)[:, :-1], (1, 0), value=True).long().cumprod(1).bool()
            goal = goal.where(before | (goal == EOS), target)
        return 20 * F.one_hot(goal, self.size).double()


def _translate(task, symbols):
    kind = type(task).__name__
    if kind == "DropTask":
        return [int(task.words(torch.tensor(s))) for s in symbols if task.table[s]]
    if kind == "DialectTask":
        return [int(task.words(torch.tensor(s), int(task.table[symbols[0]]))) for s in symbols]
    parts = [((1, 2) if task.table[s] else (0,), s) for s in symbols]
    return [int(task.words(torch.tensor(s), k)) for kinds, s in parts for k in kinds]
