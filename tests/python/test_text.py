"""prism/text against the `tokenizers` package: classes, NFC, words, ids, decoding, training, files."""

import importlib.util
import itertools
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import unicodedata

import program
import pytest
from program import ROOT, TIMEOUT

tokenizers = pytest.importorskip("tokenizers")
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers  # noqa: E402

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
END_OF_TEXT = "<|endoftext|>"
PATTERNS = {
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
}
# Qwen2's own vocabulary is compared where PRISM_QWEN2_DIR names a folder with *vocab.json and *merges.txt.
QWEN2 = os.environ.get("PRISM_QWEN2_DIR")
VOCABULARIES = ["trained", "trained-gpt2", *(["qwen2"] if QWEN2 else [])]


def run_tool(*arguments, records=(), status=0):
    data = b"".join(struct.pack("<I", len(record)) + record for record in records)
    result = program.run_tool("text/tokenizer_tool", *arguments, input=data, text=False)
    assert result.returncode == status, result.stderr.decode()
    return result.stdout if status == 0 else result.stderr.decode()


def answers(*arguments, records):
    data = run_tool(*arguments, records=records)
    result, at = [], 0
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at)
        result.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    assert len(result) == len(records)
    return result


def numbers(*arguments, records):
    return [list(struct.unpack(f"<{len(a) // 4}I", a)) for a in answers(*arguments, records=records)]


def texts(*arguments, records):
    return [a.decode() for a in answers(*arguments, records=records)]


def as_bytes(strings):
    return [s.encode() for s in strings]


def as_records(lists):
    return [struct.pack(f"<{len(ids)}I", *ids) for ids in lists]


def assert_equal(ours, theirs, inputs):
    assert len(ours) == len(theirs) == len(inputs)
    wrong = [(i, a, b) for i, a, b in zip(inputs, ours, theirs) if a != b]
    shown = "\n".join(f"{ascii(i)[:300]}\n  ours   {ascii(a)[:300]}\n  theirs {ascii(b)[:300]}" for i, a, b in wrong[:5])
    assert not wrong, f"{len(wrong)} of {len(inputs)} differ:\n{shown}"


# ---- texts --------------------------------------------------------------------------------------------------------


def python_sources(limit):
    """Returns files from all over the torch wheel, `limit` characters in all."""
    torch = pathlib.Path(importlib.util.find_spec("torch").origin).parent
    files = sorted(torch.rglob("*.py"))
    result, size = [], 0
    for path in files[::7] + files[3::7]:
        text = path.read_text(errors="replace")
        result.append(text)
        size += len(text)
        if size >= limit:
            break
    return result


SCRIPTS = [(0x20, 0x7E), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x52F), (0x590, 0x6FF), (0x900, 0xDFF), (0xE00, 0xEFF),
           (0x1100, 0x11FF), (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x2190, 0x23FF), (0x3000, 0x30FF), (0x4E00, 0x4FFF),
           (0xAC00, 0xAD00), (0xFB00, 0xFDFF), (0x1D100, 0x1D1FF), (0x1F300, 0x1F6FF), (0x20000, 0x20100)]  # fmt: skip
FRAGMENTS = ["'s", "'T", "'Re", "'vE", "'m", "'LL", "'d", "'\u017f", "'", " '", "''s", "\u2019s", " ", "  ", "   \t", "\n", "\r\n",
             "\n\n\n", " \n", "\n ", "\t", "\v", "\x85", "\u00a0", "\u2028", "\u3000", "\u200b", "\ufeff", "\x00", "\x7f", "\ufffd",
             "a", "Z", "the", "Hello", " world", "don't", "I'LL", "\u00e9", "e\u0301", "\u0327\u0301", "\u0301\u0327", "\u212b",
             "\u1100\u1161\u11a8", "\uac00\u11a8", "\u0344", "\u0f73", "\u1e9b\u0323", "0", "12", "345", "\u00bd", "\u2167",
             "\u0661", ".", "...", "!?", " -", "==", "/*", "\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467",
             "\U0001f1e9\U0001f1ea", "\u4f60\u597d", "\u0e2a\u0e27\u0e31\u0e2a", END_OF_TEXT, "<|im_start|>", "<|endoftext", "|>", "<|",
             "<", "\U00011938", "\U00011935\U00011930", "\u1ac1\u0334", "\u08d3\u0334\u0301", "\U0010ffff", "_", "\u203f"]  # fmt: skip


def random_texts(generator, count):
    def characters():
        low, high = generator.choice(SCRIPTS)
        return "".join(chr(generator.randint(low, high)) for _ in range(generator.randint(1, 12)))

    def anything():
        return "".join(chr(generator.choice(CODE_POINTS)) for _ in range(generator.randint(1, 8)))

    def fragments():
        return "".join(generator.choice(FRAGMENTS) for _ in range(generator.randint(1, 10)))

    def ascii_text():
        return "".join(chr(generator.randint(9, 126)) for _ in range(generator.randint(1, 40)))

    kinds = [characters, anything, fragments, fragments, ascii_text]
    return ["".join(generator.choice(kinds)() for _ in range(generator.randint(1, 4))) for _ in range(count)]


def real_texts(generator, count):
    result = []
    for source in python_sources(3_000_000):
        result.extend(source[i : i + 400] for i in range(0, len(source), 400))
    return generator.sample(result, count)


def adversarial_texts():
    runs = ["a", " ", "\n", " \n", "ab", "aA", "1", "'s", "\U0001f600", "\u00e9", "e\u0301", "\u0301\u0323", "\u4e00", "\t ", "<|", "_-"]
    lengths = [1, 2, 3, 7, 31, 32, 33, 63, 64, 65, 66, 1000]
    result = ["", END_OF_TEXT, END_OF_TEXT * 3, f" {END_OF_TEXT} ", "<|endoftext|", "<|endoftext|>>"]
    result += [run * n + tail for run in runs for n in lengths for tail in ("", "x", " x", "\n", END_OF_TEXT)]
    return result


@pytest.fixture(scope="session")
def corpus_texts():
    """More than 10,000 texts, the same for every vocabulary."""
    generator = random.Random(20240520)
    result = adversarial_texts() + random_texts(generator, 7000) + real_texts(generator, 3000)
    result += [chr(c) for c in generator.sample(CODE_POINTS, 1000)]
    assert len(result) >= 10_000
    return result


# ---- tokenizers ---------------------------------------------------------------------------------------------------


def package_tokenizer(rule, model, normalizer=True):
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.NFC() if normalizer else None
    if rule == "qwen2":
        split = pre_tokenizers.Split(Regex(PATTERNS[rule]), "isolated")
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


@pytest.fixture(scope="session")
def vocabularies(tmp_path_factory):
    """Name → (what our tool opens, the same in the package)."""
    folder = tmp_path_factory.mktemp("vocabularies")
    sources = as_bytes(python_sources(4_000_000))
    result = {}
    for name, options in {"trained": {}, "trained-gpt2": {"pre_split": "gpt2", "normalizer": "none"}}.items():
        path = folder / f"{name}.json"
        run_tool("train", path, json.dumps({"vocabulary": 4096, **options}), records=sources)
        result[name] = (path, Tokenizer.from_file(str(path)))
    if QWEN2:
        vocab, merges = (next(pathlib.Path(QWEN2).glob(p)) for p in ("*vocab.json", "*merges.txt"))
        theirs = package_tokenizer("qwen2", models.BPE.from_file(str(vocab), str(merges)))
        theirs.add_special_tokens([END_OF_TEXT, "<|im_start|>", "<|im_end|>"])
        result["qwen2"] = (f"{vocab},{merges}", theirs)
    return result


def their_ids(tokenizer, strings):
    return [e.ids for e in tokenizer.encode_batch_fast(strings, add_special_tokens=False)]


# ---- characters ---------------------------------------------------------------------------------------------------


def test_the_committed_tables_are_those_of_the_installed_package():
    subprocess.run([sys.executable, ROOT / "tools/make_unicode_tables.py", "--check"], check=True, timeout=TIMEOUT)


def test_all_code_points_have_the_classes_of_the_package():
    properties = run_tool("properties")
    assert len(properties) == 0x110000
    for bit, pattern in ((1, r"\p{L}"), (2, r"\p{N}"), (4, r"\s")):
        split = pre_tokenizers.Split(Regex(pattern), "removed")
        kept = {ord(c) for piece, _ in split.pre_tokenize_str("".join(map(chr, CODE_POINTS))) for c in piece}
        wrong = [hex(c) for c in CODE_POINTS if (properties[c] & bit != 0) == (c in kept)]
        assert not wrong, f"{pattern}: {len(wrong)} code points differ: {wrong[:20]}"


LIVELY = [c for c in CODE_POINTS if unicodedata.combining(chr(c)) or unicodedata.decomposition(chr(c))]  # NFC changes or moves them
JAMO = list(range(0x1100, 0x1200)) + list(range(0xAC00, 0xAC40))


def test_nfc_of_every_code_point_alone_and_of_those_it_concerns_beside_others():
    beside = LIVELY + JAMO + random.Random(0).sample(CODE_POINTS, 20_000)
    strings = [chr(c) for c in CODE_POINTS] + [context.format(chr(c)) for c in beside for context in ("e{}\u0301", "\u0345{}\u0334")]
    nfc = normalizers.NFC()
    assert_equal(texts("nfc", records=as_bytes(strings)), [nfc.normalize_str(s) for s in strings], strings)


def test_nfc_of_random_sequences():
    generator = random.Random(1)
    pools = [LIVELY, LIVELY, [ord(c) for c in "aeiouAEIOUys"], JAMO, CODE_POINTS]
    strings = [
        "".join(chr(generator.choice(generator.choice(pools))) for _ in range(generator.randint(2, 12))) for _ in range(60_000)
    ]
    nfc = normalizers.NFC()
    assert_equal(texts("nfc", records=as_bytes(strings)), [nfc.normalize_str(s) for s in strings], strings)


def test_broken_bytes_are_replaced_as_python_does():
    generator = random.Random(2)
    edges = [0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE, 0xEF,
             0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFE, 0xFF]  # fmt: skip
    inputs = [bytes([a, b]) for a in range(256) for b in range(256)]
    inputs += [bytes(choice) for n in (3, 4) for choice in itertools.product(edges[3::2], repeat=n)]
    inputs += [bytes(generator.choice(edges) for _ in range(generator.randint(0, 40))) for _ in range(20_000)]
    inputs += [generator.randbytes(generator.randint(0, 60)) for _ in range(20_000)]
    inputs += ["é€😀x".encode()[:n] + b"tail" for n in range(11)]
    assert_equal(texts("repair", records=inputs), [i.decode("utf-8", errors="replace") for i in inputs], inputs)


# ---- words --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", PATTERNS)
def test_words_are_those_of_the_pattern(rule, corpus_texts):
    split = pre_tokenizers.Split(Regex(PATTERNS[rule]), "isolated")
    alphabet = " \n\r\ta1.'s\u00a0\u017f"
    strings = ["".join(letters) for n in range(5) for letters in itertools.product(alphabet, repeat=n)]
    strings += [f"x'{chr(c)}e" for c in CODE_POINTS if unicodedata.category(chr(c))[0] == "L"]
    strings += corpus_texts
    theirs = [[len(word.encode()) for word, _ in split.pre_tokenize_str(s)] for s in strings]
    assert_equal(numbers("split", rule, records=as_bytes(strings)), theirs, strings)


# ---- ids ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VOCABULARIES)
def test_ids_equal_those_of_the_package(vocabularies, corpus_texts, name):
    ours, theirs = vocabularies[name]
    assert_equal(numbers("encode", ours, records=as_bytes(corpus_texts)), their_ids(theirs, corpus_texts), corpus_texts)


@pytest.mark.parametrize("name", VOCABULARIES)
def test_ids_of_broken_bytes_are_those_of_the_replaced_text(vocabularies, name):
    ours, theirs = vocabularies[name]
    generator = random.Random(3)
    inputs = [generator.randbytes(generator.randint(1, 50)) for _ in range(2000)]
    inputs += [b"caf\xc3 \xe2\x82ok\xed\xa0\x80", b"\xff\xfeh\x00i\x00"]
    expected = their_ids(theirs, [i.decode("utf-8", errors="replace") for i in inputs])
    assert_equal(numbers("encode", ours, records=inputs), expected, inputs)


@pytest.mark.parametrize("name", VOCABULARIES)
def test_special_tokens_can_be_encoded_as_text(vocabularies, corpus_texts, name):
    ours, theirs = vocabularies[name]
    theirs = Tokenizer.from_str(theirs.to_str())
    theirs.encode_special_tokens = True
    assert_equal(
        numbers("encode-as-text", ours, records=as_bytes(corpus_texts)), their_ids(theirs, corpus_texts), corpus_texts
    )


@pytest.mark.parametrize("name", VOCABULARIES)
@pytest.mark.parametrize("skip", [False, True])
def test_decoded_text_equals_that_of_the_package(vocabularies, name, skip):
    ours, theirs = vocabularies[name]
    generator = random.Random(4)
    size = theirs.get_vocab_size()
    lists = [[generator.randrange(size + 3) for _ in range(generator.randint(0, 12))] for _ in range(4000)]
    lists += [[i] for i in range(0, size, 7)] + [[size - 1, 5, size - 1]]
    theirs_texts = [theirs.decode(ids, skip_special_tokens=skip) for ids in lists]
    assert_equal(texts("decode-skip" if skip else "decode", ours, records=as_records(lists)), theirs_texts, lists)


@pytest.mark.parametrize("name", VOCABULARIES)
def test_decoding_the_ids_of_a_text_gives_its_normal_form(vocabularies, corpus_texts, name):
    ours, theirs = vocabularies[name]
    ids = answers("encode", ours, records=as_bytes(corpus_texts))
    normal = [normalizers.NFC().normalize_str(t) if theirs.normalizer else t for t in corpus_texts]
    assert_equal(texts("decode", ours, records=ids), normal, corpus_texts)


# ---- added tokens -------------------------------------------------------------------------------------------------

CONTENTS = ["<x>", "<xy>", "<x", " ", "  ", "a", "ab", "abc", "bcd", "é", "é ", "_", "\n", "'s", "the", "<|endoftext|>", "Ġ", "x\u0327"]


def random_added_tokens(generator):
    tokens = []
    for content in generator.sample(CONTENTS, generator.randint(1, 6)):
        flags = {f: generator.random() < 0.3 for f in ("single_word", "lstrip", "rstrip", "normalized", "special")}
        tokens.append(AddedToken(content, **flags))
    greedy = any(token.rstrip for token in tokens)
    return [token for token in tokens if not (greedy and token.content[0].isspace())]  # we refuse them, and the package panics


@pytest.mark.parametrize("rule", PATTERNS)
@pytest.mark.parametrize("seed", range(20))
def test_added_tokens_of_every_kind_are_found_as_in_the_package(tmp_path, rule, seed):
    generator = random.Random(seed)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {c: i for i, c in enumerate([*alphabet, "ab", "Ġa", "ĠĠ", "he"])}
    merges = [("a", "b"), ("Ġ", "a"), ("Ġ", "Ġ"), ("h", "e")]
    theirs = package_tokenizer(rule, models.BPE(vocab=vocab, merges=merges), normalizer=seed % 2 == 0)
    theirs.add_tokens(random_added_tokens(generator))
    theirs.save(str(tmp_path / "tokenizer.json"))
    pieces = [*CONTENTS, *CONTENTS, "e\u0301", "x", "1", "-", "\u3000", "\u00a0", "\u200d", "\u00b2", "\u0301", "d", "he"]
    strings = ["".join(generator.choice(pieces) for _ in range(generator.randint(1, 9))) for _ in range(1000)]
    ours = numbers("encode", tmp_path / "tokenizer.json", records=as_bytes(strings))
    assert_equal(ours, their_ids(theirs, strings), strings)
    theirs.encode_special_tokens = True
    ours = numbers("encode-as-text", tmp_path / "tokenizer.json", records=as_bytes(strings))
    assert_equal(ours, their_ids(theirs, strings), strings)
    lists = [[generator.randrange(theirs.get_vocab_size()) for _ in range(6)] for _ in range(300)]
    for skip, command in ((False, "decode"), (True, "decode-skip")):
        theirs_texts = [theirs.decode(ids, skip_special_tokens=skip) for ids in lists]
        assert_equal(texts(command, tmp_path / "tokenizer.json", records=as_records(lists)), theirs_texts, lists)


# ---- files --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VOCABULARIES)
def test_the_package_saves_and_reads_our_file_without_change(vocabularies, corpus_texts, tmp_path, name):
    ours, theirs = vocabularies[name]
    run_tool("convert", ours, tmp_path / "ours.json")
    from_ours = Tokenizer.from_file(str(tmp_path / "ours.json"))
    assert from_ours.get_vocab() == theirs.get_vocab()
    sample = corpus_texts[::20]
    assert_equal(their_ids(from_ours, sample), their_ids(theirs, sample), sample)
    from_ours.save(str(tmp_path / "theirs.json"))
    run_tool("convert", tmp_path / "theirs.json", tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "ours.json").read_bytes()


def test_merges_may_be_written_as_lines_or_as_pairs(vocabularies, tmp_path):
    path, _ = vocabularies["trained"]
    document = json.loads(path.read_text())
    document["model"]["merges"] = [" ".join(merge) for merge in document["model"]["merges"]]
    (tmp_path / "lines.json").write_text(json.dumps(document))
    run_tool("convert", tmp_path / "lines.json", tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()


def test_a_vocabulary_with_a_merges_file_gives_the_same_ids(vocabularies, corpus_texts, tmp_path):
    path, theirs = vocabularies["trained"]
    theirs.model.save(str(tmp_path))
    sample = corpus_texts[::10]
    ours = numbers("encode", tmp_path, records=as_bytes(sample))  # the folder
    expected = package_tokenizer("qwen2", models.BPE.from_file(str(tmp_path / "vocab.json"), str(tmp_path / "merges.txt")))
    expected.add_special_tokens([END_OF_TEXT, "<|im_start|>", "<|im_end|>"])
    assert_equal(ours, their_ids(expected, sample), sample)


def test_words_that_are_tokens_need_no_merges_where_the_file_says_so(vocabularies, corpus_texts, tmp_path):
    path, _ = vocabularies["trained"]
    document = json.loads(path.read_text())
    document["model"]["ignore_merges"] = True
    document["model"]["merges"] = document["model"]["merges"][::2]
    document["model"]["merges"] = [m for m in document["model"]["merges"] if "".join(m) in document["model"]["vocab"]]
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    theirs = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    sample = corpus_texts[::5]
    assert_equal(numbers("encode", tmp_path, records=as_bytes(sample)), their_ids(theirs, sample), sample)


def test_transformers_reads_our_file(vocabularies, corpus_texts):
    transformers = pytest.importorskip("transformers")
    path, _ = vocabularies["trained"]
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(path), eos_token=END_OF_TEXT)
    sample = corpus_texts[::20]
    ids = numbers("encode", path, records=as_bytes(sample))
    assert_equal(ids, [theirs.encode(s, add_special_tokens=False) for s in sample], sample)
    assert theirs.eos_token_id == len(theirs) - 1 == 4095


# ---- training -----------------------------------------------------------------------------------------------------


def trained_by_package(rule, documents, vocabulary, least_count, normalizer=True):
    tokenizer = package_tokenizer(rule, models.BPE(), normalizer)
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - 1,
        min_frequency=least_count,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents, trainer)
    tokenizer.add_special_tokens([END_OF_TEXT])
    return json.loads(tokenizer.to_str())["model"], tokenizer.get_vocab()


TRAINING = {
    "sources": lambda: python_sources(2_000_000),
    "random": lambda: random_texts(random.Random(5), 4000),
    "runs": lambda: [c * n for c in (" ", "a", "ab", "\u00e9") for n in range(1, 200)] + [" " * n + "x" for n in range(300)],
    "ties": lambda: ["".join(p) for p in itertools.permutations("abcdef")] * 2,
}


@pytest.mark.parametrize("rule", PATTERNS)
@pytest.mark.parametrize("corpus", TRAINING)
@pytest.mark.parametrize("least_count", [0, 2])
def test_training_learns_what_the_package_learns(tmp_path, rule, corpus, least_count):
    documents = TRAINING[corpus]()
    options = {"vocabulary": 3000, "least_count": least_count, "pre_split": rule, "allow_fewer": True}
    run_tool("train", tmp_path / "tokenizer.json", json.dumps(options), records=as_bytes(documents))
    ours = json.loads((tmp_path / "tokenizer.json").read_text())
    model, vocab = trained_by_package(rule, documents, 3000, least_count)
    assert ours["model"]["merges"] == model["merges"]
    assert {**ours["model"]["vocab"], **{t["content"]: t["id"] for t in ours["added_tokens"]}} == vocab


def test_training_does_not_depend_on_the_number_of_threads(tmp_path):
    records = as_bytes(random_texts(random.Random(6), 3000) + python_sources(1_000_000))
    results = set()
    for threads in (1, 2, 3, 8):
        options = {"vocabulary": 2000, "threads": threads}
        results.add(run_tool("train", tmp_path / "tokenizer.json", json.dumps(options), records=records))
    assert len(results) == 1, results
