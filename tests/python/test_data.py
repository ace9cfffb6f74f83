"""prism/data against files written by Python's own modules and by pyarrow."""

import functools
import gzip
import json
import pathlib
import random
import re

import pytest
from program import run_tool

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

tool = functools.partial(run_tool, "data/data_tool")


def documents_in(output):
    return [bytes.fromhex(line).decode() for line in output.splitlines()]


def documents_of(path, *settings):
    result = tool("documents", path, *settings)
    assert result.returncode == 0, result.stderr
    return documents_in(result.stdout)


@pytest.fixture(scope="session")
def texts():
    generator = random.Random(1)
    alphabet = ["a", "word ", "\n", "\r\n", "é", "名", "\U0001f600", '"', "\\", "\t", "\u2028", "\x00", "<|endoftext|>", "e\u0301"]
    return ["x" + "".join(generator.choices(alphabet, k=generator.randrange(300))) for _ in range(500)]


def pack_zstd(data):
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


PACKERS = {"": bytes, ".gz": gzip.compress, ".zst": pack_zstd}


@pytest.mark.parametrize("suffix", PACKERS)
def test_json_lines_of_the_json_module_are_read_back(texts, tmp_path, suffix):
    for escaped in (True, False):
        lines = "".join(json.dumps({"id": i, "text": t}, ensure_ascii=escaped) + "\n" for i, t in enumerate(texts))
        path = tmp_path / f"a.jsonl{suffix}"
        path.write_bytes(PACKERS[suffix](lines.encode()))
        assert documents_of(path) == texts
        assert documents_of(path, "piece=64") == texts


@pytest.mark.parametrize("suffix", PACKERS)
def test_text_is_split_as_python_splits_it(texts, tmp_path, suffix):
    separator = "\n<|endoftext|>\n"
    documents = [t.replace("<|endoftext|>", "").replace("\x00", "") for t in texts]
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(PACKERS[suffix](separator.join(documents).encode()))
    assert documents_of(path) == [d + "\n" for d in documents[:-1]] + documents[-1:]


def test_gzip_members_appended_to_a_file_are_all_read(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    for i in range(5):
        with gzip.open(path, "at") as file:
            file.write(json.dumps({"text": f"member {i}"}) + "\n")
    assert documents_of(path) == [f"member {i}" for i in range(5)]


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd", "brotli", "lz4"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("dictionary", [True, False])
def test_parquet_is_read_row_group_by_row_group(texts, tmp_path, compression, version, dictionary):
    path = tmp_path / "a.parquet"
    rows = texts + texts[:50]
    table = pa.table({"id": range(len(rows)), "text": rows, "meta": [{"text": "inner"}] * len(rows)})
    pq.write_table(table, path, row_group_size=37, compression=compression, data_page_version=version,
                   data_page_size=1000, use_dictionary=dictionary)  # fmt: skip
    assert documents_of(path) == rows
    assert documents_of(path, "piece=64") == rows


@pytest.mark.parametrize("encoding", ["PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary()])
def test_parquet_encodings_and_string_types_are_read(texts, tmp_path, encoding, kind):
    path = tmp_path / "a.parquet"
    rows = [t.encode() for t in texts] if kind == pa.binary() else texts
    schema = pa.schema([pa.field("content", kind, nullable=False)])
    pq.write_table(pa.table({"content": rows}, schema=schema), path, use_dictionary=False, column_encoding=encoding)
    assert documents_of(path, "field=content") == texts


def test_parquet_rows_without_text_are_passed_over(tmp_path):
    pq.write_table(pa.table({"text": [None, "a", "b", "c", None, None, "d"]}), tmp_path / "a.parquet", row_group_size=2)
    assert documents_of(tmp_path / "a.parquet") == ["a", "b", "c", "d"]


def test_parquet_that_does_not_fit_is_refused_with_file_and_row(tmp_path):
    def refused(table, *settings):
        path = tmp_path / "a.parquet"
        pq.write_table(table, path, row_group_size=2)
        result = tool("documents", path, *settings)
        assert result.returncode == 2
        assert result.stderr.startswith(str(path))
        return result.stderr

    assert 'expected a column "text", got the columns id, body' in refused(pa.table({"id": [1], "body": ["a"]}))
    assert 'expected strings in column "text", got INT64' in refused(pa.table({"text": [1]}))
    assert 'got the columns text.list.element' in refused(pa.table({"text": [["a"]]}))
    assert "expected at least one document" in refused(pa.table({"text": pa.array([], pa.string())}))


def test_damaged_parquet_is_refused_by_name_or_read_without_a_difference(texts, tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": texts}), path, row_group_size=100, write_page_checksum=True)
    whole = path.read_bytes()
    generator = random.Random(2)
    for size in [0, 3, 12, len(whole) // 2, len(whole) - 1]:
        path.write_bytes(whole[:size])
        result = tool("documents", path)
        assert result.returncode == 2 and str(path) in result.stderr, (size, result.stderr)
    refused = 0
    for _ in range(60):
        broken = bytearray(whole)
        place = generator.randrange(8 * len(whole))
        broken[place // 8] ^= 1 << place % 8
        path.write_bytes(broken)
        result = tool("documents", path)
        if result.returncode == 0:  # a bit that says nothing about the text, such as one of the statistics
            assert documents_in(result.stdout) == texts, place
        else:
            refused += 1
            assert result.returncode == 2 and str(path) in result.stderr, (place, result.stderr)
    assert refused > 45  # pages are most of the file, and each has a checksum


def test_source_folders_give_one_document_a_file():
    package = pathlib.Path(json.__file__).parent
    files = sorted((p for p in package.rglob("*.py") if p.stat().st_size), key=lambda p: p.relative_to(package).as_posix())
    assert documents_of(package, "extension=.py") == [p.read_bytes().decode() for p in files]


def test_memory_stays_bounded_by_a_parquet_page_not_a_row_group(tmp_path):
    path = tmp_path / "a.parquet"
    rows = [f"row {i} " + "some text " * 1000 for i in range(31_000)]
    pq.write_table(pa.table({"text": rows}), path, row_group_size=len(rows), compression="zstd", use_dictionary=False)
    assert pq.ParquetFile(path).metadata.num_row_groups == 1
    documents, size, peak_kib = map(int, tool("count", path).stdout.split())
    assert documents == len(rows)
    assert size == sum(map(len, rows)) > 300e6
    assert peak_kib < 128 * 1024


QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def test_cuts_fall_on_boundaries_of_the_pre_split(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    normalize = tokenizers.normalizers.NFC().normalize_str
    split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(QWEN2), "isolated").pre_tokenize_str

    def words(text):
        return [word for word, _ in split(normalize(text))]

    generator = random.Random(3)
    alphabet = ["a", "bc", " ", "  ", "\n", "\n", "\r\n", "\t", "\u00a0", "\u3000", "\u2028", "7", "!", "'s", "'", "e", "\u0301", "名"]
    path = tmp_path / "a.jsonl"
    texts = ["x" + "".join(generator.choices(alphabet, k=1000)) for _ in range(100)]
    path.write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    good = bad = 0
    for line, text in zip(tool("documents", path, "piece=128").stdout.splitlines(), texts, strict=True):
        pieces = [bytes.fromhex(piece) for piece in line.split(" ")]
        assert b"".join(pieces).decode() == text
        merged = pieces[:1]
        for piece in pieces[1:]:
            after_line = merged[-1].endswith(b"\n") and re.match(rb"[!-~]", piece)
            after_word = re.search(rb"[!-~]$", merged[-1]) and re.match(rb" [!-~]", piece)
            if after_line or after_word:
                merged.append(piece)
                good += 1
            else:  # no boundary within reach, so a word may be cut
                merged[-1] += piece
                bad += 1
        assert [word for piece in merged for word in words(piece.decode())] == words(text)
    assert good > 1000 and bad < good / 10


def read_shards(folder, split):
    """Reads shards as llm.c does, and checks their identity."""
    identity = json.loads((folder / f"{split}.json").read_text())
    parts = []
    for shard in identity["shards"]:
        header = np.fromfile(folder / shard["file"], "<i4", 256)
        kind = {(20240520, 1): "<u2", (20240801, 7): "<u4"}[header[0], header[1]]
        parts.append(np.fromfile(folder / shard["file"], kind, offset=1024))
        assert header[2] == len(parts[-1]) == shard["tokens"]
    tokens = np.concatenate(parts)
    assert len(tokens) == identity["tokens"]
    return identity, tokens.astype(np.int64)


@pytest.mark.parametrize("wide", [0, 1])
def test_shards_hold_every_document_once(texts, tmp_path, wide):
    source = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": texts}), source)
    folder = tmp_path / "shards"
    result = tool("build", source, folder, "documents=25", "shard_tokens=10000", f"wide={wide}")
    assert result.returncode == 0, result.stderr
    found = {}
    for split in ("train", "val"):
        identity, tokens = read_shards(folder, split)
        ends = np.flatnonzero(tokens == 256)
        found[split] = [bytes(d.astype(np.uint8)[:-1]).decode() for d in np.split(tokens, ends + 1)[:-1]]
        assert identity["documents"] == len(found[split])
        assert identity["text_bytes"] == sum(len(d.encode()) for d in found[split])
        assert identity["sources"][0]["bytes"] == source.stat().st_size
    assert len(found["val"]) == 25
    held_out = set(found["val"])
    assert found["train"] == [t for t in texts if t not in held_out]
    assert found["val"] == [t for t in texts if t in held_out]


def test_batches_are_windows_of_the_shards(texts, tmp_path):
    source = tmp_path / "a.jsonl"
    source.write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    folder = tmp_path / "shards"
    assert tool("build", source, folder, "shard_tokens=5000").returncode == 0
    _, tokens = read_shards(folder, "train")
    ring = np.concatenate([tokens, tokens])
    windows = {tuple(ring[i : i + 65]) for i in range(len(tokens))}
    for step in (0, 1, 10**9):
        result = tool("batch", folder, step, "batch=8", "context=64", "seed=3")
        rows = [tuple(map(int, line.split())) for line in result.stdout.splitlines()]
        assert len(rows) == 8
        assert all(row in windows for row in rows)
