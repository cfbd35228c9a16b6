"""Random letters near a word for keys: credentials whose form nobody has written down."""

import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from math import log2
from typing import Final

_HINTS: Final = (
    "key", "token", "secret", "credential", "passw", "auth", " api", "bearer", "密钥", "令牌",
    "密码", "口令", " pin", "webhook",
)  # fmt: skip
_HINT: Final = re.compile(
    r"(?i)(?:\bkeys?\b|_key|token|secret|credential|passw|passphrase|\bauth|\bapi\b|bearer|密钥|令牌"
    r"|密码|口令|\bpin\b|webhook)"
)
_RANDOM: Final = re.compile(
    r"(?<![A-Za-z0-9_/+.=-])(?=[^\s]{0,80}[A-Za-z])[A-Za-z0-9]"
    r"[A-Za-z0-9_/+.~-]{18,127}={0,2}(?![A-Za-z0-9_/+=])"
)
#: Ids that providers give to calls, messages and tools; digests, versions and dates.
_ORDINARY: Final = re.compile(
    r"(?:chatcmpl|call|toolu|srvtoolu|msg|resp|req|run|thread|asst|file|batch|step|item|rs|fc|ws|gen"
    r"|evt|sess|session|trace|span|job|task|user|org|proj|anon|ctc|cmpl)[-_]"
    r"|[0-9a-f]{8}-[0-9a-f]{4}-|\d{4}-\d{2}-\d{2}|v?\d+\.\d+|sha\d{1,3}[-:]|\d[\d._:/-]*$"
)
_HEX: Final = re.compile(r"[0-9a-f]+|[0-9A-F]+")
_REACH: Final = 60
_MAX_LETTERS: Final = 130
_MIN_ENTROPY_BITS: Final = 3.6


def find(text: str) -> Iterator[tuple[int, int]]:
    """Where random letters stand within 60 characters after a word for keys."""
    lower = text.lower()
    if not any(hint in lower for hint in _HINTS):
        return
    last = 0
    for hint in _HINT.finditer(text):
        if hint.start() < last:
            continue
        end = hint.end() + _REACH
        for match in _RANDOM.finditer(text, hint.end(), end + _MAX_LETTERS):
            last = match.end()
            if match.start() <= end and _is_random(match.group()):
                yield match.span()


def _is_random(word: str) -> bool:
    """Letters and digits without order: not a path, a name in code, a version or an id."""
    if _ORDINARY.match(word) or word.count("/") > 3 or word.count(".") > 2:
        return False
    kinds = {_kind(each) for each in word if each.isalnum()}
    if len(kinds) < 3 and (not word.isalnum() or _HEX.fullmatch(word)):
        return False
    counts = Counter(word)
    bits = -sum(n / len(word) * log2(n / len(word)) for n in counts.values())
    changes = sum(_kind(a) != _kind(b) for a, b in pairwise(word) if a.isalnum() and b.isalnum())
    # Without a digit only a restless change of cases tells it from a name in a program.
    is_restless = changes * 5 >= (len(word) if any(map(str.isdigit, word)) else 2 * len(word))
    return bits >= _MIN_ENTROPY_BITS and is_restless


def _kind(character: str) -> int:
    return 0 if character.isdigit() else 1 if character.isupper() else 2
