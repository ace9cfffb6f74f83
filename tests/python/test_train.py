"""`prism train` from outside: the run folder, its data, and the guard."""

import datetime
import json
import math
import os
import re
import subprocess

import numpy
import program
import pytest
from program import ROOT, TIMEOUT, json_lines, run, start, wait_until, without_progress, without_timings
from training import STEPS, assert_same_run, cache, contents, corpus, settings, whole  # noqa: F401  fixtures


def test_a_run_folder_holds_what_the_documents_promise(whole):
    metrics = json_lines(whole / "metrics.jsonl")
    assert [line["step"] for line in metrics] == list(range(1, STEPS + 1))
    assert all(line["tokens"] == line["step"] * 4 * 16 for line in metrics)
    assert [line["step"] for line in metrics if "val_loss" in line] == [8, 16, 24]
    assert metrics[3]["lr"] == pytest.approx(0.005) and metrics[-1]["lr"] == pytest.approx(0.0005)
    assert metrics[-1]["loss"] < metrics[0]["loss"] - 0.5
    assert metrics[0]["loss"] == pytest.approx(math.log(300), rel=0.05)
    for line in metrics:
        assert {"loss", "lr", "aux_lr", "grad_norm", "batch", "seconds", "step_ms", "optimizer_ms", "tokens_per_s"} <= line.keys()

    spectra = json_lines(whole / "spectra.jsonl")
    assert {line["step"] for line in spectra} == {10, 20} and len(spectra) == 2 * 2 * 7
    for line in spectra:
        assert {"name", "singular_values", "snr", "gain", "theory", "weight_norm", "update_norm"} <= line.keys()
        assert len(line["snr"]) == len(line["gain"]) == len(line["theory"]) == len(line["augmented"])

    summary = json.loads((whole / "summary.json").read_text())
    assert summary["status"] == "finished" and summary["step"] == STEPS
    assert summary["val_loss"] == metrics[-1]["val_loss"]
    assert summary["loss"] == pytest.approx(numpy.mean([line["loss"] for line in metrics[-2:]]))
    assert summary["initial_weights"] != summary["final_weights"]
    assert {line["optimizer"] for line in summary["routing"] if line["rule"] == "hidden matrix"} == {"prism"}
    assert [path.name for path in sorted((whole / "checkpoints").iterdir())] == ["step-00000018", "step-00000021", "step-00000024"]
    assert (whole / "tokenizer.json").exists() and list(whole.glob("events.out.tfevents.*"))


def test_a_summary_says_what_it_was_measured_on_and_what_its_memory_is(whole):
    summary = json.loads((whole / "summary.json").read_text())
    machine, memory = summary["machine"], summary["memory"]
    began = datetime.datetime.fromisoformat(machine["date"])
    assert abs((datetime.datetime.now(datetime.UTC) - began).total_seconds()) < 3600
    if (ROOT / ".git").exists():
        commit = subprocess.run(["git", "rev-parse", machine["commit"].removesuffix("-dirty")], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        assert machine["commit"].removesuffix("-dirty") == commit[:12]
    else:
        assert machine["commit"] == "unknown"
    assert memory["of"] == "host" and memory["peak_bytes"] == memory["host_peak_bytes"] > 1 << 20
    assert not {"gpu", "driver", "cuda"} & machine.keys()
    page = (whole / "report.html").read_text()
    assert all(f'["{key}","{machine[key]}"]' in page for key in ("commit", "date"))


@pytest.mark.gpu
def test_on_a_gpu_a_summary_names_the_card_and_reports_its_memory(settings, tmp_path):
    run(*settings(tmp_path / "run", run__device="cuda", train__steps=6))
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    machine, memory = summary["machine"], summary["memory"]
    names = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True, check=True).stdout
    assert (machine["gpu"], machine["driver"]) == tuple(names.splitlines()[0].split(", "))
    assert re.fullmatch(r"\d+\.\d+", machine["cuda"])
    assert memory["of"] == "device" and summary["optimizer_state_bytes"] < memory["peak_bytes"] <= memory["reserved_peak_bytes"]
    assert memory["host_peak_bytes"] > memory["peak_bytes"]  # torch's CUDA libraries alone are larger than this model


def test_the_commit_is_looked_up_at_every_build_and_unknown_outside_git(tmp_path):
    source, out = tmp_path / "source", tmp_path / "commit.cpp"
    source.mkdir()

    def written(*given):
        subprocess.run(["cmake", f"-DSOURCE={source}", f"-DOUT={out}", *given, "-P", ROOT / "prism/train/commit.cmake"], check=True)
        return re.search(r'return "(.*)";', out.read_text())[1]

    def git(*arguments):
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        return subprocess.run(["git", *identity, *arguments], cwd=source, check=True, capture_output=True, text=True).stdout.strip()

    assert written() == "unknown"
    assert written("-DCOMMIT=0123456789ab") == "0123456789ab"
    git("init", "-q")
    (source / "file").write_text("1")
    git("add", "file")
    git("commit", "-qm", "first")
    assert written() == git("rev-parse", "HEAD")[:12]
    before = out.stat().st_mtime_ns
    assert written() and out.stat().st_mtime_ns == before, "nothing is compiled again where the commit is the same"
    (source / "file").write_text("2")
    assert written() == git("rev-parse", "HEAD")[:12] + "-dirty"
    (source / "inner").mkdir()
    source = source / "inner"
    assert written() == "unknown", "a copy inside another project's checkout"


def test_the_written_configuration_reproduces_the_run(whole, tmp_path):
    run("train", "--config", whole / "config.toml", "--out", tmp_path / "again")
    assert_same_run(whole, tmp_path / "again")


def test_tensorboard_reads_the_events(whole):
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = event_accumulator.EventAccumulator(str(whole)).Reload()
    losses = [(event.step, event.value) for event in events.Scalars("train/loss")]
    metrics = json_lines(whole / "metrics.jsonl")
    assert [step for step, _ in losses] == [line["step"] for line in metrics]
    numpy.testing.assert_allclose([value for _, value in losses], [line["loss"] for line in metrics], rtol=1e-6)


@pytest.mark.gpu
def test_on_a_gpu_a_deterministic_run_repeats_and_resumes_bit_for_bit_with_a_graph_and_without(settings, tmp_path):
    def on_gpu(name, **changes):
        return settings(tmp_path / name, run__device="cuda", train__deterministic="true", model__width=128, **changes)

    run(*on_gpu("whole"))
    run(*on_gpu("again"))
    run(*on_gpu("eager", train__graph="false"))
    process = start(*on_gpu("killed"))
    wait_until(lambda: list((tmp_path / "killed").glob("checkpoints/step-????????")), process)
    process.kill()
    process.communicate()
    run(*on_gpu("killed"), "--resume")
    for name in ("again", "killed"):
        assert_same_run(tmp_path / "whole", tmp_path / name)
    assert without_timings(json_lines(tmp_path / "whole/metrics.jsonl")) == without_timings(json_lines(tmp_path / "eager/metrics.jsonl"))


def test_a_dry_run_says_what_a_run_would_need_and_writes_nothing(settings, corpus, tmp_path):
    given = tmp_path / "given.toml"
    given.write_text("[train]\neval_every = 6\n")
    changes = {"data__cache": "auto", "data__vocab": 280}
    arguments = [*settings(tmp_path / "run", **changes), "--config", given, "--dry-run"]
    before = contents(tmp_path), contents(corpus)
    output, errors = run(*arguments)
    assert (contents(tmp_path), contents(corpus)) == before
    lines = without_progress(errors).splitlines()
    assert all(len(line) <= 80 for line in lines) and [line.split()[0] for line in lines] == ["data", "model", "device", "rates", "steps", "needs"]
    assert re.fullmatch(r"data    [\d,]+ tokens per epoch, [\d,]+ held out, vocabulary 280", lines[0])
    assert re.fullmatch(r"model   demo, [\d,]+ parameters, 15,360 in hidden matrices", lines[1])
    assert lines[3] == "rates   PRISM 0.005, AdamW 0.02 for the rest, cosine after 4 steps of warm-up"
    assert re.fullmatch(r"steps   24 of 4 × 16 tokens: 1,536 tokens, 0\.\d+ epochs", lines[4])
    assert re.fullmatch(r"needs   about \S+ s, \S+ MB of memory, \S+ (k|M)B of disk", lines[5])
    assert re.search(r'^layers = 2 +# --set$', output, re.MULTILINE)
    assert re.search(r'^head_dim = 8 +# default, from "auto"$', output, re.MULTILINE)
    assert re.search(rf"^eval_every = 8 +# --set$", output, re.MULTILINE)  # over the file
    assert re.search(r"^clip = 1.0 +# default$", output, re.MULTILINE)
    resolved = tmp_path / "resolved.toml"
    resolved.write_text(output)
    again, _ = run("train", "--config", resolved, "--out", tmp_path / "run", "--dry-run")
    values = [re.sub(" +#.*", "", text) for text in (output, again)]
    assert values[0] == values[1]


def test_the_same_lines_open_a_run(settings, whole, tmp_path):
    dry = without_progress(run(*settings(tmp_path / "run"), "--dry-run")[1]).splitlines()
    real = run(*settings(tmp_path / "run"))[1].splitlines()
    data = json.loads((whole / "summary.json").read_text())["data"]
    assert dry[0] == f"data    {data['train_tokens']:,} tokens per epoch, {data['val_tokens']:,} held out, vocabulary 300"  # counted: the cache has the shards
    assert [line for line in dry if not line.startswith("needs")] == [line for line in real if line in dry and not line.startswith("needs")]
    assert any(line.startswith("needs   about") for line in real)


def test_days_of_training_are_announced_before_they_begin(settings, tmp_path):
    large = {"model__layers": 20, "model__width": 512, "model__mlp": 1408, "train__context": 512, "train__batch": 64, "train__steps": 1000000}
    _, errors = run(*settings(tmp_path / "run", **large), "--dry-run")
    assert re.search(r"^warning: this will take about \d+ d \d+ h on this machine; use a smaller model.preset, a GPU or fewer train.steps$", errors, re.MULTILINE), errors


def test_the_default_warm_up_fits_short_runs(settings, tmp_path):
    for steps, warmup in ((3, 0), (20, 2), (500, 50), (1000, 100), (5000, 100)):
        output, _ = run(*settings(tmp_path / "run", train__steps=steps, schedule__warmup="auto"), "--dry-run")
        assert re.search(rf'^warmup = {warmup} +# --set, from "auto"$', output, re.MULTILINE), output
    _, errors = run(*settings(tmp_path / "run", train__steps=20, schedule__warmup=20), "--dry-run", status=2)
    assert "schedule.warmup: expected fewer than train.steps = 20, got 20" in errors


def test_a_held_out_text_is_evaluated_on_and_all_else_trained_on(settings, corpus, tmp_path):
    text, out, again = tmp_path / "held-out.txt", tmp_path / "run", tmp_path / "again"
    text.write_text("the cat sees the dog and the bird likes the tree\n" * 20)
    changes = {"data__held_out": "auto", "data__held_out_path": text, "data__cache": "auto", "train__steps": 6}
    run(*settings(out, **changes))
    train, val = (json.loads((out / "data" / f"{split}.json").read_text()) for split in ("train", "val"))
    assert train["text_bytes"] == sum(path.stat().st_size for path in corpus.iterdir()) and train["documents"] == 40
    assert val["text_bytes"] == text.stat().st_size and val["documents"] == 1
    assert [source["path"] for source in val["sources"]] == [str(text)]
    run("train", "--config", out / "config.toml", "--out", again)
    assert_same_run(out, again)
    run("data", "build", corpus, "--tokenizer", out / "tokenizer.json", "--held-out-path", text, "--out", tmp_path / "shards")
    assert json.loads((tmp_path / "shards/train.json").read_text())["recipe"] == train["recipe"]
    before = contents(out)
    text.write_text("another text to evaluate on, the cat and the dog\n" * 20)
    _, errors = run(*settings(out, **changes), "--resume", status=2)
    assert "the training text or its tokenizer has changed" in errors
    assert contents(out) == before


def test_one_plain_text_file_trains_and_the_log_says_what_is_held_out(settings, tmp_path):
    text = tmp_path / "text.txt"
    text.write_bytes(b"the small cat sees the large dog\n" * 300 + b"caf\xe9\n")
    (tmp_path / "rows.jsonl").write_text('{"text": null}\n{"text": "' + "a bird likes the red tree " * 100 + '"}\n')
    _, errors = run(*settings(tmp_path / "run", data__path=text, data__cache="auto", train__steps=6, data__vocab=270))
    assert re.search(r"^text    a single document: its last \S+ \S+ are held out$", errors, re.MULTILINE), errors
    assert "text    replaced invalid UTF-8 by U+FFFD in 1 place\n" in errors
    val = json.loads((tmp_path / "run/data/val.json").read_text())
    assert val["text_bytes"] == pytest.approx(0.1 * text.stat().st_size, abs=40)
    _, errors = run("train", "--config", tmp_path / "run/config.toml", "--out", tmp_path / "new", "--set", "train.batch=5000", status=2)
    assert "train.batch: expected at least 80000 training tokens, 5000 sequences of 16 for one step, got " in errors
    assert not (tmp_path / "new/config.toml").exists()
    _, errors = run(*settings(tmp_path / "both", data__path=f"{text},{tmp_path / 'rows.jsonl'}", data__cache="auto", train__steps=6, data__vocab=270, data__held_out="auto"))
    assert "text    skipped 1 row without text (null)\n" in errors and "a single document" not in errors


def test_documents_end_with_the_token_that_is_named(settings, corpus, tmp_path):
    tokenizer, out, hf = tmp_path / "tokenizer.json", tmp_path / "run", tmp_path / "hf"
    run("tokenizer", "train", corpus, "--vocab", 300, "--special", "<pad>", "--special", "</s>", "--out", tokenizer)
    run(*settings(out, data__tokenizer=tokenizer, data__eos="</s>", data__cache="auto", train__steps=6))
    end = next(token["id"] for token in json.loads(tokenizer.read_text())["added_tokens"] if token["content"] == "</s>")
    assert json.loads((out / "data/train.json").read_text())["end_of_text"] == end
    run("export", out, "--out", hf)
    assert json.loads((hf / "tokenizer_config.json").read_text())["eos_token"] == "</s>"
    assert json.loads((hf / "config.json").read_text())["eos_token_id"] == end
    for model in (out, hf):
        run("generate", model, "--tokens", 3)  # without a prompt: from the end of a document
    run(*settings(tmp_path / "trained", data__eos="<end>", data__cache="auto", train__steps=6))
    assert '"<end>"' in (tmp_path / "trained/tokenizer.json").read_text()


def test_a_folder_holds_a_run_or_a_comparison(settings, whole, tmp_path):
    compare = ["compare", *settings(tmp_path / "comparison", train__steps=2, schedule__warmup=0)[1:]]
    compare += ["--set", "compare.optimizers=muon", "--set", "compare.lr=0.01"]
    before = contents(whole)
    _, errors = run(*(whole if word == tmp_path / "comparison" else word for word in compare), status=2)
    assert "holds a training run; choose another folder" in errors
    assert contents(whole) == before
    run(*compare)
    before = contents(tmp_path / "comparison")
    for more in ([], ["--resume"]):
        _, errors = run(*settings(tmp_path / "comparison"), *more, status=2)
        assert "holds a comparison; choose another folder" in errors
    assert contents(tmp_path / "comparison") == before
    (finished,) = (tmp_path / "comparison/runs").iterdir()
    run("train", "--resume", "--out", finished)


def test_a_diverging_run_stops_with_a_diagnosis_and_keeps_finite_weights(settings, tmp_path):
    out = tmp_path / "run"
    _, errors = run(*settings(out, optimizer__lr=1e30, train__max_skips=3, schedule__warmup=0), status=1)
    assert "3 steps in a row were not finite" in errors and "optimizer.lr" in errors
    metrics = json_lines(out / "metrics.jsonl")
    assert [line.get("skipped", False) for line in metrics[-3:]] == [True] * 3
    assert re.fullmatch(r"(the gradient of )?model\.\S+?(, sequence \d+)?", metrics[-1]["culprit"])
    summary = json.loads((out / "summary.json").read_text())
    assert summary["status"] == "diverged" and summary["skipped"] == 3


@pytest.mark.parametrize("steps", [1, 5])
def test_a_run_whose_loss_is_not_finite_at_the_end_has_diverged(settings, tmp_path, steps):
    out = tmp_path / "run"
    arguments = settings(out, optimizer__lr=1e30, schedule__warmup=0, train__steps=steps)
    for more in ([], ["--resume"]):
        output, errors = run(*arguments, *more, status=1)
        assert f"diverged: after {'1 step' if steps == 1 else f'{steps} steps'} the loss is not finite" in errors and "optimizer.lr" in errors and output == ""
        summary = json.loads((out / "summary.json").read_text())
        assert summary["status"] == "diverged" and summary["val_loss"] is None and "not finite" in summary["diagnosis"]


def test_a_run_of_one_step_says_so(settings, tmp_path):
    output, _ = run(*settings(tmp_path / "run", train__steps=1, schedule__warmup=0))
    assert output.startswith("trained 1 step on ")
    assert " after 1 step." in (tmp_path / "run/report.html").read_text()


def test_accumulation_changes_neither_the_batches_nor_the_loss(settings, whole, tmp_path):
    run(*settings(tmp_path / "run", train__accumulate=4, train__steps=8))
    ours, theirs = json_lines(tmp_path / "run/metrics.jsonl"), json_lines(whole / "metrics.jsonl")[:8]
    assert [line["batch"] for line in ours] == [line["batch"] for line in theirs]
    numpy.testing.assert_allclose(ours[0]["loss"], theirs[0]["loss"], rtol=1e-5)
    numpy.testing.assert_allclose(ours[0]["grad_norm"], theirs[0]["grad_norm"], rtol=1e-4)


CONFIGURATION = (ROOT / "docs/configuration.md").read_text()
OPTIMIZERS = re.findall(r'"(\w+)"', re.findall(r"^\| `optimizer.name` \| one of (.*?) \|", CONFIGURATION, re.MULTILINE)[0])


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_trains(settings, tmp_path, name):
    rates = {"ssd": 1e-3, "rmsspectral": 1e-4, "adaspectral": 1e-4, "adamw": 0.003, "adam": 0.003, "soap": 0.003, "rmsprop": 0.001}
    run(*settings(tmp_path / "run", optimizer__name=name, optimizer__lr=rates.get(name, 0.01), train__steps=10, metrics__spectra_every=0))
    metrics = json_lines(tmp_path / "run/metrics.jsonl")
    assert metrics[-1]["loss"] < metrics[0]["loss"]


def test_the_reference_of_the_configuration_is_the_one_the_program_prints():
    output, _ = run("train", "--list-keys")
    assert CONFIGURATION == output, "run: prism train --list-keys > docs/configuration.md"


def test_the_ten_lines_of_the_documents_work_as_they_stand(tmp_path):
    text = (ROOT / "docs/training.md").read_text()
    block = re.search(r"in ten lines\n.*?```bash\n(.*?)```", text, re.DOTALL).group(1)
    (tmp_path / "mine.txt").write_text("\n".join(path.read_text() for path in sorted((ROOT / "docs").glob("*.md"))))
    environment = {**program.ENVIRONMENT, "PATH": f"{program.BUILD}:{os.environ['PATH']}"}
    result = subprocess.run(["bash", "-e", "-c", block], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=TIMEOUT)
    assert result.returncode == 0, result.stderr
    assert len(block.split("END\n")[1].splitlines()) + 5 <= 10
    summary = json.loads((tmp_path / "runs/mine/summary.json").read_text())
    assert summary["status"] == "finished" and summary["step"] == 60 and summary["loss"] < summary["first_loss"] - 0.5
    assert re.search(r"^  bits per byte  \d\.\d{4}$", result.stdout, re.MULTILINE), result.stdout
    assert "\nThe" in result.stdout and (tmp_path / "mine-hf/model.safetensors").exists()
