"""Shows how the cost of an optimizer step grows with a model's width and depth, Prism's and the installed peers'.

`python bench/growth.py growth.json growth.svg [options]` measures with bench/peers.py, adds the figures to growth.json and draws them on logarithmic
axes. Options after the files go to `prism bench optimizer` (--device, --repeats, …). With --draw it only draws what growth.json holds.
"""

import json
import math
import pathlib
import subprocess
import sys

WIDTHS = [256, 512, 1024, 2048, 4096, 8192]
LAYERS_OF_WIDTHS = 2
DEPTHS = [1, 2, 4, 8, 16, 32]
WIDTH_OF_DEPTHS = 1024
# name: (label, color)
SERIES = {
    "prism_minimax9": ("PRISM, minimax9", "#1f6feb"),
    "muon_minimax9": ("Muon, minimax9", "#2da44e"),
    "torch_muon": ("torch.optim.Muon", "#8c6d31"),
    "dion_muon": ("dion, Triton", "#bf3989"),
    "gram_newton_schulz": ("gram_newton_schulz", "#cf6a17"),
}
PANELS = [
    (f"width ({LAYERS_OF_WIDTHS} layers)", [(width, f"{width}x{LAYERS_OF_WIDTHS}") for width in WIDTHS]),
    (f"layers (width {WIDTH_OF_DEPTHS})", [(depth, f"{WIDTH_OF_DEPTHS}x{depth}") for depth in DEPTHS]),
]
PANEL_WIDTH, PANEL_HEIGHT, MARGIN = 360, 300, 64


def measure(file, options):
    models = sorted({model for _, points in PANELS for _, model in points}, key=lambda model: [int(part) for part in model.split("x")])
    peers = pathlib.Path(__file__).with_name("peers.py")
    command = [sys.executable, str(peers), "optimizer", "--model", *models, "--only", *SERIES, "--json", file, *options]
    subprocess.run(command, check=True)


def powers(low, high, base):
    """Returns the powers of the base from the last one at or below `low` to the first one at or above `high`."""
    first, last = math.floor(math.log(low, base) + 1e-9), math.ceil(math.log(high, base) - 1e-9)
    return [base**k for k in range(first, last + 1)]


def on_log_axis(value, ticks, length):
    return length * math.log(value / ticks[0]) / math.log(ticks[-1] / ticks[0])


def panel(title, points, times, y_ticks, left):
    """Returns the SVG of one chart: milliseconds over width or depth."""
    x_ticks = [x for x, _ in points]
    out = [f'<g transform="translate({left},{MARGIN})">']
    for tick in x_ticks:
        x = on_log_axis(tick, x_ticks, PANEL_WIDTH)
        out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{PANEL_HEIGHT}" class="grid"/>')
        out.append(f'<text x="{x:.1f}" y="{PANEL_HEIGHT + 18}" text-anchor="middle">{tick}</text>')
    for tick in y_ticks:
        y = PANEL_HEIGHT - on_log_axis(tick, y_ticks, PANEL_HEIGHT)
        out.append(f'<line x1="0" x2="{PANEL_WIDTH}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
        out.append(f'<text x="-8" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
    out.append(f'<text x="{PANEL_WIDTH / 2}" y="{PANEL_HEIGHT + 40}" text-anchor="middle">{title}</text>')
    for name, (_, color) in SERIES.items():
        line = [(x, times[model][name]) for x, model in points if name in times.get(model, {})]
        places = [(on_log_axis(x, x_ticks, PANEL_WIDTH), PANEL_HEIGHT - on_log_axis(ms, y_ticks, PANEL_HEIGHT)) for x, ms in line]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        out.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>' for x, y in places]
    return [*out, "</g>"]


def figure(results):
    times = results["step_ms"]
    models = {model for _, points in PANELS for _, model in points}
    shown = [ms for model, row in times.items() if model in models for name, ms in row.items() if name in SERIES]
    if not shown:
        raise SystemExit("growth.py: the file holds no step times of these models; run it without --draw")
    present = [name for name in SERIES if any(name in times.get(model, {}) for model in models)]
    y_ticks = powers(min(shown), max(shown), 10)
    width = 2 * PANEL_WIDTH + 3 * MARGIN
    height = PANEL_HEIGHT + 2 * MARGIN + 20
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
        "<style>text{fill:#24292f}.grid{stroke:#d0d7de;stroke-width:1}</style>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="{MARGIN}" y="22" font-size="14">Milliseconds of one optimizer step, {results["device"]}, {results["date"]}</text>',
    ]
    for k, name in enumerate(present):
        label, color = SERIES[name]
        x = MARGIN + 150 * k
        out.append(f'<line x1="{x}" x2="{x + 18}" y1="42" y2="42" stroke="{color}" stroke-width="2"/><text x="{x + 24}" y="46">{label}</text>')
    for k, (title, points) in enumerate(PANELS):
        out += panel(title, points, times, y_ticks, MARGIN + k * (PANEL_WIDTH + MARGIN))
    return "\n".join([*out, "</svg>", ""])


def main():
    if len(sys.argv) < 3 or {"-h", "--help"} & set(sys.argv):
        raise SystemExit(__doc__)
    file, picture, *options = sys.argv[1:]
    if options != ["--draw"]:
        measure(file, options)
    pathlib.Path(picture).write_text(figure(json.loads(pathlib.Path(file).read_text())), encoding="utf-8")


if __name__ == "__main__":
    main()
