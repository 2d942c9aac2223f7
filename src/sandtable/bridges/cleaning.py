"""Cleaning and deduplication of text, in constant memory."""

from __future__ import annotations

import hashlib
import re
import unicodedata

# Control characters but for white space, invisible marks, and halves of surrogate pairs, which no encoding can write.
_NOT_TEXT = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u200b-\u200f\u202a-\u202e\u2060\ufeff\ud800-\udfff]"
)


def clean(text: str) -> str:
    """Unicode normal form C, without control characters, white space collapsed to single blanks."""
    return " ".join(unicodedata.normalize("NFC", _NOT_TEXT.sub("", text)).split())


class Seen:
    """Which texts came before, up to case, punctuation and white space, in constant memory.

    A Bloom filter (Bloom 1970) of m = 2^27 bits (16 MiB) and k = 7 hashes of a 64-bit digest. A repeated text is
    always recognised; after n different ones a new text is mistaken for a repetition with probability
    (1 − e^(−kn/m))^k: 1e-9 at a million, 0.2 % at ten million.
    """

    def __init__(self) -> None:
        self._bits = bytearray(2**24)

    def add(self, text: str) -> bool:
        """Take note of `text`; whether it is new."""
        plain = " ".join(re.findall(r"\w+", text.casefold()))
        digest = hashlib.blake2b(plain.encode(), digest_size=8).digest()
        first, step = int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:], "little") | 1
        new = False
        for i in range(7):
            place = (first + i * step) & (2**27 - 1)
            bit = 1 << (place & 7)
            new |= not self._bits[place >> 3] & bit
            self._bits[place >> 3] |= bit
        return new
