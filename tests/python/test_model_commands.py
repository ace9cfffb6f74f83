"""`prism export` and `prism generate` on runs, checkpoints and Hugging Face folders."""

import os
import shutil
import subprocess

import pytest

pytest.importorskip("transformers")
import tokenizers  # noqa: E402
import torch  # noqa: E402
from hf_models import END_OF_TEXT, chain_model, random_model, save, tool, train_tokenizer  # noqa: E402
from program import TIMEOUT, run, start  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402


@pytest.fixture(scope="module")
def tokenizer_file(tmp_path_factory):
    return train_tokenizer(tmp_path_factory.mktemp("tokenizer") / "tokenizer.json")


@pytest.fixture(scope="module")
def made(tmp_path_factory, tokenizer_file):
    """A run with two checkpoints, and the newer one's model as a Hugging Face folder."""
    folder = tmp_path_factory.mktemp("made")
    save(random_model(rms_norm_eps=1e-5), tokenizer_file, folder / "old")
    save(random_model(), tokenizer_file, folder / "hf")
    tool("checkpoint", folder / "old", folder / "run", 10)
    tool("checkpoint", folder / "hf", folder / "run", 20)
    return folder


@pytest.fixture
def folder(made, tmp_path):
    shutil.copytree(made, tmp_path / "made")
    return tmp_path / "made"


def damage(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


GREEDY = ["--temperature", "0", "--tokens", "24"]


def test_export_takes_the_newest_checkpoint_of_a_run(folder, tmp_path):
    output, errors = run("export", folder / "run", "--out", f"{tmp_path}/new/hf/")
    assert "step-00000020" in output and not errors
    written, expected = load_file(tmp_path / "new/hf/model.safetensors"), load_file(folder / "hf/model.safetensors")
    assert written.keys() == expected.keys() and all(torch.equal(written[name], expected[name]) for name in expected)
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "new/hf").dtype == torch.float32


def test_export_takes_a_checkpoint_and_a_type(folder, tmp_path):
    run("export", folder / "run/checkpoints/step-00000010", "--out", tmp_path / "hf", "--dtype", "bfloat16")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "hf")
    assert model.dtype == torch.bfloat16 and model.config.rms_norm_eps == 1e-5


def test_a_damaged_checkpoint_is_skipped_and_named(folder, tmp_path):
    damage(folder / "run/checkpoints/step-00000020/model.safetensors")
    output, errors = run("export", folder / "run", "--out", tmp_path / "hf")
    assert "step-00000010" in output and "skipped" in errors and "step-00000020" in errors
    damage(folder / "run/checkpoints/step-00000010/model.safetensors")
    _, errors = run("export", folder / "run", "--out", tmp_path / "none", status=2)
    assert "expected a valid checkpoint" in errors and "model.safetensors" in errors
    assert not (tmp_path / "none").exists()


def test_greedy_text_is_that_of_transformers_from_every_source(folder):
    tokenizer, model = AutoTokenizer.from_pretrained(folder / "hf"), AutoModelForCausalLM.from_pretrained(folder / "hf")
    prompt = "import torch\n"
    ids = torch.tensor([tokenizer(prompt)["input_ids"]])
    theirs = model.generate(ids, max_new_tokens=24, do_sample=False, eos_token_id=None, pad_token_id=0)
    text = tokenizer.decode(theirs[0], skip_special_tokens=False)
    assert END_OF_TEXT not in text
    for source in ["hf", "run", "run/checkpoints/step-00000020"]:
        output, _ = run("generate", folder / source, "--prompt", prompt, *GREEDY)
        assert output == text + "\n" * (not text.endswith("\n"))
    output, _ = run("generate", folder / "run", "--prompt", prompt, "--no-prompt", *GREEDY)
    assert output == text.removeprefix(prompt) + "\n" * (not text.endswith("\n"))


def test_a_seed_decides_the_text(folder):
    def text(*options):
        return run("generate", folder / "run", "--prompt", "def", "--tokens", "40", *options)[0]

    assert text("--seed", "3") == text("--seed", "3") != text("--seed", "4")
    assert text("--top-k", "1") == text("--temperature", "0") == text("--top-p", "1e-9")
    assert text() == text("--seed", "0", "--temperature", "1", "--top-k", "0", "--top-p", "1")


def byte_tokens(tokenizer_file, data):
    tokenizer = tokenizers.Tokenizer.from_file(str(tokenizer_file))
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    character = {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    return [tokenizer.token_to_id(character[byte]) for byte in data]


def test_characters_are_whole_and_the_end_of_text_ends_it(tokenizer_file, tmp_path):
    end = tokenizers.Tokenizer.from_file(str(tokenizer_file)).token_to_id(END_OF_TEXT)
    # A two-byte and a four-byte character, an incomplete one, a byte that starts no character, and text after the end.
    chain = [*byte_tokens(tokenizer_file, b"a\xc3\xa9\xf0\x9f\x8e\x89\xe2\x82z\xffy"), end, *byte_tokens(tokenizer_file, b"q")]
    save(chain_model(chain), tokenizer_file, tmp_path / "hf")
    output, _ = run("generate", tmp_path / "hf", "--prompt", "a", *GREEDY)
    assert output == "aé🎉\ufffdz\ufffdy\n"
    output, _ = run("generate", tmp_path / "hf", "--prompt", "a", "--temperature", "0", "--tokens", "4", "--no-prompt")
    assert output == "é\ufffd\n"  # the tokens ran out within a character


def test_the_text_may_be_longer_than_the_context(tokenizer_file, tmp_path):
    save(chain_model(byte_tokens(tokenizer_file, b"1231")), tokenizer_file, tmp_path / "hf")  # a context of 96
    output, _ = run("generate", tmp_path / "hf", "--prompt", "1" * 130, "--no-prompt", "--temperature", "0", "--tokens", "240")
    assert output == "231" * 80 + "\n"


def test_without_a_prompt_a_document_begins(tokenizer_file, tmp_path):
    end = tokenizers.Tokenizer.from_file(str(tokenizer_file)).token_to_id(END_OF_TEXT)
    save(chain_model([end, *byte_tokens(tokenizer_file, b"hi"), end]), tokenizer_file, tmp_path / "hf")
    assert run("generate", tmp_path / "hf", *GREEDY)[0] == "hi\n"


def test_standard_input_may_be_the_prompt(folder):
    prompt = "import torch\nimport"
    expected = run("generate", folder / "run", "--prompt", prompt, *GREEDY)[0]
    process = start("generate", folder / "run", *GREEDY, stdin=subprocess.PIPE)
    assert process.communicate(prompt, timeout=TIMEOUT)[0] == expected


def converse(folder, typed, *options):
    """Types each line when the program asks for one; returns what the terminal shows and the exit status."""
    ours, theirs = os.openpty()
    process = start("generate", folder, *options, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    for line in [*typed, None]:
        while not shown.endswith(b"> "):
            try:
                shown += os.read(ours, 4096)
            except OSError:  # the program has ended
                break
        if line is not None:
            os.write(ours, line)
            shown += b"|"
    process.wait(timeout=TIMEOUT)
    os.close(ours)
    return shown.decode().replace("\r", ""), process.returncode


def test_a_terminal_is_asked_for_prompts_until_it_ends(folder):
    expected = run("generate", folder / "run", "--prompt", "import torch", *GREEDY)[0]
    shown, status = converse(folder / "run", [b"import torch\n", b"def\n", b"\x04"], *GREEDY)
    assert status == 0
    assert "press Enter to begin a new one.\nCtrl-C stops the text, Ctrl-D exits.\n" in shown
    assert f"> |import torch\n{expected}> |def\n" in shown, shown
    shown, _ = converse(folder / "run", [b"def\n", b"def\n", b"\x04"], "--tokens", "24")
    first, second = shown.split("> |def\n")[1:3]
    assert first.partition("> ")[0] != second.partition("> ")[0]  # another seed


def make_bad(folder):
    """Makes sources that must be refused."""
    (folder / "empty").mkdir()
    (folder / "file").write_bytes(b"\x00\x01")
    (folder / "no-checkpoints/checkpoints").mkdir(parents=True)
    shutil.copytree(folder / "run", folder / "no-tokenizer")
    (folder / "no-tokenizer/tokenizer.json").unlink()
    shutil.copytree(folder / "hf", folder / "llama")
    config = folder / "llama/config.json"
    config.write_text(config.read_text().replace('"qwen2"', '"llama"'))
    shutil.copytree(folder / "hf", folder / "truncated")
    weights = folder / "truncated/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    shutil.copytree(folder / "run/checkpoints/step-00000010", folder / "broken/checkpoints/step-00000010")
    damage(folder / "broken/checkpoints/step-00000010/model.safetensors")
    shutil.copytree(folder / "run", folder / "foreign")
    shutil.copytree(folder / "run/checkpoints/step-00000010", folder / "foreign/alone")


BAD_SOURCES = {
    "missing": "does not exist",
    "file": "not a folder",
    "empty": "expected a run, a checkpoint or a Hugging Face folder",
    "no-checkpoints": "expected a valid checkpoint, got none",
    "no-tokenizer": "tokenizer.json",
    "llama": '"llama"',
    "truncated": "model.safetensors",
    "broken/checkpoints/step-00000010": "model.safetensors",
    "foreign/alone": "tokenizer.json",
}
BAD_OPTIONS = [
    (["generate", "run", "--temperature", "-1"], "--temperature"),
    (["generate", "run", "--temperature", "warm"], "--temperature"),
    (["generate", "run", "--top-p", "0"], "--top-p: expected a number above 0, got 0"),
    (["generate", "run", "--top-k", "-1"], "--top-k"),
    (["generate", "run", "--tokens", "0"], "--tokens"),
    (["generate", "run", "--device", "tpu"], "tpu"),
    (["generate"], "source"),
    (["export", "run"], "--out"),
    (["export", "run", "--out", "hf"], "expected a new or empty folder"),
    (["export", "run", "--out", "file/hf"], "file/hf"),
    (["export", "run", "--out", "new", "--dtype", "int8"], "float32 or bfloat16"),
]


def test_bad_input_is_one_message_and_leaves_nothing(folder):
    make_bad(folder)
    before = sorted(map(str, folder.rglob("*")))
    cases = [([command, source], message) for source, message in BAD_SOURCES.items() for command in ["export", "generate"]]
    for arguments, message in cases + BAD_OPTIONS:
        out = ["--out", "new"] if arguments[0] == "export" and len(arguments) == 2 and arguments[1] != "run" else []
        output, errors = run(*arguments, *out, status=2, cwd=folder)
        assert message in errors and errors.count("\n") == 1 and not output, f"{arguments}: {errors}"
        assert errors.startswith(f"prism {arguments[0]}: ")
    assert sorted(map(str, folder.rglob("*"))) == before


def test_a_full_standard_output_is_a_failure(folder):
    with open("/dev/full", "w") as full:
        _, errors = run("generate", folder / "run", *GREEDY, status=1, stdout=full)
    assert "standard output" in errors
