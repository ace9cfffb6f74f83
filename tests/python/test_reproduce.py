"""`prism reproduce` from outside: runs are made once, shared, interrupted, moved to another pool, and read again."""

import json
import re
import shutil
import signal
import tomllib

import pytest
from program import ROOT, TIMEOUT, run, start, wait_until

TINY = ["model.layers=1", "model.width=16", "model.heads=2", "model.kv_heads=1", "model.mlp=32", "train.steps=60",
        "train.batch=4", "train.context=16", "train.eval_every=20", "train.eval_sequences=8", "schedule.warmup=2",
        "data.vocab=257", "data.held_out=0.1", "run.threads=1", "optimizer.aux_ratio=auto",
        "optimizer.aux_lr=0.03"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    root = tmp_path_factory.mktemp("reproduce")
    # All letters are equally frequent and each follows from the one before: soon better than their frequencies.
    letters = "".join(chr(code) for code in range(33, 127))
    for document in range(30):
        (root / f"{document}.txt").write_text(letters[3 * document % 94:] + letters * 10)
    return root


def arguments(name, pool, *more, settings=TINY):
    changes = [word for setting in settings for word in ("--set", setting)]
    return ["reproduce", name, "--scale", "smoke", "--pool", pool, "--device", "cpu", *changes, *more]


@pytest.fixture(scope="module")
def pool(corpus, tmp_path_factory):
    """A pool with the runs of table2."""
    folder = tmp_path_factory.mktemp("pool")
    run(*arguments("table2", folder, "--data", corpus))
    return folder


def results(pool):
    return {path.name: json.loads(path.read_text()) for path in (pool / "results").glob("*.json")}


def test_a_result_is_small_and_says_what_it_is_of(pool):
    found = results(pool)
    assert len(found) == 6  # two optimizers at three rates
    for name, result in found.items():
        assert len(json.dumps(result)) < 20_000
        assert result["key"][:12] in name
        summary = result["summary"]
        assert summary["status"] == "finished" and summary["step"] == 60
        assert summary["loss"] > 0 and summary["val_loss"] > 0
        assert summary["timing"]["step_ms"] > 0 and summary["wall_seconds"] > 0
        assert len(result["curves"]["train"]["loss"]) == 60
        assert len(result["curves"]["val"]["loss"]) == 3
        assert 0 < summary["data"]["unigram_entropy"] < 6
        assert result["data"] == summary["data"]["recipe"]
        assert not any("path" in source for source in summary["data"]["sources"])
    assert list((pool / "runs").iterdir()) == []


def test_runs_that_are_there_are_not_made_again(pool, corpus):
    before = {path: path.stat().st_mtime_ns for path in (pool / "results").iterdir()}
    output, _ = run(*arguments("table2", pool, "--data", corpus))
    assert {path: path.stat().st_mtime_ns for path in (pool / "results").iterdir()} == before
    assert "Table 2" in output and (pool / "pages" / "table2-smoke.html").exists()


def test_the_page_shows_the_papers_numbers_beside_ours(pool):
    page = (pool / "pages" / "table2-smoke.html").read_text()
    document = json.loads(re.search(r'id="document">(.*?)</script>', page, re.DOTALL).group(1))
    published = document["published"]
    assert (published["paper_label"], published["here_label"]) == ("final loss", "held-out loss")
    assert [value["paper"] for value in published["values"]] == ["3.285", "diverged", "diverged", "3.266", "3.276", "3.298"]
    losses = {run["key"]: run["summary"]["val_loss"] for run in results(pool).values()}
    for value in published["values"]:
        assert value.get("paper_value") == (None if value["paper"] == "diverged" else float(value["paper"]))
        assert value["here"] == "diverged" or any(abs(value["here_value"] - loss) < 1e-3 for loss in losses.values())


def test_experiments_share_their_runs(pool):
    output, _ = run(*arguments("figure-lr", pool, "--data", "nowhere", "--dry-run"))
    assert re.search(r"figure-lr +4 +4\b", output), output  # all four are of table2


def test_a_pool_is_read_without_the_text(pool):
    command = ["reproduce", "table2", "--scale", "smoke", "--pool", pool, "--markdown",
               *[word for setting in TINY for word in ("--set", setting)]]
    output, _ = run(*command)
    rows = [line for line in output.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == 6
    by_rate = {(result["settings"]["optimizer.name"], result["settings"]["optimizer.lr"]): result["summary"]
               for result in results(pool).values()}
    for row in rows:
        label, rate, seeds, train_loss, held_out, paper, _ = [cell.strip() for cell in row.strip("|").split("|")]
        summary = by_rate["muon" if label == "Muon" else "prism", float(rate.split()[0])]
        assert seeds == "1" and paper in ("3.285", "diverged", "3.266", "3.276", "3.298")
        assert train_loss == f"{summary['loss']:.4f}" and held_out == f"{summary['val_loss']:.4f}"


def test_results_of_another_machine_are_merged(pool, corpus, tmp_path):
    output, _ = run(*arguments("table2", tmp_path / "new", "--merge", pool, "--data", corpus))
    assert "6 results added" in output
    assert {name: result["key"] for name, result in results(tmp_path / "new").items()} == {
        name: result["key"] for name, result in results(pool).items()}
    assert not (tmp_path / "new" / "runs").exists() or list((tmp_path / "new" / "runs").iterdir()) == []


def test_an_interrupted_call_goes_on_and_ends_with_the_same_losses(pool, corpus, tmp_path):
    command = arguments("table2", tmp_path, "--data", corpus)
    for ended in (0, 2):  # runs before the one that is interrupted
        process = start(*command)
        wait_until(lambda: len(results(tmp_path)) >= ended and list(tmp_path.glob("runs/*/metrics.jsonl")), process)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=TIMEOUT)
        assert process.returncode == 128 + signal.SIGINT and "run the same command to continue" in output, errors
        assert ended <= len(results(tmp_path)) < 6
    run(*command)
    losses = {name: (result["summary"]["val_loss"], result["summary"]["final_weights"])
              for name, result in results(tmp_path).items()}
    assert losses == {name: (result["summary"]["val_loss"], result["summary"]["final_weights"])
                      for name, result in results(pool).items()}


def test_side_by_side_the_results_are_the_same(pool, corpus, tmp_path):
    run(*arguments("table2", tmp_path, "--data", corpus, "--jobs", "2"))
    stable = [{name: (result["key"], result["summary"]["val_loss"], result["summary"]["final_weights"], result["curves"]["val"]["loss"])
               for name, result in results(folder).items()} for folder in (pool, tmp_path)]
    assert stable[0] == stable[1]
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_run_that_does_not_fit_into_the_time_is_not_begun(corpus, tmp_path):
    long = [*TINY, "train.steps=10000000"]
    output, errors = run(*arguments("table2", tmp_path, "--data", corpus, "--minutes", "0.05", "--epochs", "1e6", settings=long))
    assert re.search(r"out of time.* --epochs \S+ --minutes 0.05", output) and re.search(r"needs about \d+ s; time left: \d s", errors), errors
    assert results(tmp_path) == {} and not (tmp_path / "runs").exists()


def test_a_run_that_takes_longer_than_estimated_is_saved_when_the_time_is_over(corpus, tmp_path):
    """The estimate, 2.6 s of 3, is that of the scale's model; this one is twenty times slower."""
    slow = [*TINY, "train.steps=600", "model.layers=4", "model.width=256", "model.heads=4", "model.mlp=704"]
    output, _ = run(*arguments("table2", tmp_path, "--data", corpus, "--minutes", "0.05", "--epochs", "100", settings=slow))
    assert "out of time" in output and results(tmp_path) == {}
    (checkpoint,) = tmp_path.glob("runs/*/checkpoints/step-*")
    assert 0 < int(checkpoint.name[5:]) < 600


def test_a_run_without_kernels_is_expected_to_take_longer():
    """On a GPU side = "both" takes six times as long as the runs in the pool."""
    planned = [line for line in run("reproduce", "questions/both", "--scale", "sweep", "--pool", "experiments", "--dry-run")[0].splitlines()
               if line.startswith("questions/both")]
    runs, done, minutes = re.fullmatch(r"questions/both +(\d+) +(\d+) +(\d+) min \d+ s", planned[0]).groups()
    assert int(minutes) >= 4 * (int(runs) - int(done))


def test_text_is_not_repeated_unless_allowed(corpus, tmp_path):
    long = [*TINY, "train.steps=10000"]
    _, errors = run(*arguments("table2", tmp_path, "--data", corpus, settings=long), status=2)
    assert "--epochs" in errors and "640,000 tokens" in errors


def test_the_paper_scale_says_which_text_it_wants(tmp_path):
    _, errors = run("reproduce", "table1", "--scale", "paper", "--pool", tmp_path, status=2)
    assert "FineWeb-Edu" in errors


def test_every_experiment_can_be_planned():
    output, _ = run("reproduce", "all", "--scale", "paper", "--pool", "nowhere", "--dry-run")
    assert "table1" in output and "About" in output


@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_tables_fit_a_terminal_of_80_columns(tmp_path, more):
    shutil.copytree(ROOT / "experiments/results", tmp_path / "results")
    output, _ = run("reproduce", "all", "--scale", "sweep", "--pool", tmp_path, *more)
    tables = re.findall(r"^.*\n[-─ ]+\n(?:.+\n)+", output, flags=re.MULTILINE)
    assert len(tables) >= (1 if more else 20)
    for table in tables:
        assert max(len(line) for line in table.splitlines()) <= 80, table
        assert more or "held-out loss" in table


def test_every_table_of_the_results_is_what_its_command_prints():
    text = (ROOT / "docs/results.md").read_text()
    blocks = re.findall(r"<!-- prism (reproduce .*?) -->\n(.*?)<!-- end -->", text, flags=re.DOTALL)
    assert len(blocks) >= 2
    for command, shown in blocks:
        output, _ = run(*command.split(), cwd=ROOT)
        assert shown == output, command


def test_the_plan_is_what_its_command_prints():
    command, shown = re.search(r"`prism (reproduce .*?)`.*?\n\n(.*)", (ROOT / "experiments/plan.md").read_text(), re.DOTALL).groups()
    output, _ = run(*command.split(), cwd=ROOT)
    assert shown == output


def test_the_settings_of_the_paper_are_those_of_the_file():
    with (ROOT / "experiments/paper.toml").open("rb") as file:
        settings = {f"{section}.{key}": value for section, keys in tomllib.load(file).items() for key, value in keys.items()}
    section = (ROOT / "docs/paper.md").read_text().split("## Settings")[1].split("\n## ")[0]
    told = dict(re.findall(r"`(\w+\.\w+) = ([^`]+)`", section))
    assert {key: tomllib.loads(f"value = {value}")["value"] for key, value in told.items()} == settings
