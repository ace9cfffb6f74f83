"""The report page in a headless Chromium: what a reader sees and does."""

import json
import math
import os
import re
import xml.etree.ElementTree as xml

import chromium
import pytest
import report_sample
from program import run_tool

FIGURES = ["published-values", "sweep", "seeds", "train-loss", "held-out-loss", "step-time", "memory", "gain", "spectra", "weight-norm"]
PROGRAM = chromium.find()
pytestmark = pytest.mark.skipif(PROGRAM is None and not os.environ.get("CI"), reason="no Chromium here: tools/setup.sh test installs it")


def write_page(document, folder, name="report"):
    (folder / f"{name}.json").write_text(json.dumps(document))
    result = run_tool("report/report_tool", "page", folder / f"{name}.json", folder / f"{name}.html")
    assert result.returncode == 0, result.stderr
    return folder / f"{name}.html"


@pytest.fixture(scope="session")
def sample():
    return report_sample.document()


@pytest.fixture(scope="session")
def page(sample, tmp_path_factory):
    return write_page(sample, tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="session")
def one_browser():
    assert PROGRAM, "CI is set and no Chromium was found"
    with chromium.Browser(PROGRAM) as browser:
        yield browser


@pytest.fixture
def browser(one_browser, page):
    one_browser.resize(1440, 900)
    one_browser.prefer("light")
    one_browser.open(page)
    yield one_browser
    assert one_browser.complaints() == []
    assert one_browser.requests() == []


def texts(browser, selector):
    return browser.run(f"[...document.querySelectorAll({json.dumps(selector)})].map(e => e.textContent)")


def drawing(browser, figure):
    return browser.run(f"document.querySelector('#{figure} .plot svg').outerHTML")


def press(browser, selector):
    browser.run(f"document.querySelector({json.dumps(selector)}).click()")
    browser.settle()


def place(browser, expression):
    """Scrolls an element into view; its left, top, width and height on the screen."""
    browser.run(f"({expression}).scrollIntoView({{block: 'center', behavior: 'instant'}})")
    browser.settle()
    return browser.run(f"(() => {{ const r = ({expression}).getBoundingClientRect(); return [r.left, r.top, r.width, r.height]; }})()")


def tip_at(browser, figure, x, y):
    """Returns the tooltip with the pointer at the fractions x and y of a figure."""
    left, top, width, height = place(browser, f"document.querySelector('#{figure} .plot > svg')")
    browser.move_mouse(left + x * width, top + y * height)
    return browser.run(f"(() => {{ const t = document.querySelector('#{figure} .tip'); return t.hidden ? null : t.innerText; }})()")


def series_keys(browser, figure):
    return set(browser.run(f"[...document.querySelectorAll('#{figure} .plot [data-key]')].map(e => e.dataset.key)"))


def test_sixteen_lines_have_colors_of_their_own_and_names_that_do_not_overlap(one_browser, sample, tmp_path):
    many = json.loads(json.dumps(sample))
    for copy in range(2, 6):
        for one in sample["optimizers"][1:]:
            many["optimizers"].append({**one, "id": f"{one['id']}-{copy}", "label": f"{one['label']} {copy}"})
        many["runs"] += [{**run, "optimizer": f"{run['optimizer']}-{copy}"} for run in sample["runs"] if run["optimizer"] != sample["optimizers"][0]["id"]]
    one_browser.resize(1440, 900)
    one_browser.open(write_page(many, tmp_path))
    heights = one_browser.run("[...document.querySelectorAll('#held-out-loss .plot svg g[data-key] > text')].map(e => e.getBoundingClientRect().top)")
    assert len(heights) == 16
    fills = one_browser.run("[...document.querySelectorAll('#held-out-loss .plot svg g[data-key] > path')].map(e => e.getAttribute('fill'))")
    assert len(set(fills)) == 16
    heights.sort()
    assert min(b - a for a, b in zip(heights, heights[1:], strict=False)) >= 14
    assert one_browser.complaints() == []


def test_every_figure_is_drawn_and_the_summary_comes_first(browser, sample):
    assert texts(browser, "main > section:first-child .headline") == [sample["summary"][0]["text"]]
    assert browser.run("[...document.querySelectorAll('figure')].map(f => f.id)") == FIGURES
    for figure in FIGURES:
        marks = browser.run(f"document.querySelectorAll('#{figure} .plot svg path, #{figure} .plot svg rect').length")
        assert marks > 8, figure
        assert "NaN" not in drawing(browser, figure) and "undefined" not in drawing(browser, figure), figure
    words = browser.run("document.body.textContent")
    for part in ("[object", "undefined", "NaN"):
        assert part not in words.replace(browser.run("document.scripts[1].textContent"), "")


def test_the_table_shows_the_numbers_of_the_document(browser, sample):
    rows = browser.run("[...document.querySelectorAll('#results-table tbody tr')].map(r => [...r.cells].map(c => c.innerText))")
    assert len(rows) == len(sample["optimizers"])
    for row, one in zip(rows, sample["optimizers"], strict=True):
        assert one["label"] in row[0] and one["detail"] in row[0]
        assert row[1].split()[0] == f"{one['best_lr']:g}"
        final, difference = one["final"], one.get("difference")
        assert row[3].startswith(f"{final['mean']:.3f} ± {(final['high'] - final['low']) / 2:.3f}")
        if difference:
            assert row[4].replace("−", "-").split()[0] == f"{difference['mean']:+.3f}"
            assert f"{difference['low']:+.3f} to {difference['high']:+.3f}" in row[4].replace("−", "-")
        else:
            assert row[4] == "baseline"
    runs = browser.run("document.querySelectorAll('#runs-table tbody tr').length")
    assert runs == len(sample["runs"])
    assert any("diverged at step 310" in row for row in texts(browser, "#runs-table tr"))


def test_a_factor_that_rounds_to_one_is_neither_faster_nor_slower(one_browser, sample, tmp_path):
    document = json.loads(json.dumps(sample))
    speedups = [1.0, 0.96, 1.04, 1.06]
    for one, speedup in zip(document["optimizers"], speedups, strict=True):
        one["tokens_speedup"], one["seconds_speedup"] = speedup, 1 / speedup
    one_browser.resize(1440, 900)
    one_browser.open(write_page(document, tmp_path))
    for title, words in {
        "Tokens to AdamW’s loss": ["", "about as fast", "about as fast", "1.1× faster"],
        "Time to AdamW’s loss": ["", "about as fast", "about as fast", "1.1× slower"],
    }.items():
        cells = one_browser.run(f"[...document.querySelectorAll('#results-table td[data-label=\"{title}\"]')].map(c => c.querySelector('.sub')?.innerText ?? '')")
        assert cells == words


def test_the_papers_numbers_stand_beside_ours(browser, sample):
    """Each side has its own scale: larger numbers lie further right, and words have no dot."""
    shown = texts(browser, "#published-values .plot text")
    values = sample["published"]["values"]
    assert {"in the paper: final loss", "here: held-out loss", "Muon at 0.02", "Muon at 0.1", "PRISM"} <= set(shown)
    for value in values:
        assert value["paper"] in shown and value["here"] in shown
    dots = browser.run("[...document.querySelectorAll('#published-values .plot g[data-key] > path[stroke=\"#ffffff\"]')].map(e => e.getBoundingClientRect().left)")
    numbers = [value["paper_value"] for value in values if "paper_value" in value], [value["here_value"] for value in values]
    assert len(dots) == len(numbers[0]) + len(numbers[1])
    for side, places in zip(numbers, (dots[: len(numbers[0])], dots[len(numbers[0]) :]), strict=True):
        assert [side.index(x) for x in sorted(side)] == [places.index(x) for x in sorted(places)]
    assert tip_at(browser, "published-values", 0.5, 0.3).splitlines()[0] in ("AdamW", "Muon at 0.02")


def test_pointing_at_a_rate_shows_its_loss(browser, sample):
    one = next(o for o in sample["optimizers"] if o["id"] == "muon")
    spot = "[...document.querySelectorAll('#sweep .plot path[data-key=muon][stroke=\"#ffffff\"]')][2]"  # the third rate
    left, top, width, height = place(browser, spot)
    browser.move_mouse(left + width / 2, top + height / 2)
    tip = browser.run("document.querySelector('#sweep .tip').innerText")
    point = one["sweep"][2]
    assert "Muon" in tip and f"{point['loss']:.3f}" in tip and f"learning rate {point['lr']:g}" in tip
    assert ("its best" in tip) == (point["lr"] == one["best_lr"])


def test_pointing_at_a_curve_shows_the_losses_of_that_step(browser, sample):
    tip = tip_at(browser, "held-out-loss", 0.4, 0.5)
    step = int("".join(c for c in tip.split("·")[0] if c.isdigit()))
    for one in sample["optimizers"]:
        run = next(r for r in sample["runs"] if r["optimizer"] == one["id"] and r["best"] and r["seed"] == 0)
        loss = run["val"]["loss"][run["val"]["step"].index(step)]
        lines = tip.splitlines()
        assert lines[lines.index(f"{one['label']} · seed 0") + 1] == f"{loss:.3f}"
    browser.move_mouse(2, 2)
    assert browser.run("document.querySelector('#held-out-loss .tip').hidden")


@pytest.mark.parametrize("figure", FIGURES)
def test_every_figure_answers_the_pointer(browser, figure):
    assert any(tip_at(browser, figure, x, y) for y in (0.35, 0.5, 0.65, 0.25, 0.8) for x in (0.08, 0.2, 0.3, 0.4, 0.5, 0.6, 0.75))


def test_the_arrow_keys_walk_over_a_curve(browser):
    place(browser, "document.querySelector('#train-loss .plot > svg')")
    browser.run("document.querySelector('#train-loss .plot > svg').focus()")
    browser.press_key("ArrowRight")
    first = browser.run("document.querySelector('#train-loss .tip').innerText")
    browser.press_key("ArrowRight")
    assert first.startswith("step") and browser.run("document.querySelector('#train-loss .tip').innerText") != first


def test_a_legend_entry_switches_its_lines_everywhere(browser):
    everyone = {"adamw", "muon", "prism", "prism-ema"}
    assert series_keys(browser, "train-loss") == series_keys(browser, "sweep") == everyone
    press(browser, "#train-loss [data-legend=muon]")
    for figure in ("train-loss", "held-out-loss", "sweep", "weight-norm"):
        assert series_keys(browser, figure) == everyone - {"muon"}, figure
        assert browser.run(f"document.querySelector('#{figure} [data-legend=muon]').getAttribute('aria-pressed')") == "false"
    press(browser, "#sweep [data-legend=muon]")
    assert series_keys(browser, "train-loss") == everyone
    for name in everyone:
        press(browser, f"#sweep [data-legend={name}]")
    assert series_keys(browser, "sweep") == set()  # and no complaint


def y_ticks(browser, figure):
    return browser.run(f"[...document.querySelectorAll('#{figure} .plot text[text-anchor=end]')].map(t => t.textContent)")


def test_axes_range_and_runs_can_be_chosen(browser):
    controls = "#curve-controls [data-value={}]"
    before = drawing(browser, "held-out-loss")
    assert "step →" in before
    press(browser, controls.format("tokens"))
    assert "tokens →" in drawing(browser, "held-out-loss") and "tokens →" in drawing(browser, "train-loss")
    press(browser, controls.format("seconds"))
    assert "training time →" in drawing(browser, "held-out-loss")
    press(browser, controls.format("step"))
    assert strip_ids(drawing(browser, "held-out-loss")) == strip_ids(before)
    for switch in ("log-y", "log-x"):
        press(browser, controls.format(switch))
        assert strip_ids(drawing(browser, "held-out-loss")) != strip_ids(before), switch
        press(browser, controls.format(switch))
    press(browser, controls.format("all"))
    assert max(float(t) for t in y_ticks(browser, "train-loss") if t.replace(".", "").isdigit()) >= 6
    press(browser, controls.format("end"))
    assert strip_ids(drawing(browser, "held-out-loss")) == strip_ids(before)
    lines = "document.querySelectorAll('#held-out-loss .plot path[fill=none][data-key]').length"
    best = browser.run(lines)
    browser.run("(() => { const s = document.querySelector('#curve-controls select'); s.value = 'all'; s.dispatchEvent(new Event('change')); })()")
    browser.settle()
    assert best == 20 and browser.run(lines) == 40


def strip_ids(markup):
    return re.sub(r"clip-\d+", "clip", markup)


def test_on_a_log_axis_equal_ratios_are_equal_lengths(browser):
    press(browser, "#curve-controls [data-value=log-y]")
    press(browser, "#curve-controls [data-value=all]")
    ticks = browser.run(
        "[...document.querySelectorAll('#held-out-loss .plot text[text-anchor=end]')].map(t => [Number(t.textContent), Number(t.getAttribute('y'))]).filter(t => t[0] > 0)"
    )
    slopes = [(y1 - y0) / math.log(v1 / v0) for (v0, y0), (v1, y1) in zip(ticks, ticks[1:])]
    assert len(slopes) >= 2 and max(slopes) - min(slopes) < 0.02 * abs(slopes[0])


def set_smoothing(browser, value):
    browser.run(f"(() => {{ const r = document.querySelector('#curve-controls input[type=range]'); r.value = {value}; r.dispatchEvent(new Event('input')); }})()")
    browser.settle()


def roughness(browser):
    """Mean step between neighbors of the main line of PRISM, in pixels."""
    path = browser.run("[...document.querySelectorAll('#train-loss .plot path[data-key=prism][stroke-width=\"2\"]')].at(-1).getAttribute('d')")
    heights = [float(point.split()[1]) for point in path[1:].split("L")]
    return sum(abs(a - b) for a, b in zip(heights[500:], heights[501:])) / len(heights[501:])


def test_smoothing_calms_the_training_loss_and_leaves_the_rest(browser):
    held_out = strip_ids(drawing(browser, "held-out-loss"))
    set_smoothing(browser, 0)
    rough = roughness(browser)
    set_smoothing(browser, 60)
    assert roughness(browser) < 0.1 * rough
    assert strip_ids(drawing(browser, "held-out-loss")) == held_out
    set_smoothing(browser, 0)
    assert roughness(browser) == rough


def test_the_sweep_shows_diverged_runs_and_the_whole_range(browser):
    assert "diverged" in drawing(browser, "sweep")
    near = [float(t) for t in y_ticks(browser, "sweep") if t.replace(".", "").isdigit()]
    press(browser, "#sweep [data-value=all]")
    whole = [float(t) for t in y_ticks(browser, "sweep") if t.replace(".", "").isdigit()]
    assert max(whole) > max(near)


def test_a_point_above_the_scale_stands_over_its_rate(browser):
    """AdamW at 0.01 is alone up there. Only points of several optimizers at one rate are moved apart."""
    center = "(e) => { const r = e.getBoundingClientRect(); return r.left + r.width / 2; }"
    marker = "[...document.querySelectorAll('#sweep .plot path[data-key=adamw][stroke=\"#ffffff\"]')][3]"
    tick = "[...document.querySelectorAll('#sweep .plot svg text')].find((e) => e.textContent === '0.01')"
    assert abs(browser.run(f"({center})({marker}) - ({center})({tick})")) < 1


def test_layers_follow_the_chosen_run_quantity_and_step(browser):
    seen = {strip_ids(drawing(browser, "spectra"))}
    for i, value in ((0, "1"), (1, "gain"), (1, "singular_values"), (1, "weight_norm"), (1, "update_norm"), (1, "snr")):
        browser.run(
            f"(() => {{ const s = document.querySelectorAll('#spectra select')[{i}]; s.value = '{value}'; s.dispatchEvent(new Event('change')); }})()"
        )
        browser.settle()
        seen.add(strip_ids(drawing(browser, "spectra")))
    browser.run("(() => { const r = document.querySelector('#spectra input'); r.value = 0; r.dispatchEvent(new Event('input')); })()")
    browser.settle()
    seen.add(strip_ids(drawing(browser, "spectra")))
    assert len(seen) == 7
    assert "step 100" in browser.run("document.querySelector('#spectra .note').textContent").replace("\u202f", "")


SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("figure", FIGURES)
def test_a_figure_downloads_as_a_drawing_that_stands_alone(browser, figure):
    browser.prefer("dark")
    browser.run(
        "(() => { window.saved = []; const make = URL.createObjectURL; URL.createObjectURL = b => { window.saved.push(b.text()); return make.call(URL, b); };"
        " HTMLAnchorElement.prototype.click = function() { window.savedName = this.download; }; })()"
    )
    press(browser, f"#{figure} .save")
    text = browser.run("window.saved[0]")
    assert browser.run("window.savedName") == f"prism-{figure}.svg"
    root = xml.fromstring(text.encode())
    assert root.tag == f"{SVG}svg" and root.get("width") == "528"
    background = root.find(f"{SVG}rect")
    assert background.get("fill") == "#ffffff" and background.get("height") == root.get("height")
    for part in ("var(", "class=", "style=", "currentColor", "data-key", "NaN", "http://localhost"):
        assert part not in text, part
    assert root.get("font-family") and all(element.get("fill") for element in root.iter(f"{SVG}text"))
    if figure in ("sweep", "train-loss", "held-out-loss", "weight-norm"):
        assert {"AdamW", "Muon", "PRISM", "PRISM averaged"} <= {element.text for element in root.iter(f"{SVG}text")}


def luminance(color):
    channels = [int(part) / 255 for part in color[color.index("(") + 1 : -1].split(",")[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a, b):
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


COLORS = """[...document.querySelectorAll('h1, h2, h3, p, td, th, summary, button, label, .sub, .flag, .caution, pre, .plot text')]
  .filter(e => e.textContent.trim() && e.getClientRects().length).map(e => {
    let back = e; while (back && getComputedStyle(back).backgroundColor === 'rgba(0, 0, 0, 0)') back = back.parentElement;
    const style = getComputedStyle(e);
    return [e instanceof SVGElement ? style.fill : style.color, getComputedStyle(back ?? document.body).backgroundColor, e.tagName + ' ' + e.textContent.slice(0, 30)]; })"""
LINES = "[...document.querySelectorAll('#train-loss .plot path[fill=none][data-key], #sweep .plot path[data-key]')].map(e => getComputedStyle(e).stroke).filter(c => c.startsWith('rgb'))"


@pytest.mark.parametrize("how", ["preferred", "chosen"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_letters_and_lines_stand_out_in_both_themes(browser, theme, how):
    if how == "preferred":
        browser.prefer(theme)
    else:
        browser.prefer("light" if theme == "dark" else "dark")
        press(browser, f".top [data-value={theme}]")
    page_color = browser.run("getComputedStyle(document.body).backgroundColor")
    assert (luminance(page_color) < 0.05) == (theme == "dark")
    found = browser.run(COLORS)
    assert len(found) > 200
    weak = {(text, round(contrast(color, back), 2)) for color, back, text in found if contrast(color, back) < 4.5}
    assert not weak
    lines = [color for color in set(browser.run(LINES)) if color != page_color]
    assert len(lines) >= 4 and all(contrast(color, page_color) >= 3 for color in lines)


@pytest.mark.parametrize("width", [320, 390, 640, 768, 1024, 1440, 2560])
def test_nothing_sticks_out_at_any_width(browser, page, width):
    browser.resize(width, 844, mobile=width < 500)
    browser.open(page)
    assert browser.run("document.documentElement.scrollWidth") <= width
    for figure in FIGURES:
        edges = browser.run(
            f"(() => {{ const s = document.querySelector('#{figure} .plot > svg'); const b = s.getBoundingClientRect();"
            " return [...s.querySelectorAll('text')].map(t => t.getBoundingClientRect()).filter(r => r.right > b.right + 1.5 || r.left < b.left - 1.5).length; })()"
        )
        assert edges == 0, figure
    browser.run("document.querySelectorAll('details').forEach(d => d.open = true)")
    browser.settle()
    assert browser.run("document.documentElement.scrollWidth") <= width


def test_prints_in_light_colors_with_everything_open(browser, tmp_path):
    browser.prefer("dark")
    browser.run("addEventListener('beforeprint', () => { window.whilePrinting = [document.querySelectorAll('details[open]').length, document.querySelector('#sweep .plot svg').outerHTML.includes('#5b95ff')]; })")
    folds = browser.run("document.querySelectorAll('details').length")
    browser.pdf(tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")
    assert browser.run("window.whilePrinting") == [folds, False]
    assert browser.run("document.querySelectorAll('details[open]').length") == 0
    assert "#5b95ff" in drawing(browser, "sweep")


def test_a_single_run_has_a_page_without_comparisons(one_browser, sample, tmp_path):
    run = next(r for r in sample["runs"] if "spectra" in r)
    optimizer = {key: value for key, value in next(o for o in sample["optimizers"] if o["id"] == run["optimizer"]).items() if key in ("id", "label", "step_ms", "optimizer_ms")}
    document = {"kind": "train", "title": "One run", "summary": [{"text": "Done."}], "optimizers": [optimizer], "runs": [run]}
    one_browser.open(write_page(document, tmp_path))
    assert one_browser.run("[...document.querySelectorAll('figure')].map(f => f.id)") == ["train-loss", "held-out-loss", "step-time", "gain", "weight-norm", "spectra"]
    assert one_browser.complaints() == []


def test_a_checkpoint_s_inspection_shows_spectra_alone(one_browser, tmp_path):
    records = [{"step": 10, "matrix": f"model.layers.{i}.mlp.up_proj.weight", "singular_values": [3, 2, 1], "weight_singular_values": [9, 4, 0.5], "weight_norm": 4} for i in range(2)]
    run = {"optimizer": "muon", "lr": 0.01, "seed": 0, "status": "interrupted", "spectra": records}
    document = {"kind": "inspect", "title": "A checkpoint", "summary": [], "optimizers": [{"id": "muon", "label": "Muon"}], "runs": [run]}
    one_browser.open(write_page(document, tmp_path))
    assert one_browser.run("[...document.querySelectorAll('figure')].map(f => f.id)") == ["spectra"]
    assert one_browser.complaints() == []


def test_bare_and_hostile_documents_give_pages_without_complaint(one_browser, tmp_path):
    bare = {"kind": "compare", "title": "", "summary": [], "optimizers": [], "runs": []}
    attack = "</script><img src=x onerror=console.error(1)><b>&amp;"
    one = {"id": attack, "label": attack, "detail": attack, "sweep": [{"lr": 0.1, "loss": None, "status": "diverged"}] * 2}
    run = {"optimizer": attack, "lr": 0.1, "seed": 0, "status": "diverged", "best": True, "train": {"step": [1, 2], "loss": [None, None]}, "val": {"step": [], "loss": []}}
    hostile = {**bare, "title": attack, "summary": [{"text": attack, "tone": "headline"}], "optimizers": [one], "runs": [run], "baseline": attack, "config": attack, "command": attack}
    for document in (bare, hostile):
        one_browser.open(write_page(document, tmp_path))
        assert one_browser.complaints() == [] and one_browser.requests() == []
        assert one_browser.run("document.querySelectorAll('img, b').length") == 0
    assert one_browser.run("document.querySelector('.headline').textContent") == attack
