"""Tokens of redacted texts, for five families of tokenizers trained here on made-up text."""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Engine
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from schemas.errors import ConfigError
from streams.redaction.huggingface import HuggingFaceTokenizer
from streams.redaction.placeholders import Placeholders, Replacement
from streams.redaction.redactor import DigestCache, build_redactor
from streams.redaction.retokenise import Retokenised, Standing, Token, retokenise

CORPUS = [
    "Dear Mia, your flight to Oslo leaves at nine. Write to mia.li@example.com or call 555-0101.",
    "The card 4111 1111 1111 1111 was refused; try another one, 客户张三 said. 🙂 naïve façade",
    "<EMAIL_ADDRESS_abcdefghijklm> and <PERSON_nopqrstuvwxyz> were here before.",
] * 4
SECRET = "alice.jones@example.com"
PLACEHOLDERS = Placeholders(b"0123456789abcdef")


def byte_level_bpe() -> Engine:
    engine = Engine(models.BPE())
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    engine.train_from_iterator(CORPUS, trainer)
    return engine


def wordpiece() -> Engine:
    engine = Engine(models.WordPiece(unk_token="[UNK]"))
    engine.normalizer = normalizers.BertNormalizer(lowercase=True)
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    engine.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(
        vocab_size=300, special_tokens=["[UNK]"], show_progress=False
    )
    engine.train_from_iterator(CORPUS, trainer)
    return engine


def unigram() -> Engine:
    engine = Engine(models.Unigram())
    engine.pre_tokenizer = pre_tokenizers.Metaspace()
    engine.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=200, unk_token="<unk>", special_tokens=["<unk>"], show_progress=False
    )
    engine.train_from_iterator(CORPUS, trainer)
    return engine


def byte_fallback_bpe() -> Engine:
    """As Llama 2 has it: pieces of letters, and bytes for what no piece stands for."""
    engine = Engine(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    engine.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    engine.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
         decoders.Strip(" ", 1, 0)]
    )  # fmt: skip
    special = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=special, show_progress=False, limit_alphabet=60
    )
    engine.train_from_iterator(CORPUS, trainer)
    return engine


def whole_words() -> Engine:
    engine = Engine(models.WordLevel(unk_token="[UNK]"))
    engine.pre_tokenizer = pre_tokenizers.Whitespace()
    engine.train_from_iterator(
        CORPUS, trainers.WordLevelTrainer(special_tokens=["[UNK]"], show_progress=False)
    )
    return engine


FAMILIES: dict[str, Callable[[], Engine]] = {
    "byte-level BPE": byte_level_bpe,
    "WordPiece": wordpiece,
    "Unigram": unigram,
    "BPE with byte fallback": byte_fallback_bpe,
    "whole words": whole_words,
}


@pytest.fixture(scope="module", params=FAMILIES)
def engine(request: pytest.FixtureRequest) -> Engine:
    return FAMILIES[request.param]()


def with_secrets(pieces: list[str]) -> tuple[str, list[Replacement]]:
    """A text with a secret between all pieces, and what redaction makes of the secrets."""
    text = pieces[0]
    made = []
    placeholder = PLACEHOLDERS.make("EMAIL_ADDRESS", SECRET)
    for piece in pieces[1:]:
        made.append(Replacement(len(text), len(text) + len(SECRET), "EMAIL_ADDRESS", placeholder))
        text += SECRET + piece
    return text, made


WORDS = st.text(alphabet="abc XYZ.,é 🙂客\n", max_size=12) | st.sampled_from(CORPUS)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50
)
@given(pieces=st.lists(WORDS, min_size=1, max_size=5))
def test_what_every_token_is(engine: Engine, pieces: list[str]) -> None:
    text, made = with_secrets(pieces)
    tokenizer = HuggingFaceTokenizer(engine)
    result = retokenise(text, made, tokenizer)
    original = {(t.start, t.end, t.token_id) for t in tokenizer.encode(text)}
    assert SECRET not in result.text
    assert SECRET not in engine.decode([token.token_id for token in result.tokens])
    private = covered(result)
    shifted = shift_of_each_character(result, made)
    for token, standing in zip(result.tokens, result.standings, strict=True):
        touches = any(private[token.start : max(token.end, token.start + 1)])
        assert (standing is Standing.CHANGED) == touches
        if standing.may_train:
            begin = shifted[token.start]
            assert (begin, begin + token.end - token.start, token.token_id) in original
        first_change = private.index(True) if True in private else len(private) + 1
        if standing is Standing.EXACT:
            assert token.start < first_change
        if standing is Standing.APPROXIMATE:
            assert token.start > first_change


def covered(result: Retokenised) -> list[bool]:
    """For each character of the redacted text, whether a placeholder holds it."""
    private = [False] * (len(result.text) + 1)
    for start, end in PLACEHOLDERS.find(result.text):
        # The corpus holds look-alikes; only what the key signs is a placeholder.
        private[start:end] = [True] * (end - start)
    return private


def shift_of_each_character(result: Retokenised, made: list[Replacement]) -> list[int]:
    """For each character of the redacted text, where it stood; -1 inside placeholders."""
    places: list[int] = []
    position = 0
    for item in made:
        places += range(position, item.start)
        places += [-1] * len(item.placeholder)
        position = item.end
    places += range(position, position + len(result.text) - len(places) + 1)
    return places


def test_a_text_without_private_data_trains_whole(engine: Engine) -> None:
    tokenizer = HuggingFaceTokenizer(engine)
    tokens = tokenizer.encode(CORPUS[0])
    logprobs = [-0.5 - index for index in range(len(tokens))]
    result = retokenise(CORPUS[0], [], tokenizer, sampled=tokens, logprobs=logprobs)
    assert set(result.standings) == {Standing.EXACT}
    assert result.trainable_share == 1.0
    assert list(result.logprobs) == logprobs
    after = retokenise(CORPUS[0], [], tokenizer, is_context_changed=True)
    assert set(after.standings) == {Standing.APPROXIMATE}


def test_the_redactor_and_the_tokenizer_meet(engine: Engine) -> None:
    """Values of four kinds, found by the redactor, are in no decoding of the tokens."""
    planted = [SECRET, "4111 1111 1111 1111", "1990-04-05", "(555) 123-4567"]
    text = "客户 🙂 " + " and then ".join(planted) + " were noted; the rest is plain."
    redacted = build_redactor(
        "regex", tenant_key=b"0123456789abcdef", cache=DigestCache(), policy_version="1"
    ).text(text)
    made = [Replacement(r.start, r.end, r.kind, r.placeholder) for r in redacted.redactions]
    result = retokenise(text, made, HuggingFaceTokenizer(engine))
    decoded = engine.decode([token.token_id for token in result.tokens])
    assert result.text == redacted.text
    assert [value for value in planted if value.lower() in decoded.lower()] == []
    assert 0 < result.trainable_share < 1
    assert Standing.APPROXIMATE in result.standings


class Letters:
    """One token a letter, so that what comes out can be read off."""

    def encode(self, text: str) -> list[Token]:
        return [Token(ord(letter), index, index + 1) for index, letter in enumerate(text)]


def test_logprobs_go_with_their_letters() -> None:
    made = [Replacement(2, 4, "PERSON", "<P>")]
    result = retokenise("a Bo c", made, Letters(), logprobs=[-1, -2, -3, -4, -5, -6])
    assert result.text == "a <P> c"
    assert result.logprobs == (-1, -2, None, None, None, -5, -6)
    assert [standing.value[0] for standing in result.standings] == list("eecccaa")
    with pytest.raises(ValueError, match="one log-probability"):
        retokenise("a Bo c", made, Letters(), logprobs=[-1])


def test_a_tokenizer_that_cuts_is_refused() -> None:
    engine = whole_words()
    engine.enable_truncation(4)
    with pytest.raises(ConfigError, match="truncates"):
        HuggingFaceTokenizer(engine)
