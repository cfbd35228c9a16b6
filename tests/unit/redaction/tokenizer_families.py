"""Six families of tokenizers, trained here on made-up text, with the marks of ChatML."""

from collections.abc import Callable, Sequence

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Engine

CORPUS = [
    "Dear Mia, your flight to Oslo leaves at nine. Write to mia.li@example.com or call 555-0101.",
    "The card 4111 1111 1111 1111 was refused; try another one, 客户张三 said. 🙂 naïve façade",
    "<EMAIL_ADDRESS_abcdefghijklm> and <PERSON_nopqrstuvwxyz> were here before.",
    '{"first_name": "Mia", "email": "mia.li@example.com", "total": 12}\nsystem\nuser\nassistant\n',
    " ".join(map(chr, range(33, 127))),
] * 4
START, END = "<|im_start|>", "<|im_end|>"


def byte_level_bpe() -> Engine:
    """As GPT-2 has it."""
    return _byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False))


def byte_level_bpe_of_digits() -> Engine:
    """As Qwen and Llama 3 have it: words by a pattern of their own, digits one by one."""
    words = Regex(r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+")
    return _byte_level(
        pre_tokenizers.Sequence([
            pre_tokenizers.Split(words, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ])
    )  # fmt: skip


def _byte_level(words: pre_tokenizers.PreTokenizer) -> Engine:
    engine = Engine(models.BPE())
    engine.pre_tokenizer = words
    engine.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    engine.train_from_iterator(CORPUS, trainer)
    return _marked(engine)


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
    return _marked(engine)


def unigram() -> Engine:
    """As T5 and Gemma's kin have it: pieces by probability, and one token for what is unknown."""
    engine = Engine(models.Unigram())
    engine.pre_tokenizer = pre_tokenizers.Metaspace()
    engine.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=200, unk_token="<unk>", special_tokens=["<unk>"], show_progress=False
    )
    engine.train_from_iterator(CORPUS, trainer)
    return _marked(engine)


def wordpiece() -> Engine:
    """As BERT has it; it writes all in small letters, so that no text comes back from it."""
    engine = Engine(models.WordPiece(unk_token="[UNK]"))
    engine.normalizer = normalizers.BertNormalizer(lowercase=True)
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    engine.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(
        vocab_size=300, special_tokens=["[UNK]"], show_progress=False
    )
    engine.train_from_iterator(CORPUS, trainer)
    return _marked(engine)


def whole_words() -> Engine:
    """A list of words."""
    engine = Engine(models.WordLevel(unk_token="[UNK]"))
    engine.pre_tokenizer = pre_tokenizers.Whitespace()
    engine.train_from_iterator(
        CORPUS, trainers.WordLevelTrainer(special_tokens=["[UNK]"], show_progress=False)
    )
    return _marked(engine)


def _marked(engine: Engine) -> Engine:
    marks = [AddedToken(mark, special=True, normalized=False) for mark in (START, END)]
    engine.add_special_tokens(marks)
    return engine


#: Families whose tokens say which bytes they are, and families whose tokens do not.
EXACT: dict[str, Callable[[], Engine]] = {
    "byte-level BPE": byte_level_bpe,
    "byte-level BPE of digits": byte_level_bpe_of_digits,
    "BPE with byte fallback": byte_fallback_bpe,
    "Unigram": unigram,
}
LOSSY: dict[str, Callable[[], Engine]] = {"WordPiece": wordpiece, "whole words": whole_words}


def prompt_ids(engine: Engine, messages: Sequence[tuple[str, str]]) -> list[int]:
    """The messages (role and text) and the opening of an answer, as ChatML renders them."""
    rendered = "".join(f"{START}{role}\n{text}{END}\n" for role, text in messages)
    return ids_of(engine, f"{rendered}{START}assistant\n")


def ids_of(engine: Engine, text: str) -> list[int]:
    """Token ids without marks around them."""
    found: list[int] = engine.encode(text, add_special_tokens=False).ids
    return found
