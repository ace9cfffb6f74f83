// The mechanism: signal-to-noise ratios, gains and spectra of the updates.

const withSpectra = runs.filter((run) => run.spectra?.length);
const mechanism = {
  run: '0',
  quantity: undefined,
  step: 0,
  kind: 'all'
};

// Splits "model.layers.3.mlp.up_proj.weight" into the kind "mlp.up_proj" and the layer 3.
function partsOf(name) {
  const words = name.replace(/\.weight$/, '').split('.');
  const at = words.findIndex((word) => /^\d+$/.test(word));
  if (at < 0) return {kind: words.join('.'), layer: 0};
  return {kind: words.slice(at + 1).join('.') || words.slice(0, at).join('.'), layer: Number(words[at])};
}
for (const run of withSpectra)
  for (const record of run.spectra) Object.assign(record, partsOf(record.matrix));

const unique = (values) => [...new Set(values)];
const kinds = unique(withSpectra.flatMap((run) => run.spectra.map((record) => record.kind)));
const layerCount = 1 + Math.max(0, ...withSpectra.flatMap((run) => run.spectra.map((record) => record.layer)));
const stepsOf = (run) => unique(run.spectra.map((record) => record.step)).sort((a, b) => a - b);

function rampKey(canvas, x, y, from, to) {
  const width = 110;
  for (let i = 0; i < 22; ++i)
    canvas.root.append(svg('rect', {x: x + i * 5, y: y - 4, width: 5.4, height: 8, fill: ramp(canvas.theme, i / 21)}));
  write(canvas.root, x - 7, y, from, {anchor: 'end', color: canvas.theme.muted, middle: true});
  write(canvas.root, x + width + 7, y, to, {color: canvas.theme.muted, middle: true});
}

// Draws panels of equal size in rows. draw(box, item) draws one and returns its { plot, probe }.
function panels(canvas, items, {least, height, top}, draw) {
  const columns = Math.max(1, Math.min(items.length, Math.floor((canvas.width + 24) / (least + 24))));
  const width = Math.min((canvas.width - 24 * (columns - 1)) / columns, 560);
  const drawn = items.map(
      (item, i) => draw(
          {left: (i % columns) * (width + 24), top: top + Math.floor(i / columns) * (height + 14), width, height},
          item));
  const probe = (px, py) => {
    const panel = drawn.find(({plot}) => plot.contains(px, py, 8));
    return panel ? panel.probe(px, py) : null;
  };
  return {height: top + Math.ceil(items.length / columns) * (height + 14), probe};
}

function panelTitle(canvas, box, text, style) {
  if (style)
    canvas.root.append(svg('path', {d: markerPath(style.marker, box.left + 5, box.top + 5, 4), fill: style.color}));
  write(
      canvas.root, box.left + (style ? 15 : 0), box.top + 9, text, {size: 12.5, weight: 620, color: canvas.theme.ink});
}

// Returns the gain by theory, which the exact solver has.
const gainAt = (snr, gamma) => 1 / Math.sqrt(1 + (gamma * gamma) / (snr * snr));

function gainFigure() {
  const measured = withSpectra.filter((run) => run.spectra.some((record) => record.snr && record.gain));
  if (!measured.length) return null;
  const figure = new Figure({
    id: 'gain',
    wide: measured.length > 1,
    title: 'Gain against signal-to-noise ratio',
    note:
        'Each dot is a direction v of a matrix: its signal-to-noise ratio ‖Tv‖/‖Dv‖ and its gain ‖Ov‖, the length of the update along it. The line is the theory, 1/\u2060√(1\u00a0+\u00a0γ²/SNR²); an iteration with few steps scatters around it.',
    controls: kinds.length > 1 ? [select(
                                     'Matrices', [['all', 'all'], ...kinds.map((kind) => [kind, kind])], mechanism.kind,
                                     (value) => {
                                       mechanism.kind = value;
                                       figure.render();
                                     })] :
                                 [],
    draw: (canvas) => drawGain(canvas, measured.filter((run) => visible(run.optimizer))),
  });
  return figure;
}

function drawGain(canvas, shown) {
  const records = (run) => run.spectra.filter(
      (record) => record.snr && record.gain && (mechanism.kind === 'all' || record.kind === mechanism.kind));
  const all = shown.flatMap(records);
  const xs = extent(all.flatMap((record) => record.snr), true);
  if (!xs) return drawNothing(canvas, 'No record has both an SNR and a gain.');
  const x = {domain: widen(xs, 0.03, true), log: true, format: (tick) => significant(tick, 1), label: 'SNR'};
  const highest = Math.max(1.05, extent(all.flatMap((record) => record.gain))[1] * 1.04);
  const steps = unique(all.map((record) => record.step)).sort((a, b) => a - b);
  const top = steps.length > 1 ? 26 : 0;
  if (top) rampKey(canvas, canvas.width - 178, 8, `step ${formatInteger(steps[0])}`, formatInteger(steps.at(-1)));
  return panels(
      canvas, shown,
      {least: canvas.paper || view.printing ? 150 : 270, height: canvas.paper || view.printing ? 210 : 268, top},
      (box, run) => {
        const style = styleOf(run.optimizer, canvas.theme);
        panelTitle(canvas, box, runName(run, shown), style);
        const plot = new Plot(
            canvas, {...box, top: box.top + 14, height: box.height - 14}, x, {domain: [0, highest], label: '↑ gain'});
        const dots = [];
        for (const step of steps) {
          const here = records(run).filter((record) => record.step === step);
          const points = here.flatMap((record) => record.snr.map((snr, i) => [snr, record.gain[i], record, i]));
          plot.dots(points, {
            color: ramp(canvas.theme, steps.length > 1 ? steps.indexOf(step) / (steps.length - 1) : 0.75),
            size: 3.2,
            opacity: 0.5
          });
          for (const point of points) dots.push([...plot.place(point), point]);
        }
        for (const gamma of unique(records(run).map((record) => record.gamma)).filter(known)) {
          const curve = [...Array(81).keys()]
                            .map((i) => x.domain[0] * (x.domain[1] / x.domain[0]) ** (i / 80))
                            .map((snr) => [snr, gainAt(snr, gamma)]);
          plot.line(curve, {color: canvas.theme.ink, width: 1.6});
          write(
              plot.layer, plot.box.right - 2, plot.y(gainAt(x.domain[1] / 1.02, gamma)) - 7,
              `theory, γ = ${formatNumber(gamma)}`, {anchor: 'end', color: canvas.theme.ink, halo: canvas.theme.page});
        }
        return {plot, probe: (px, py) => probeDots(dots, px, py, style)};
      });
}

function probeDots(dots, px, py, style) {
  let best = null;
  let distance = 18;
  for (const dot of dots) {
    const away = Math.hypot(dot[0] - px, dot[1] - py);
    if (away < distance) [best, distance] = [dot, away];
  }
  if (!best) return null;
  const [x, y, [snr, gain, record, i]] = best;
  const rows = [{name: 'SNR', value: significant(snr, 3)}, {name: 'gain', value: significant(gain, 3)}];
  if (record.theory) rows.push({name: 'theory', value: significant(record.theory[i], 3)});
  return {x, y, heading: `${record.matrix} · step ${formatInteger(record.step)}`, rows, marks: [{x, y, style}]};
}

// The quantities that the panels can show, along the directions of one step or over the steps.
const QUANTITIES = {
  snr: {name: 'signal-to-noise ratio', label: 'SNR', along: 'direction', log: true},
  gain: {name: 'gain', label: 'gain', along: 'direction', log: false},
  singular_values: {name: 'singular values of the momentum', label: 'σ of T', along: 'direction', log: true},
  weight_singular_values: {name: 'singular values of the weights', label: 'σ of W', along: 'direction', log: true},
  weight_norm: {name: 'norm of the weights', label: '‖W‖', along: 'step', log: false},
  update_norm: {name: 'norm of the update', label: '‖O‖', along: 'step', log: false},
};

function spectraFigure() {
  if (!withSpectra.length) return null;
  const has = (key) => withSpectra.some(
      (run) => run.spectra.some((record) => (Array.isArray(record[key]) ? record[key].length : known(record[key]))));
  const offered = Object.entries(QUANTITIES)
                      .filter(
                          ([key, one]) => has(key) &&
                              (one.along === 'direction' || withSpectra.some((run) => stepsOf(run).length > 1)));
  if (!offered.length) return null;
  mechanism.quantity = offered[0][0];
  const most = Math.max(...withSpectra.map((run) => stepsOf(run).length));
  mechanism.step = most - 1;
  const run = () => withSpectra[Number(mechanism.run)];
  const stepNow = () => stepsOf(run())[Math.min(mechanism.step, stepsOf(run()).length - 1)];
  const change = (key) => (value) => {
    mechanism[key] = value;
    figure.render();
  };
  const figure = new Figure({
    id: 'spectra',
    wide: true,
    title: 'Layer by layer',
    note: () =>
        (QUANTITIES[mechanism.quantity].along === 'direction' ?
             `${optimizerById.get(run().optimizer).label}, step ${
                 formatInteger(stepNow())}. Directions run from the strongest to the weakest; one line per layer.` :
             `${optimizerById.get(run().optimizer).label}, over training; one line per layer.`),
    controls: [
      withSpectra.length > 1 ? select(
                                   'Run', withSpectra.map((one, i) => [String(i), runName(one, withSpectra)]),
                                   mechanism.run, change('run')) :
                               null,
      select('Quantity', offered.map(([key, one]) => [key, one.name]), mechanism.quantity, change('quantity')),
      most > 1 ? slider(
                     'Step', {
                       min: 0,
                       max: most - 1,
                       step: 1,
                       value: mechanism.step,
                       show: (i) => formatInteger(stepsOf(run())[Math.min(i, stepsOf(run()).length - 1)])
                     },
                     change('step')) :
                 null,
    ],
    draw: (canvas) => drawSpectra(canvas, run(), stepNow()),
  });
  return figure;
}

// Returns one line per layer: the values of one step along the directions, or one value per step.
function spectraLines(run, kind, step, key, along) {
  const records = run.spectra.filter((record) => record.kind === kind);
  if (along === 'direction') {
    return records.filter((record) => record.step === step && record[key]?.length > 1)
        .map((record) => ({
               record,
               points: record[key].map((value, i) => [i / (record[key].length - 1), value]),
             }));
  }
  return unique(records.map((record) => record.layer))
      .map((layer) => {
        const own = records.filter((record) => record.layer === layer && known(record[key]));
        return {record: own[0], points: own.map((record) => [record.step, record[key]])};
      })
      .filter((line) => line.points.length > 1);
}

function drawSpectra(canvas, run, step) {
  const {label, along, log} = QUANTITIES[mechanism.quantity];
  const lines = kinds.map((kind) => [kind, spectraLines(run, kind, step, mechanism.quantity, along)])
                    .filter(([, own]) => own.length);
  const values = lines.flatMap(([, own]) => own.flatMap((line) => line.points.map((point) => point[1])));
  const domain = extent(values, log);
  if (!domain) return drawNothing(canvas, 'This run did not record this.');
  const floor =
      log ? Math.max(domain[0], quantile(values.filter((value) => value > 0), 0.01) / 3) : Math.min(0, domain[0]);
  const y =
      {domain: widen([floor, domain[1]], 0.03, log), log, label: `↑ ${label}`, exact: (value) => significant(value, 3)};
  const last = Math.max(...lines.flatMap(([, own]) => own.flatMap((line) => line.points.map((point) => point[0]))));
  const x = along === 'direction' ? {
    domain: [0, 1],
    ticks: [0, 1],
    format: (tick) => (tick ? 'weakest' : 'strongest'),
    exact: formatPercent,
    label: ''
  } :
                                    {domain: [0, last], format: formatCount, exact: formatInteger, label: 'step'};
  const top = layerCount > 1 ? 28 : 0;
  if (top) rampKey(canvas, canvas.width - 150, 8, 'layer 0', String(layerCount - 1));
  return panels(canvas, lines, {least: canvas.width < 800 ? 150 : 232, height: 196, top}, (box, [kind, own]) => {
    panelTitle(canvas, box, kind);
    const series = own.map(({record, points}) => {
      const color = ramp(canvas.theme, layerCount > 1 ? record.layer / (layerCount - 1) : 0.75);
      return {
        name: layerCount > 1 ? `layer ${record.layer}` : record.matrix,
        style: {color, marker: 'circle'},
        width: 1.5,
        points
      };
    });
    const heading = (point) =>
        (along === 'direction' ? `${kind} · direction at ${formatPercent(point[0])}` :
                                 `${kind} · step ${formatInteger(point[0])}`);
    return drawLines(
        canvas, {...box, top: box.top + 14, height: box.height - 14}, {series, x, y, labels: false, heading});
  });
}
