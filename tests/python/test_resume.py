"""`prism train` from outside: interruptions of every kind, damaged checkpoints, and runs that go on."""

import json
import os
import shlex
import shutil
import signal
import subprocess

import program
import pytest
from program import TIMEOUT, json_lines, run, start, wait_until
from training import STEPS, assert_same_run, cache, contents, corpus, newest, settings, whole  # noqa: F401  fixtures

safetensors = pytest.importorskip("safetensors.numpy")


def test_a_run_from_before_a_default_changed_goes_on_as_it_began(settings, tmp_path):
    old = {"model__init_scale": "depth", "optimizer__name": "adamw", "optimizer__lr": 0.005}
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    for folder in (straight, stopped):
        run(*settings(folder, **old, optimizer__betas="[0.9,0.999]", train__steps=STEPS if folder == straight else 8, schedule__kind="constant"))
    config, mine = stopped / "config.toml", tmp_path / "mine.toml"
    lines = config.read_text().splitlines(keepends=True)
    config.write_text("".join(line for line in lines if not line.startswith("init_scale")))
    mine.write_text("".join(line for line in lines if not line.startswith(("init_scale", "betas"))))
    run("train", "--config", mine, "--out", stopped, "--set", "train.steps=16", "--resume")
    assert 'init_scale = "depth"' in config.read_text() and "betas = [0.9,0.999]" in config.read_text()
    run("train", "--out", stopped, "--set", f"train.steps={STEPS}", "--resume")
    assert_same_run(straight, stopped)


def test_a_run_of_the_former_defaults_of_prism_goes_on_with_them(settings, tmp_path):
    former = {"optimizer__lr": 0.02, "optimizer__gamma": 1, "optimizer__side": "short", "optimizer__covariance": "instant", "optimizer__coefficients": "jordan"}
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    for folder in (straight, stopped):
        run(*settings(folder, **former, train__steps=STEPS if folder == straight else 8, schedule__kind="constant"))
    config, mine = stopped / "config.toml", tmp_path / "mine.toml"
    text = config.read_text()
    assert text.count('side = "short"') == 1
    config.write_text(text.replace('side = "short"', 'side = "auto"'))  # as it was written then
    names = ("lr =", "gamma =", "side", "covariance =", "coefficients")
    mine.write_text("".join(line for line in text.splitlines(keepends=True) if not line.startswith(names)))
    run("train", "--config", mine, "--out", stopped, "--set", "train.steps=16", "--resume")
    assert 'side = "short"' in config.read_text() and 'covariance = "instant"' in config.read_text()
    run("train", "--out", stopped, "--set", f"train.steps={STEPS}", "--resume")
    assert_same_run(straight, stopped)


def steps_of(out):
    """Steps that the run has written so far."""
    return len(json_lines(out / "metrics.jsonl")) if (out / "metrics.jsonl").exists() else 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_saves_and_ends_the_run(settings, tmp_path, whole, number):
    out = tmp_path / "run"
    process = start(*settings(out, train__steps=100000, checkpoint__every=0))
    wait_until(lambda: steps_of(out) > 3, process)
    process.send_signal(number)
    output, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 128 + number, errors
    assert "--resume" in output
    assert errors.count("stopping: saving after this step; press Ctrl-C again to quit without saving\n") == 1
    assert json.loads((out / "summary.json").read_text())["status"] == "interrupted"
    assert newest(out).name == f"step-{len(json_lines(out / 'metrics.jsonl')):08d}"


def test_a_terminal_that_closes_sends_sighup_twice_and_the_run_is_saved(settings, tmp_path, whole):
    out = tmp_path / "run"
    ours, theirs = os.openpty()
    process = start(*settings(out, train__steps=100000, checkpoint__every=0), stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    wait_until(lambda: steps_of(out) > 3, process)
    os.close(ours)
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGHUP)
    assert process.wait(timeout=TIMEOUT) == 128 + signal.SIGHUP
    assert json.loads((out / "summary.json").read_text())["status"] == "interrupted"
    assert newest(out).name == f"step-{len(json_lines(out / 'metrics.jsonl')):08d}"


def test_under_nohup_sighup_is_ignored(settings, tmp_path, whole):
    out = tmp_path / "run"
    process = start(*settings(out), preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    wait_until((out / "metrics.jsonl").exists, process)
    process.send_signal(signal.SIGHUP)
    output, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0 and "trained" in output, errors


SCREENS = ["closed", "a pipe that ends", "full"]


@pytest.mark.parametrize("screen", SCREENS)
def test_training_goes_on_without_a_screen(settings, tmp_path, whole, screen):
    out = tmp_path / "run"
    words = " ".join(shlex.quote(str(word)) for word in [program.PROGRAM, *settings(out)])
    redirection = {"closed": "2>&- >&-", "a pipe that ends": "2>&1 | true", "full": "2>/dev/full >/dev/full"}[screen]
    subprocess.run(["bash", "-c", f"set -o pipefail; {words} {redirection}"], check=True, env=program.ENVIRONMENT, timeout=TIMEOUT)
    assert_same_run(whole, out)


def test_resuming_without_a_configuration_takes_that_of_the_run(settings, tmp_path, whole):
    out = tmp_path / "run"
    shutil.copytree(whole, out)
    for name in ("step-00000024", "step-00000021"):
        shutil.rmtree(out / "checkpoints" / name)
    (out / "summary.json").unlink()
    run("train", "--resume", "--out", out)
    assert_same_run(whole, out)


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGES = {
    "truncated": lambda path: os.truncate(path, path.stat().st_size // 2),
    "flipped": flip,
    "missing": lambda path: path.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_taken(whole, tmp_path, name, damage):
    out = tmp_path / "run"
    shutil.copytree(whole, out)
    DAMAGES[damage](out / "checkpoints/step-00000024" / name)
    _, errors = run("train", "--resume", "--out", out)
    assert "step-00000024" in errors and "resumed at step 21" in errors
    assert name in errors or name == "manifest.json"  # a flipped bit may change the name of a file in it, which is then "missing"
    assert_same_run(whole, out)


@pytest.mark.parametrize("name", ["metrics.jsonl", "spectra.jsonl"])
def test_missing_lines_are_counted(whole, tmp_path, name):
    out = tmp_path / "run"
    shutil.copytree(whole, out)
    file = out / name
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:5] + lines[9:]))
    _, errors = run("train", "--resume", "--out", out)
    assert f"{file}: 4 of {len(lines)} lines are missing; the run continues without them" in errors
    assert errors.count("lines are missing") == 1


def each(damage):
    """Returns a function that damages every checkpoint of a folder."""

    def damage_all(folder):
        for path in folder.iterdir():
            damage(path)

    return damage_all


LOSSES = {
    "corrupt": each(lambda path: flip(path / "model.safetensors")),
    "without a manifest": each(lambda path: (path / "manifest.json").unlink()),
    "emptied": each(shutil.rmtree),
    "gone": shutil.rmtree,
}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_run_whose_checkpoints_are_all_lost_is_not_begun_again(whole, tmp_path, loss):
    out = tmp_path / "run"
    shutil.copytree(whole, out)
    LOSSES[loss](out / "checkpoints")
    before = contents(out)
    _, errors = run("train", "--resume", "--out", out, status=2)
    message = errors.splitlines()[-1]
    assert "no checkpoint can be used" in message and "train in another one (--out)" in message
    for name in ["step-00000024"] + ["step-00000021", "step-00000018"] * (loss in ("corrupt", "without a manifest")):
        assert f"{name}: " in message
    assert contents(out) == before


def test_a_run_that_stopped_before_its_first_checkpoint_begins_again(settings, whole, tmp_path):
    out = tmp_path / "run"
    process = start(*settings(out, checkpoint__every=0, train__steps=100000))
    wait_until(lambda: steps_of(out) > 0, process)
    process.kill()
    process.communicate()
    assert not (out / "checkpoints").exists()
    _, errors = run("train", "--resume", "--out", out, "--set", "checkpoint.every=3", "--set", f"train.steps={STEPS}")
    assert "the run stopped before its first checkpoint; training starts at step 1" in errors
    assert_same_run(whole, out)


def test_resuming_with_changed_text_is_refused_and_writes_nothing(settings, corpus, tmp_path):
    text, out = tmp_path / "text", tmp_path / "run"
    shutil.copytree(corpus, text)
    changes = {"data__path": text, "data__cache": "auto", "train__steps": 6}
    run(*settings(out, **changes))
    (text / "0.txt").write_text("the cat now likes another text")
    before = contents(out)
    for arguments in (settings(out, **changes), ["train", "--out", out]):
        _, errors = run(*arguments, "--resume", status=2)
        assert "the training text or its tokenizer has changed since the run began" in errors
        assert contents(out) == before
    _, errors = run(*settings(out, **changes, data__held_out=0.3), "--resume", status=2)
    assert "data.held_out was 0.1, got 0.3" in errors
    assert contents(out) == before


def test_a_run_goes_on_from_its_shards_when_the_text_is_gone(settings, corpus, tmp_path):
    text, out, other = tmp_path / "text", tmp_path / "run", tmp_path / "other"
    shutil.copytree(corpus, text)
    changes = {"data__path": text, "data__cache": "auto"}
    run(*settings(other, **changes))
    run(*settings(out, **changes, train__steps=9))
    shutil.rmtree(text)
    _, errors = run("train", "--resume", "--out", out, "--set", f"train.steps={STEPS}")
    assert "the text is missing; using its shards in" in errors and "resumed at step 9" in errors
    ours, theirs = json_lines(out / "metrics.jsonl"), json_lines(other / "metrics.jsonl")
    assert [line["batch"] for line in ours] == [line["batch"] for line in theirs]
    _, errors = run(*settings(tmp_path / "new", **changes), status=2)
    assert "found nothing" in errors


def test_a_run_on_relative_paths_resumes_from_anywhere(settings, corpus, tmp_path):
    shutil.copytree(corpus, tmp_path / "here/text")
    (tmp_path / "there").mkdir()
    changes = {"data__path": "text/", "data__cache": "auto"}
    run(*settings("run", **changes, train__steps=9), cwd=tmp_path / "here")
    before = (tmp_path / "here/run/data/train.json").stat().st_mtime_ns
    _, errors = run("train", "--resume", "--out", "../here/run", "--set", "train.steps=12", cwd=tmp_path / "there")
    assert "resumed at step 9" in errors
    assert (tmp_path / "here/run/data/train.json").stat().st_mtime_ns == before
    run(*settings("run", **changes | {"data__path": "./text"}, train__steps=12), "--resume", cwd=tmp_path / "here")


def test_two_trainings_in_one_folder_are_told_what_is_true(settings, tmp_path, whole):
    out = tmp_path / "run"
    process = start(*settings(out, train__steps=100000, checkpoint__every=0))
    wait_until((out / "config.toml").exists, process)
    _, errors = run(*settings(out, train__steps=100000), "--resume", status=2)
    process.kill()
    process.communicate()
    assert errors == f"prism train: {out}: another process is writing to this folder; wait for it to end or choose another folder\n"


def test_a_full_disk_loses_no_earlier_checkpoint(settings, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1200k", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("needs the right to mount a tmpfs")
    try:
        out = disk / "run"
        _, errors = run(*settings(out, checkpoint__keep=100), status=1)
        assert "the disk is full" in errors
        kept = sorted((out / "checkpoints").iterdir())
        assert kept and all(".tmp-" not in path.name for path in kept)
        for path in kept:
            state = json.loads((path / "state.json").read_text())
            assert path.name == f"step-{state['step']:08d}"
            safetensors.load_file(path / "model.safetensors")
        whole_enough = tmp_path / "elsewhere"
        shutil.copytree(out, whole_enough)
        _, errors = run(*settings(whole_enough), "--resume")
        assert f"resumed at step {int(kept[-1].name[5:])}" in errors
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_diverged_run_that_is_killed_before_its_summary_trains_no_further(settings, tmp_path):
    out = tmp_path / "run"
    arguments = settings(out, optimizer__lr=1e30, train__max_skips=3, schedule__warmup=0)
    run(*arguments, status=1)
    ended, page, metrics = ((out / name).read_text() for name in ("summary.json", "report.html", "metrics.jsonl"))
    ended = json.loads(ended)
    (out / "summary.json").unlink()  # it is written last
    _, errors = run(*arguments, "--resume", status=1)
    assert ended["diagnosis"] in errors and " skipped" not in errors
    again = json.loads((out / "summary.json").read_text())
    for name in ("status", "step", "skipped", "diagnosis", "final_weights", "batches"):
        assert again[name] == ended[name]
    assert (out / "metrics.jsonl").read_text() == metrics and "This run is diverged" in page
    _, errors = run(*arguments, "--resume", "--set", "train.max_skips=5", status=1)  # two more
    assert f"stopped at step {ended['step'] + 2}: 5 steps in a row were not finite" in errors


def test_resuming_with_other_settings_is_refused_by_key(settings, whole, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(whole, out)
    _, errors = run(*settings(out, optimizer__gamma=3), "--resume", status=2)
    assert "optimizer.gamma was 0.17, got 3.0" in errors
    _, errors = run(*settings(out), status=2)
    assert "already holds a run" in errors and "--resume" in errors
