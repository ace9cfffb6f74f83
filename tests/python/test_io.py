"""Safetensors files of prism/io against the `safetensors` package: theirs read by ours, ours by theirs."""

import functools
import json
import math
import random
import re
import struct

import pytest
from program import run_tool

safetensors = pytest.importorskip("safetensors")
torch = pytest.importorskip("torch")
from safetensors.torch import load_file, save, save_file  # noqa: E402

tool = functools.partial(run_tool, "io/safetensors_tool")
DTYPES = {
    torch.bool: "BOOL", torch.uint8: "U8", torch.int8: "I8", torch.float8_e5m2: "F8_E5M2", torch.float8_e4m3fn: "F8_E4M3",
    torch.int16: "I16", torch.uint16: "U16", torch.float16: "F16", torch.bfloat16: "BF16", torch.int32: "I32",
    torch.uint32: "U32", torch.float32: "F32", torch.complex64: "C64", torch.float64: "F64", torch.int64: "I64",
    torch.uint64: "U64",
}  # fmt: skip
SHAPES = [[], [1], [0], [3], [2, 5], [4, 0, 2], [1, 2, 3, 4]]


def random_tensors(generator, count):
    tensors = {}
    for i in range(count):
        dtype = generator.choice(list(DTYPES))
        shape = generator.choice(SHAPES)
        data = generator.randbytes(dtype.itemsize * math.prod(shape))
        if dtype == torch.bool:
            data = bytes(byte & 1 for byte in data)
        name = generator.choice(["layer.{}.weight", "état {}", 'quote"{}', "tab\t{}", "名前{}", "\x7f{}", "\U0001f600{}"])
        flat = torch.frombuffer(bytearray(data), dtype=dtype) if data else torch.empty(0, dtype=dtype)
        tensors[name.format(i)] = flat.reshape(shape)
    return tensors


def bytes_of(tensor):
    return tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def as_dumped(tensors):
    return {
        name: {"dtype": DTYPES[t.dtype], "shape": list(t.shape), "data": bytes_of(t).hex()} for name, t in tensors.items()
    }


@pytest.mark.parametrize("seed", range(8))
def test_we_read_what_the_package_writes(tmp_path, seed):
    tensors = random_tensors(random.Random(seed), 40)
    metadata = {"format": "pt", "note": 'a "quoted" 名'}
    (tmp_path / "theirs").write_bytes(save(tensors, metadata))
    result = tool("dump", tmp_path / "theirs")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == {"metadata": metadata, "tensors": as_dumped(tensors)}


def without_hash(data):
    """Returns the file without the hash that we add to the metadata."""
    end = 8 + struct.unpack("<Q", data[:8])[0]
    header, count = re.subn(rb',"xxh3":"[0-9a-f]{32}"', b"", data[8:end].rstrip(b" "))
    assert count == 1
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header + data[end:]


@pytest.mark.parametrize("seed", range(8))
def test_our_files_equal_the_package_s_byte_for_byte(tmp_path, seed):
    theirs = save(random_tensors(random.Random(seed), 40), {"format": "pt"})
    (tmp_path / "theirs").write_bytes(theirs)
    result = tool("rewrite", tmp_path / "theirs", tmp_path / "ours")
    assert result.returncode == 0, result.stderr
    assert without_hash((tmp_path / "ours").read_bytes()) == theirs


def test_the_package_reads_what_we_write(tmp_path):
    tensors = {
        "a.weight": torch.randn(7, 3, generator=torch.Generator().manual_seed(0)),
        "b.half": torch.arange(5).to(torch.bfloat16),
        "c.empty": torch.zeros(0, 4, dtype=torch.float64),
        "d.scalar": torch.tensor(41, dtype=torch.int64),
        "e.mask": torch.tensor([True, False, True]),
    }
    save_file(tensors, tmp_path / "theirs")
    assert tool("rewrite", tmp_path / "theirs", tmp_path / "ours").returncode == 0
    loaded = load_file(tmp_path / "ours")
    assert loaded.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert loaded[name].dtype == tensor.dtype and torch.equal(loaded[name], tensor), name
    with safetensors.safe_open(tmp_path / "ours", "pt") as file:
        assert file.metadata().keys() == {"format", "xxh3"} and file.metadata()["format"] == "pt"


def mutate(generator, data):
    data = bytearray(data)
    for _ in range(generator.randint(1, 2)):
        kind = generator.choice([0, 0, 0, 1, 2, 3])
        at = generator.randrange(len(data))
        if kind == 0:
            data[at] ^= 1 << generator.randrange(8)
        elif kind == 1:
            del data[at : at + generator.randint(1, 4)]
        elif kind == 2:
            data[at:at] = generator.choice([b"0", b"9", b'"', b",", b"[", b"}", b" ", b"\x00", b"-1", b'"a":'])
        else:
            digits = [i for i, byte in enumerate(data) if 48 <= byte <= 57]
            data[generator.choice(digits)] = generator.randint(48, 57)
    return bytes(data)


def test_what_we_accept_the_package_accepts_with_the_same_content(tmp_path):
    """Ours is the stricter reader (duplicate keys, unknown fields), so acceptance must imply theirs."""
    generator = random.Random(0)
    accepted = refused = 0
    for i in range(300):
        data = mutate(generator, save(random_tensors(generator, generator.randint(1, 3)), {"k": "v"}))
        path = tmp_path / str(i)
        path.write_bytes(data)
        result = tool("dump", path)
        if result.returncode == 0:
            accepted += 1
            theirs = {name: (t["dtype"], list(t["shape"]), bytes(t["data"]).hex()) for name, t in safetensors.deserialize(data)}
            ours = json.loads(result.stdout)["tensors"]
            assert {name: (t["dtype"], t["shape"], t["data"]) for name, t in ours.items()} == theirs
        else:
            refused += 1
            assert result.returncode == 2 and result.stderr.startswith(f"{path}: "), result.stderr
    assert accepted > 10 and refused > 100  # else the mutations show nothing


@pytest.mark.parametrize(
    "header, message",
    [
        ('{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}', "twice"),
        ('{"__metadata__":{"a":"1","a":"2"}}', "twice"),
    ],
)
def test_duplicate_keys_which_the_package_accepts_are_refused(tmp_path, header, message):
    data = struct.pack("<Q", len(header)) + header.encode()
    safetensors.deserialize(data)
    (tmp_path / "file").write_bytes(data)
    result = tool("dump", tmp_path / "file")
    assert result.returncode == 2 and message in result.stderr
