"""The command line from outside: help, exit statuses, one clear line for every mistake, and nothing left behind."""

import gzip
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import struct
import subprocess

import pytest
from cli_mistakes import COMMANDS, GROUPS, MISTAKES, SMALL
from program import ENVIRONMENT, ROOT, TIMEOUT, run, start, wait_until, without_progress


def make_shards(folder, corpus, tokenizer):
    run("data", "build", corpus, "--tokenizer", tokenizer, "--held-out", "0.3", "--out", folder)


def make_models(names, path):
    settings = ["data.vocab=300", "model.layers=1", "model.width=16", "model.mlp=16", "train.batch=2", "train.context=8", "data.held_out=0.3"]
    words = f"--out {{run}} --set data.path={{corpus}} {SMALL}".split() + [word for text in settings for word in ("--set", text)]
    names["run"] = path("run")
    run("train", *(word.format(**names) for word in words))
    names["empty_run"] = path("empty_run")
    (names["empty_run"] / "checkpoints").mkdir(parents=True)
    names["damaged_run"] = path("damaged_run")
    shutil.copytree(names["run"], names["damaged_run"])
    names["run_with_bad_metrics"] = path("run_with_bad_metrics")
    names["run_with_bad_metrics"].mkdir()
    lines = (names["run"] / "metrics.jsonl").read_text().splitlines()
    (names["run_with_bad_metrics"] / "metrics.jsonl").write_text(lines[0] + "\n" + lines[1][:20] + "\n")
    weights = names["damaged_run"] / "checkpoints/step-00000002/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4])
    for kind in ("foreign_model", "broken_model", "model_without_weights"):
        names[kind] = path(kind)
        run("export", names["run"], "--out", names[kind])
    config = names["foreign_model"] / "config.json"
    config.write_text(config.read_text().replace("Qwen2ForCausalLM", "LlamaForCausalLM"))
    (names["broken_model"] / "config.json").write_text('{"architectures": [')
    (names["model_without_weights"] / "model.safetensors").unlink()


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Returns good and bad files by name."""
    root = tmp_path_factory.mktemp("places")

    def path(name, content=None):
        if isinstance(content, str):
            content = content.encode()
        if content is not None:
            (root / name).write_bytes(content)
        return root / name

    sentence = "The quick brown fox jumps over the lazy dog, again and again; sphinx of black quartz, judge my vow! "
    corpus = path("corpus")
    corpus.mkdir()
    for i in range(6):
        (corpus / f"{i}.txt").write_text(sentence * (20 + i) + str(i))
    path("folder").mkdir()
    names = {
        "missing": path("missing"),
        "folder": path("folder"),
        "empty": path("empty", b""),
        "binary": path("binary.dat", bytes(range(256)) * 64),
        "text": path("text.txt", sentence * 50),
        "json": path("some.json", '{"a": [1, 2]}'),
        "other_device": path("other_device.json", '{"device": "Some GPU"}'),
        "jsonl": path("docs.jsonl", '{"text": "one"}\n{"text": "two"}\n'),
        "broken_jsonl": path("broken.jsonl", '{"text": "one"}\n{"text": \n'),
        "broken_toml": path("broken.toml", "[train]\nstpes = 3\n"),
        "corrupt": path("corrupt.txt.gz", gzip.compress(sentence.encode() * 50)[:-9]),
        "foreign_parquet": path("foreign.parquet", b"PAR1 but nothing of the kind"),
        "ids": path("ids.txt", "1 2 3\n"),
        "large_id": path("large.txt", "1 2 300\n"),
        "huge_id": path("huge.txt", "9" * 40),
        "odd": path("odd.bin", b"\x01\x00\x02"),
        "corpus": corpus,
        "tokenizer": path("tokenizer.json"),
        "foreign_tokenizer": path("foreign.json"),
        "no_end": path("no_end.json"),
    }
    run("tokenizer", "train", corpus, "--vocab", 300, "--out", names["tokenizer"])
    run("tokenizer", "train", names["text"], "--vocab", 280, "--out", names["foreign_tokenizer"])
    run("tokenizer", "train", corpus, "--vocab", 300, "--special", "<end>", "--out", names["no_end"])
    for kind in ("shards", "foreign_shards", "truncated_shards", "flipped_shards", "shards_without_val_bin", "shards_with_broken_identity"):
        names[kind] = path(kind)
        make_shards(names[kind], corpus, names["tokenizer"])
    (names["foreign_shards"] / "tokenizer.json").write_bytes(names["foreign_tokenizer"].read_bytes())
    shard = names["truncated_shards"] / "train_000000.bin"
    shard.write_bytes(shard.read_bytes()[:-2])
    shard = names["flipped_shards"] / "train_000000.bin"
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    (names["shards_without_val_bin"] / "val_000000.bin").unlink()
    make_models(names, path)
    (names["shards_with_broken_identity"] / "train.json").write_text('{"format": "something"}')
    return names


def contents(*folders):
    """Returns everything in the folders, with sizes and times of change."""
    found = {}
    for folder in folders:
        for path in sorted(pathlib.Path(folder).rglob("*")):
            status = path.lstat()
            found[str(path)] = (status.st_size, status.st_mtime_ns) if path.is_file() else None
    return found


def refused(command, arguments, message, folder):
    """Runs in `folder` without standard input; expects status 2 and one line."""
    output, errors = run(*command.split(), *arguments, status=2, cwd=folder, stdin=subprocess.DEVNULL)
    errors = without_progress(errors)
    assert output == ""
    assert errors.count("\n") == 1 and errors.endswith("\n"), errors
    assert errors.startswith(f"prism {command}: "), errors
    assert "terminate" not in errors and "what()" not in errors and "Exception raised" not in errors, errors
    assert re.search(message, errors), errors


@pytest.mark.parametrize(
    "command, arguments, message", [(command, *row) for command, rows in MISTAKES.items() for row in rows],
    ids=lambda value: str(value) or "nothing",
)  # fmt: skip
def test_a_mistake_is_one_clear_line_and_leaves_nothing_behind(places, tmp_path, command, arguments, message):
    work = tmp_path / "work"
    work.mkdir()
    root = places["text"].parent
    before = contents(root, work)
    words = [word.format(new=work / "new", **places) for word in arguments.split()]
    refused(command, words, message, work)
    assert contents(root, work) == before


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_refuses_options_it_does_not_know(command, tmp_path):
    refused(command, ["--frobnicate"], "unknown option '--frobnicate'", tmp_path)
    refused(command, ["--hlep"], "unknown option '--hlep'; did you mean '--help'", tmp_path)
    refused(command, ["-z"], "unknown option '-z'", tmp_path)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command):
    output, errors = run(*command.split(), "--help")
    assert errors == ""
    assert f"Usage: prism {command} " in output
    example = output[output.index("Example:") :]
    assert f"prism {command}" in example
    assert max(map(len, output.splitlines())) <= 80, output


def test_no_arguments_show_the_help_of_all_commands():
    output, _ = run()
    assert output == run("--help")[0]
    for command in COMMANDS:
        assert re.search(rf"^  {command.split()[0]} ", output, re.MULTILINE)
    assert max(map(len, output.splitlines())) <= 80, output


@pytest.mark.parametrize("group", GROUPS)
def test_the_help_of_a_group_fits_in_80_columns(group):
    output, _ = run(group, "--help")
    assert max(map(len, output.splitlines())) <= 80, output


def test_an_empty_folder_name_is_refused(tmp_path):
    for command in ("train", "compare"):
        refused(command, ["--out", ""], "--out: run.out: expected a string, not empty, got", tmp_path)


def completed(script, line):
    """Returns what bash offers for the line, whose last word is being typed."""
    words = re.findall(r"[^\s=]+|=", line) + ([""] if line.endswith((" ", "=")) else [])
    code = f"""source {script}
        COMP_WORDS=({" ".join(map(shlex.quote, words))}) COMP_CWORD={len(words) - 1}
        _prism; printf '%s\\n' "${{COMPREPLY[@]}}" """
    result = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    assert result.stderr == ""
    return result.stdout.split()


def test_bash_completes_commands_options_files_keys_and_their_values(tmp_path):
    script = tmp_path / "prism.bash"
    script.write_text(run("completions", "bash")[0])
    assert completed(script, "prism tr") == ["train"]
    assert set(completed(script, "prism ")) >= {command.split()[0] for command in COMMANDS}
    assert completed(script, "prism tokenizer ")[:4] == ["train", "encode", "decode", "info"]
    assert completed(script, "prism train --d") == ["--dry-run"]
    assert completed(script, "prism export runs --dtype ") == ["float32", "bfloat16"]
    assert completed(script, "prism train --set train.st") == ["train.steps="]
    assert set(completed(script, "prism train --set schedule.kind=")) == {"constant", "cosine", "linear", "wsd"}
    assert completed(script, "prism train --set schedule.kind=co") == ["constant", "cosine"]
    assert completed(script, f"prism train --config {tmp_path}/pri") == [str(script)]
    assert completed(script, f"prism inspect {tmp_path}/pri") == [str(script)]
    assert completed(script, "prism completions f") == ["fish"]
    for command in COMMANDS:  # completion offers exactly what the help lists
        offered = [word for word in completed(script, f"prism {command} --") if word.startswith("--")]
        listed = re.findall(r"^  (?:-h,)?(--[a-z-]+)", run(*command.split(), "--help")[0], re.MULTILINE)
        assert sorted(offered) == sorted(listed), command


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completions_are_valid_scripts(shell, tmp_path):
    script = tmp_path / "script"
    script.write_text(run("completions", shell)[0])
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    result = subprocess.run([shell, "-n", script], capture_output=True, text=True, check=False)
    assert result.returncode == 0 and result.stderr == ""


def test_help_is_a_command_too():
    assert run("help") == run("--help")
    assert run("help", "tokenizer", "train") == run("tokenizer", "train", "--help")
    for group, words in (("", ["help", "trian"]), ("", ["trian", "--help"]), (" tokenizer", ["help", "tokenizer", "trian"])):
        output, errors = run(*words, status=2)
        assert output == "" and errors == f"prism{group}: unknown command 'trian'; did you mean 'train'? (see prism{group} --help)\n"


def test_whole_numbers_are_integers_in_any_spelling(places):
    generated = [run("generate", places["run"], "--temperature", 0, "--tokens", tokens)[0] for tokens in ("10", "1e1", "10.0")]
    assert len(set(generated)) == 1
    _, errors = run("generate", places["run"], "--tokens", "1.5", status=2)
    assert "--tokens: expected an integer, 1 or more, got '1.5'" in errors


def test_a_folder_that_cannot_be_read_is_named(places, tmp_path):
    corpus = tmp_path / "corpus"
    (corpus / "closed").mkdir(parents=True)
    (corpus / "open.txt").write_text("text")
    (corpus / "closed").chmod(0)
    # Root may read everything, so run the program as another user.
    options = {"user": 65534} if os.geteuid() == 0 else {}
    tmp_path.chmod(0o777)  # for what it writes
    for folder in [corpus, *list(corpus.parents)[:3]]:
        folder.chmod(folder.stat().st_mode | 0o555)
    try:
        tokenizer = shutil.copy(places["tokenizer"], tmp_path / "tokenizer.json")
        process = start("data", "build", corpus, "--tokenizer", tokenizer, "--out", tmp_path / "new", **options)
    except PermissionError:
        pytest.skip("somebody else may not run the program")
    _, errors = process.communicate(timeout=TIMEOUT)
    (corpus / "closed").chmod(0o755)
    if process.returncode == 127:
        pytest.skip("somebody else may not load torch")
    assert process.returncode == 2 and f"{corpus / 'closed'}: cannot read: Permission denied" in errors, errors


def test_a_checkpoint_is_shown_with_its_step(places):
    checkpoint = places["run"] / "checkpoints/step-00000002"
    output, _ = run("inspect", checkpoint)
    assert output.splitlines()[0] == f"{checkpoint}  step 2"
    output, _ = run("inspect", checkpoint, "--data", places["corpus"], "--matrix", "layers.0.mlp.up_proj")
    assert "model.layers.0.mlp.up_proj.weight, step 3\n" in output


def test_tables_of_a_checkpoint_fit_80_columns(places):
    output, _ = run("inspect", places["run"] / "checkpoints/step-00000002", "--data", places["corpus"])
    tables = output.splitlines()[1:]  # the first line is the path
    assert "weights σ max  min" in output and "gain 10 %" in output
    assert max(map(len, tables)) <= 80, output


def test_every_command_of_the_program_has_rows_of_mistakes():
    def names(output):
        commands = output[output.index("Commands:") :].splitlines()[1:]
        return [line.split()[0] for line in commands[: commands.index("")]]

    found = []
    for name in names(run("--help")[0]):
        found += [f"{name} {sub}" for sub in names(run(name, "--help")[0])] if name in GROUPS else [name]
    assert sorted(found) == sorted(COMMANDS) == sorted(MISTAKES)


def test_the_version_is_that_of_the_project():
    version = re.search(r"project\(Prism VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
    assert run("--version")[0] == f"prism {version}\n"


def test_an_unknown_command_is_answered_with_the_nearest():
    output, errors = run("tokeniser", status=2)
    assert errors == "prism: unknown command 'tokeniser'; did you mean 'tokenizer'? (see prism --help)\n"
    _, errors = run("tokenizer", "trian", status=2)
    assert errors == "prism tokenizer: unknown command 'trian'; did you mean 'train'? (see prism tokenizer --help)\n"
    _, errors = run("zzzzzz", status=2)
    assert errors == "prism: unknown command 'zzzzzz' (see prism --help)\n"
    _, errors = run("data", status=2)
    assert errors == "prism data: expected one of: build, info (see prism data --help)\n"


def test_a_full_disk_is_a_failure_and_not_a_mistake(places):
    with open("/dev/full", "w") as full:
        for command, *arguments in (
            ("tokenizer encode", places["tokenizer"], places["text"]),
            ("tokenizer info", places["tokenizer"]),
            ("data info", places["shards"]),
            ("eval", places["run"], places["text"], "--json"),
            ("inspect", places["run"]),
            ("completions", "bash"),
            ("train", "--list-keys"),
            ("train", "--dry-run", "--out", places["folder"], "--set", f"data.path={places['shards']}", *SMALL.split()),
            ("train", "--help"),
            ("", "--version"),
            ("",),
        ):
            _, errors = run(*command.split(), *arguments, status=1, stdout=full)
            assert errors == f"prism {command}".strip() + ": standard output: cannot write: the disk is full\n"


@pytest.mark.parametrize("arguments", ["--help", "train --list-keys", "completions bash"])
@pytest.mark.parametrize("ignored", [True, False])
def test_a_reader_that_has_gone_is_no_error(arguments, ignored):
    ours, theirs = os.pipe()
    os.close(ours)
    handler = signal.SIG_IGN if ignored else signal.SIG_DFL
    with os.fdopen(theirs, "w") as gone:
        process = start(*arguments.split(), stdout=gone, preexec_fn=lambda: signal.signal(signal.SIGPIPE, handler))
        _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == (0 if ignored or "train" in arguments else -signal.SIGPIPE) and errors == ""


def test_shards_do_not_replace_the_tokenizer_of_a_run_or_a_model(places, tmp_path):
    run("tokenizer", "train", places["text"], "--vocab", "258", "--out", tmp_path / "tokenizer.json")
    before = (tmp_path / "tokenizer.json").read_bytes()
    arguments = ["data", "build", places["text"], "--tokenizer", places["tokenizer"], "--out", tmp_path]
    _, errors = run(*arguments, status=2)
    assert f"{tmp_path}/tokenizer.json: expected no tokenizer or the one of --tokenizer" in errors and "(--out)" in errors
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.json"] and (tmp_path / "tokenizer.json").read_bytes() == before


def test_encode_and_decode_are_inverse_in_every_format(places, tmp_path):
    text = "Früh übt sich, wer 😀 heißt\n\n  again\t<|endoftext|> and the end"
    tokenizer = places["tokenizer"]
    expected = None
    for form in ("text", "json", "binary"):
        with open(tmp_path / "in", "w") as file:
            file.write(text)
        run("tokenizer", "encode", tokenizer, tmp_path / "in", "--format", form, "--out", tmp_path / form)
        ids = (tmp_path / form).read_bytes()
        if form == "binary":
            ids = list(struct.unpack(f"<{len(ids) // 2}H", ids))
        else:
            ids = json.loads(ids) if form == "json" else [int(word) for word in ids.split()]
        expected = expected or ids
        assert ids == expected and 299 in ids
        reading = "binary" if form == "binary" else "text"
        assert run("tokenizer", "decode", tokenizer, tmp_path / form, "--format", reading)[0] == text
    plain = run("tokenizer", "encode", tokenizer, tmp_path / "in", "--specials", "text")[0].split()
    assert "299" not in plain and len(plain) > len(expected)
    without = run("tokenizer", "decode", tokenizer, tmp_path / "json", "--skip-special")[0]
    assert without == text.replace("<|endoftext|>", "")


def test_encode_reads_standard_input_and_files_longer_than_a_piece(places, tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    text = "".join(f"line {i}: the dog, and again 日本語 é\u0301\n\n\n" for i in range(80000))
    assert len(text.encode()) > 3 << 20
    theirs = tokenizers.Tokenizer.from_file(str(places["tokenizer"])).encode(text).ids
    (tmp_path / "long.txt.gz").write_bytes(gzip.compress(text.encode()))
    ours, _ = run("tokenizer", "encode", places["tokenizer"], tmp_path / "long.txt.gz", "--format", "json")
    assert json.loads(ours) == theirs
    process = start("tokenizer", "encode", places["tokenizer"], "-", stdin=subprocess.PIPE)
    output, _ = process.communicate(text)
    assert list(map(int, output.split())) == theirs
    back = start("tokenizer", "decode", places["tokenizer"], stdin=subprocess.PIPE)
    assert back.communicate(output)[0] == text


def test_tokenizer_info_shows_what_the_file_holds(places):
    output, _ = run("tokenizer", "info", places["tokenizer"], "--text", "the\tdog<|endoftext|>")
    assert re.search(r"^vocabulary +300 tokens$", output, re.MULTILINE)
    assert re.search(r"^hash +[0-9a-f]{32}$", output, re.MULTILINE)
    assert re.search(r'^special +299 "<\|endoftext\|>"$', output, re.MULTILINE)
    assert '"\\t"' in output and '"<|endoftext|>"' in output


def test_data_info_shows_both_splits_and_verifies(places):
    output, _ = run("data", "info", places["shards"], "--verify")
    for split in ("train", "val"):
        identity = json.loads((places["shards"] / f"{split}.json").read_text())
        assert re.search(rf"^{split} +{identity['tokens']:,} tokens in 1 shard$", output, re.MULTILINE)
        assert f"{identity['documents']} documents" in output
    assert "The quick brown fox" in output
    assert re.search("^verified ", output, re.MULTILINE)
    shard, _ = run("data", "info", places["shards"] / "train_000000.bin")
    tokens = json.loads((places["shards"] / "train.json").read_text())["tokens"]
    assert re.match(rf"shard +{tokens:,} tokens", shard), shard


def test_one_document_is_not_called_documents(places, tmp_path):
    built, _ = run("data", "build", places["text"], "--tokenizer", places["tokenizer"], "--out", tmp_path / "shards")
    shown, _ = run("data", "info", tmp_path / "shards")
    for output in (built, shown):
        assert output.count("1 document,") == 2 and "1 documents" not in output, output


def test_a_build_that_fails_keeps_the_old_shards(places, tmp_path):
    make_shards(tmp_path / "data", places["corpus"], places["tokenizer"])
    before = contents(tmp_path)
    arguments = [places["corpus"], places["broken_jsonl"], "--tokenizer", places["tokenizer"], "--out", tmp_path / "data"]
    refused("data build", map(str, arguments), "broken.jsonl line 2", tmp_path)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_build_leaves_nothing_behind(places, tmp_path, signal_number):
    (tmp_path / "big").mkdir()
    line = "the quick brown fox jumps over the lazy dog again and again\n"
    for i in range(4):
        (tmp_path / "big" / f"{i}.txt").write_text(str(i) + line * 400_000)
    work = tmp_path / "work"
    work.mkdir()
    process = start("data", "build", tmp_path / "big", "--tokenizer", places["tokenizer"], "--out", work / "data", "--workers", "1")
    wait_until(lambda: list(work.glob("data/train_*.tmp")), process)
    process.send_signal(signal_number)
    output, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 1, errors
    assert errors.splitlines()[-1] == "prism data build: interrupted; nothing was written" and output == ""
    assert contents(work) == {}


def test_the_doctor_finds_this_machine_usable():
    output, errors = run("doctor")
    assert errors == "" and "Prism can train here" in output
    for line in ("torch", "processor", "float32", "bfloat16", "threads", "CUDA", "memory", "disk", "results", "terminal"):
        assert re.search(rf"^ *(ok|warning)  {line} ", output, re.MULTILINE), line
    assert "\x1b" not in output


@pytest.mark.gpu
def test_the_doctor_counts_the_gpus_and_says_when_they_are_hidden():
    output, _ = run("doctor")
    assert re.search(r"^ *ok  CUDA +[1-9]\d* devices?\b.*; (kernels for compute capability 9\.0|portable kernels)$", output, re.MULTILINE), output
    output, _ = run("doctor", env={**ENVIRONMENT, "CUDA_VISIBLE_DEVICES": ""})
    assert re.search(r"^warning  CUDA +this torch has CUDA, but no device can be used", output, re.MULTILINE), output
    assert "CUDA_VISIBLE_DEVICES" in output


def test_mpirun_with_a_build_without_mpi_is_refused(tmp_path):
    if "no MPI" not in run("doctor")[0]:
        pytest.skip("this build has MPI")
    _, errors = run("train", "--out", tmp_path / "run", status=2, env={**ENVIRONMENT, "OMPI_COMM_WORLD_SIZE": "2"})
    assert "mpirun started several processes, but this build has no MPI; install libopenmpi-dev and build again" in errors


def test_the_doctor_says_what_stops_training(places):
    output, _ = run("doctor", "--out", places["text"], status=1)
    assert re.search(r"^problem  results +\S*text.txt is not a folder$", output, re.MULTILINE)
    assert "1 problem found; training will fail until it is fixed." in output


def test_the_doctor_advises_on_threads_and_locale():
    environment = {**ENVIRONMENT, "OMP_NUM_THREADS": "1", "LC_ALL": "C"}
    output, _ = run("doctor", env=environment)
    assert "export LANG=C.UTF-8" in output
    if (os.cpu_count() or 1) > 1:
        assert "unset OMP_NUM_THREADS" in output
