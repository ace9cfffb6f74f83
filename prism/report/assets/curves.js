// Losses and norms during training. These figures share one set of controls.

const curves = {
  x: 'step',
  logX: false,
  logY: false,
  smoothing: 30,
  range: 'end',
  runs: 'best'
};

function chosenRuns() {
  const among = runs.filter((run) => visible(run.optimizer));
  if (curves.runs === 'all' || report.kind !== 'compare') return among;
  if (curves.runs === 'best') return among.filter((run) => run.best);
  return among.filter((run) => String(run.lr) === curves.runs);
}

// Returns one line per run. An optimizer's first line has a label; those of other seeds and rates are thinner and pale.
function runSeries(canvas, curveOf, points, extra = () => ({})) {
  const chosen = chosenRuns().filter((run) => curveOf(run)?.step.length);
  const seen = new Set();
  const lines = chosen.map((run) => {
    const first = !seen.has(run.optimizer) && (curves.runs !== 'all' || run.best || report.kind !== 'compare');
    if (first) seen.add(run.optimizer);
    const crowd = chosen.length > 2 * optimizers.length;
    return {
      key: run.optimizer,
      name: runName(run, chosen),
      style: first ? styleOf(run.optimizer, canvas.theme) : {...styleOf(run.optimizer, canvas.theme), dash: null},
      label: first ? optimizerById.get(run.optimizer).label : undefined,
      width: first ? 2 : 1,
      opacity: first         ? undefined :
          crowd && !run.best ? 0.35 :
                               0.5,
      points: points(run, curveOf(run)),
      ...(first ? extra(run, curveOf(run)) : {}),
    };
  });
  return lines.sort((a, b) => Boolean(a.label) - Boolean(b.label));  // labeled lines on top
}

const abscissa = (curve) => curve[curves.x] ?? curve.step;
const zip = (x, y) => x.map((value, i) => [value, y[i]]);

function axes(series, {label, exact, view: v}) {
  const kind = ABSCISSAS[v.x];
  const xs = extent(series.flatMap((one) => one.points.map((p) => p[0])), v.logX) ?? [1, 2];
  const x = {
    label: kind.label,
    format: kind.tick,
    exact: kind.format,
    log: v.logX,
    domain: v.logX ? xs : [Math.min(0, xs[0]), xs[1]]
  };
  const all = extent(series.flatMap((one) => one.points.map((p) => p[1])), v.logY) ?? [0, 1];
  const domain = widen(v.range === 'end' ? endDomain(series, all, xs, v.logY) : all, 0.03, v.logY);
  return {x, y: {log: v.logY, label: `↑ ${label}`, exact, domain}};
}

// Returns the range of losses after the first 8 % of the run, without the initial drop. If a run diverges, the range
// ends a little above the usual losses.
function endDomain(series, all, [first, last], log) {
  const late =
      series.flatMap((one) => one.points.filter(([x]) => x >= first + 0.08 * (last - first)).map(([, y]) => y));
  const range = extent(late, log);
  if (!range) return all;
  const usual = quantile(late, 0.9);
  const [low, high] = range;
  return [low, Math.min(high, usual + 1.2 * (usual - low))];
}

// `view` is { x, logX, logY, range }; by default, what the controls say.
function drawCurves(canvas, series, {label, exact, heading, view: v = curves}) {
  const height = Math.round(Math.min(canvas.width > 700 ? 320 : 360, Math.max(250, canvas.width * 0.62)));
  if (!series.length) return drawNothing(canvas, 'No lines to show: all are hidden, or no run has this rate.');
  const {x, y} = axes(series, {label, exact, view: v});
  const {probe} = drawLines(
      canvas, {left: 0, top: 0, width: canvas.width, height}, {series, x, y, heading, labels: optimizers.length > 1});
  return {height, probe};
}

function drawNothing(canvas, text) {
  write(canvas.root, 0, 30, text, {size: 13, color: canvas.theme.muted});
  return {height: 48, probe: () => null};
}

function headingOf(curveOf) {
  return (point) => {
    const curve = chosenRuns().map(curveOf).find((one) => one && abscissa(one).includes(point[0]));
    const i = curve ? abscissa(curve).indexOf(point[0]) : -1;
    if (i < 0) return `${ABSCISSAS[curves.x].label} ${ABSCISSAS[curves.x].format(point[0])}`;
    const parts = [`step ${formatInteger(curve.step[i])}`];
    if (curve.tokens) parts.push(`${formatCount(curve.tokens[i])} tokens`);
    if (curve.seconds && curves.x === 'seconds') parts.push(formatSeconds(curve.seconds[i]));
    return parts.join(' · ');
  };
}

function trainLossFigure() {
  const withCurve = optimizers.filter((one) => runs.some((run) => run.optimizer === one.id && run.train));
  if (!withCurve.length) return null;
  const bandwidth = (curve) => (curves.smoothing / 100) ** 2 * curve.step.length * 0.2 + curves.smoothing * 0.04;
  const smoothed = (run, curve) => zip(abscissa(curve), smooth(curve.loss, bandwidth(curve)));
  const raw = (run, curve) => {
    if (curve.low) return {band: abscissa(curve).map((x, i) => [x, curve.low[i], curve.high[i]])};
    return curves.smoothing > 0 ? {faint: zip(abscissa(curve), curve.loss)} : {};
  };
  const curveOf = (run) => run.train;
  return new Figure({
    id: 'train-loss',
    title: 'Training loss',
    legend: legendOf(withCurve),
    note: () =>
        (curves.smoothing > 0 ? 'Smoothed by local linear fits; the pale lines behind are the measured losses.' :
                                'As measured, not smoothed.'),
    draw: (canvas) => drawCurves(
        canvas, runSeries(canvas, curveOf, smoothed, raw),
        {label: 'training loss', exact: formatLoss, heading: headingOf(curveOf)}),
  });
}

function heldOutFigure() {
  const withCurve = optimizers.filter((one) => runs.some((run) => run.optimizer === one.id && run.val));
  if (!withCurve.length) return null;
  const curveOf = (run) => run.val;
  return new Figure({
    id: 'held-out-loss',
    title: 'Held-out loss',
    legend: legendOf(withCurve),
    note: 'On text that no run was trained on. Not smoothed.',
    draw: (canvas) => drawCurves(
        canvas,
        runSeries(
            canvas, curveOf, (run, curve) => zip(abscissa(curve), curve.loss),
            (run, curve) => ({markers: curve.step.length <= 25})),
        {label: 'held-out loss', exact: formatLoss, heading: headingOf(curveOf)}),
  });
}

function normFigure(wide) {
  const withNorms = optimizers.filter((one) => runs.some((run) => run.optimizer === one.id && run.norms));
  if (!withNorms.length) return null;
  const curveOf = (run) => run.norms;
  return new Figure({
    id: 'weight-norm',
    wide,
    title: 'Weight norm',
    legend: legendOf(withNorms),
    note:
        'Frobenius norm over all matrices. Damping the updates where the gradient is noise makes the weights grow more slowly.',
    draw: (canvas) => {
      const series = runSeries(canvas, curveOf, (run, curve) => zip(curve.step, curve.weight));
      return drawCurves(
          canvas, series,
          {label: '‖W‖', exact: formatNumber, view: {x: 'step', logX: false, logY: false, range: 'all'}});
    },
  });
}

function curveControls() {
  const change = (key) => (value) => {
    curves[key] = value;
    redrawAll();
  };
  const everywhere = (key) => runs.some((run) => run.train) && runs.every((run) => !run.train || run.train[key]);
  const along = ['step', 'tokens', 'seconds']
                    .filter((key) => key === 'step' || everywhere(key))
                    .map((key) => [key, ABSCISSAS[key].name]);
  const rates = [...new Set(runs.map((run) => run.lr))].sort((a, b) => a - b);
  return html(
      'div',
      {class: 'controls', id: 'curve-controls'},
      html('label', {}, 'Plot against', choice('horizontal axis', along, curves.x, change('x'))),
      html(
          'label', {}, 'Log scale',
          html(
              'span', {class: 'choice'}, toggle('loss', 'log-y', curves.logY, change('logY')),
              toggle('horizontal', 'log-x', curves.logX, change('logX')))),
      html(
          'label', {}, 'Show',
          choice('range of loss', [['end', 'later part'], ['all', 'all']], curves.range, change('range'))),
      report.kind === 'compare' && rates.length > 1 ?
          select(
              'Runs',
              [
                ['best', 'each at its best rate'], ...rates.map((lr) => [String(lr), `all at ${formatRate(lr)}`]),
                ['all', 'all runs']
              ],
              curves.runs, change('runs')) :
          null,
      slider(
          'Smoothing', {min: 0, max: 100, step: 5, value: curves.smoothing, show: (value) => `${value}\u00a0%`},
          change('smoothing')),
  );
}
