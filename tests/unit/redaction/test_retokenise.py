"""Runs of tokens replaced, for families of tokenizers trained here on made-up text."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Engine

from schemas.errors import ConfigError
from streams.redaction.agent import tokenizers_of
from streams.redaction.huggingface import HuggingFaceTokenizer
from streams.redaction.placeholders import Placeholders
from streams.redaction.retokenise import Edit, NotAlignedError, pieces, retokenise
from tests.unit.redaction.tokenizer_families import CORPUS, EXACT, LOSSY, ids_of, whole_words

SECRET = "alice.jones@example.com"
PLACEHOLDER = Placeholders(b"0123456789abcdef").make("EMAIL_ADDRESS", SECRET)
WORDS = st.text(alphabet="abc XYZ.,é 🙂客\n", max_size=12) | st.sampled_from(CORPUS)


@pytest.fixture(scope="module", params=EXACT)
def engine(request: pytest.FixtureRequest) -> Engine:
    return EXACT[request.param]()


def edits_of(text: bytes) -> list[Edit]:
    """One for each secret in the text."""
    found, start = [], text.find(SECRET.encode())
    while start >= 0:
        found.append(Edit(start, start + len(SECRET), PLACEHOLDER))
        start = text.find(SECRET.encode(), start + 1)
    return found


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40
)
@given(parts=st.lists(WORDS, min_size=1, max_size=5))
def test_what_every_token_is(engine: Engine, parts: list[str]) -> None:
    tokenizer = HuggingFaceTokenizer(engine)
    ids = ids_of(engine, SECRET.join(parts))
    spelt = pieces(ids, tokenizer)
    text = b"".join(spelt)
    made = retokenise(ids, spelt, edits_of(text), tokenizer)
    now = b"".join(pieces(made.token_ids, tokenizer))
    assert now == text.replace(SECRET.encode(), PLACEHOLDER.encode())
    assert SECRET not in engine.decode(made.token_ids)
    for token_id, origin in zip(made.token_ids, made.origins, strict=True):
        if origin is not None:
            assert ids[origin] == token_id
            assert SECRET.encode() not in spelt[origin]
    new = [i for i, origin in enumerate(made.origins) if origin is None]
    assert new == [i for _, _, first, end in made.runs for i in range(first, end)]
    kept = [origin for origin in made.origins if origin is not None]
    gone = sorted(set(range(len(ids))) - set(kept))
    assert kept == sorted(kept)
    assert gone == [i for first, end, _, _ in made.runs for i in range(first, end)]


@given(parts=st.lists(WORDS, min_size=1, max_size=4), index=st.integers(0, 400))
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=20
)
def test_a_border_goes_with_its_tokens(engine: Engine, parts: list[str], index: int) -> None:
    tokenizer = HuggingFaceTokenizer(engine)
    ids = ids_of(engine, SECRET.join(parts))
    spelt = pieces(ids, tokenizer)
    made = retokenise(ids, spelt, edits_of(b"".join(spelt)), tokenizer)
    index = min(index, len(ids))
    border = made.moved(index)
    before = [o for o in made.origins[:border] if o is not None]
    behind = [o for o in made.origins[border:] if o is not None]
    assert all(origin < index for origin in before)
    assert all(origin >= index for origin in behind)


def test_a_text_without_private_data_stays_as_it_is(engine: Engine) -> None:
    tokenizer = HuggingFaceTokenizer(engine)
    ids = ids_of(engine, CORPUS[0])
    made = retokenise(ids, pieces(ids, tokenizer), [], tokenizer)
    assert list(made.token_ids) == ids
    assert made.origins == (*range(len(ids)),)
    assert made.runs == ()


@pytest.mark.parametrize("name", LOSSY)
def test_tokens_that_do_not_say_which_bytes_they_are_are_refused(name: str) -> None:
    engine = LOSSY[name]()
    with pytest.raises(NotAlignedError):
        pieces(ids_of(engine, CORPUS[0]), HuggingFaceTokenizer(engine))


def test_an_unknown_id_is_refused(engine: Engine) -> None:
    tokenizer = HuggingFaceTokenizer(engine)
    for token_id in (10**6, -1, 2**40):
        with pytest.raises(NotAlignedError):
            pieces([token_id], tokenizer)


@pytest.mark.parametrize("content", [None, b"no tokenizer", b"{}", b"\xff"])
def test_a_file_that_holds_no_tokenizer_is_a_fault_of_the_settings(
    content: bytes | None, tmp_path: Path
) -> None:
    file = tmp_path / "tokenizer.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"tokenizer\.json"):
        tokenizers_of({"main": file})


class Pairs:
    """Two letters a token, so that what comes out can be read off; it knows no `#`."""

    def piece(self, token_id: int) -> bytes | None:
        return None if token_id == ord("#") else bytes(b for b in divmod(token_id, 256) if b)

    def is_mark(self, token_id: int) -> bool:
        return token_id < 0

    def encode(self, text: str) -> list[int]:
        data = text.encode()
        return [
            int.from_bytes(data[at : at + 2]) if data[at : at + 2] != b"#" else ord("#")
            for at in range(0, len(data), 2)
        ]


def test_only_tokens_that_touch_an_edit_go() -> None:
    tokenizer = Pairs()
    ids = tokenizer.encode("abcdefghij")
    made = retokenise(ids, pieces(ids, tokenizer), [Edit(3, 4, "XY"), Edit(8, 9, "Z")], tokenizer)
    assert b"".join(pieces(made.token_ids, tokenizer)) == b"abcXYefghZj"
    assert made.origins == (0, None, None, 2, 3, None)
    assert made.runs == ((1, 2, 1, 3), (4, 5, 5, 6))
    assert [made.moved(i) for i in range(6)] == [0, 1, 3, 4, 5, 6]


def test_what_the_tokenizer_cannot_write_is_refused() -> None:
    tokenizer = Pairs()
    ids = tokenizer.encode("abcd")
    with pytest.raises(NotAlignedError):
        retokenise(ids, pieces(ids, tokenizer), [Edit(0, 2, "ab#")], tokenizer)


def test_a_tokenizer_that_cuts_is_refused() -> None:
    engine = whole_words()
    engine.enable_truncation(4)
    with pytest.raises(ConfigError, match="truncates"):
        HuggingFaceTokenizer(engine)
