// Loss against learning rate, one line per optimizer, with the rates that each tolerates as bars below.

const sweep = {
  range: 'best'
};

// Returns the top of the loss axis. Near the best, a few bad rates must not squeeze all the others together.
function sweepTop(losses) {
  const [low, high] = extent(losses) ?? [0, 1];
  if (sweep.range === 'all') return high;
  const enough = low + Math.max(2.2 * (quantile(losses, 0.6) - low), 4 * tolerance);
  return Math.min(high, enough);
}

const toleranceFactor = ({tolerance: t}) =>
    `${t.low_open || t.high_open ? '≥\u202f' : ''}${formatFactor(t.high / t.low)}`;

// Returns the part of a line within the tolerated rates, interpolated in log rate like the tolerance itself.
function toleratedPart(points, {low, high}) {
  const at = (lr) => {
    const i = points.findIndex(([x]) => x >= lr);
    if (i <= 0) return points[Math.max(i, 0)]?.[1];
    const [[x0, y0], [x1, y1]] = [points[i - 1], points[i]];
    return y0 + ((y1 - y0) * Math.log(lr / x0)) / Math.log(x1 / x0);
  };
  return [[low, at(low)], ...points.filter(([x]) => x > low && x < high), [high, at(high)]];
}

function sweepFigure() {
  const swept = optimizers.filter((one) => (one.sweep ?? []).length > 1);
  if (!swept.length) return null;
  const figure = new Figure({
    id: 'sweep',
    wide: true,
    title: 'Held-out loss against learning rate',
    note: `Lower is better; a flat, wide valley needs little tuning. The bars show the rates whose loss is within ${
        formatNumber(tolerance)} of the optimizer's best.`,
    controls: [choice(
        'range of loss', [['best', 'Near the best'], ['all', 'Whole range']], sweep.range,
        (value) => {
          sweep.range = value;
          figure.render();
        })],
    legend: legendOf(swept),
    draw: (canvas) => drawSweep(canvas, swept.filter((one) => visible(one.id))),
  });
  return figure;
}

// Draws the axes. isLost(point) is true for points that go into the lane above the scale, where those of one rate stand
// side by side; place(point, order) returns the pixels of a point of the optimizer at that position in `shown`.
function sweepFrame(canvas, shown, ranged, named) {
  const {width} = canvas;
  const losses = shown.flatMap((one) => one.sweep.filter((p) => p.status !== 'diverged').map((p) => p.loss));
  const limit = sweepTop(losses);
  const [, top] = extent(losses.filter((loss) => loss <= limit)) ?? [0, limit];
  const isLost = (p) => p.status === 'diverged' || !known(p.loss) || p.loss > top * 1.0001;
  const lane = shown.some((one) => one.sweep.some(isLost)) ? 38 : 0;
  const height = (named && !view.printing ? 350 : 290) + lane;
  const names = [...shown.map((one) => one.label), ...ranged.map((one) => `${one.label}  ${toleranceFactor(one)}`)];
  const rates = [...new Set(optimizers.flatMap((one) => (one.sweep ?? []).map((p) => p.lr)))].sort((a, b) => a - b);
  const domain = rates.length > 1 ? widen([rates[0], rates.at(-1)], 0.035, true) : [rates[0] / 2, rates[0] * 2];
  const [low] = extent(losses) ?? [0];
  const yDomain = losses.some(known) ? [low - (top - low) * 0.07, top + (top - low) * 0.03] : [0, 1];
  const plot = new Plot(
      canvas, {left: 0, top: lane, width: width - (named ? endLabelRoom(names) : 8), height},
      {domain, log: true, ticks: rates.length <= 9 ? rates : undefined, format: formatRate},
      {domain: yDomain, label: lane ? undefined : '↑ held-out loss'});
  const laneY = plot.box.top - 14;
  if (lane) drawLane(plot, laneY, shown, isLost);
  const place = (p, order) => {
    if (!isLost(p)) return plot.place([p.lr, p.loss]);
    const beside = shown.filter((one) => one.sweep.some((other) => other.lr === p.lr && isLost(other)));
    return [plot.x(p.lr) + (beside.indexOf(shown[order]) - (beside.length - 1) / 2) * 11, laneY];
  };
  return {plot, isLost, place, height: lane + height, labelTop: lane ? laneY : plot.box.top};
}

// Draws the line of one optimizer and returns the places of its points.
function drawSweepLine({plot, isLost, place}, one, order) {
  const style = styleOf(one.id, plot.theme);
  const points = [...one.sweep].sort((a, b) => a.lr - b.lr);
  const measured = points.filter((p) => p.status !== 'diverged' && known(p.loss)).map((p) => [p.lr, p.loss]);
  if (one.tolerance && measured.length > 1)
    plot.line(toleratedPart(measured, one.tolerance), {color: style.color, width: 9, opacity: 0.16, key: one.id});
  points.slice(1).forEach((p, i) => {
    const out = isLost(p) || isLost(points[i]);
    plot.layer.append(svg('path', {
      d: pathThrough([place(points[i], order), place(p, order)]),
      stroke: style.color,
      fill: 'none',
      'stroke-width': out ? 1.1 : 2,
      'stroke-dasharray': out ? '1.5 3.5' : style.dash,
      'data-key': one.id
    }));
  });
  return points.map((p) => {
    const [x, y] = place(p, order);
    const size = p.lr === one.best_lr ? 6.4 : 4.4;
    plot.marker(x, y, style, {size, open: p.status === 'diverged', key: one.id});
    return {x, y, p, one, style};
  });
}

function drawSweep(canvas, shown) {
  const {theme, width} = canvas;
  const named = width >= NARROW;
  const ranged = shown.filter((one) => one.tolerance);
  const frame = sweepFrame(canvas, shown, ranged, named);
  const {plot, height} = frame;
  const lines = shown.map((one, order) => drawSweepLine(frame, one, order));
  const label = (spot) => ({key: spot.one.id, text: spot.one.label, style: spot.style, y: spot.y});
  if (named) endLabels(plot, lines.map((line) => label(line.at(-1))), plot.box.right, {top: frame.labelTop});
  write(plot.layer, plot.box.right, plot.box.bottom + 32, 'learning rate →', {anchor: 'end', color: theme.muted});

  const row = named ? 21 : 34;
  const stripTop = plot.box.bottom + 34;
  const bars = ranged.map((one, i) => drawTolerance(plot, one, stripTop + 20 + (i + 0.5) * row, named));
  const heading = `tolerated rates (loss within ${formatNumber(tolerance)} of the best)`;
  if (ranged.length) write(plot.layer, 0, stripTop + 4, heading, {color: theme.muted});
  const strip = ranged.length ? ranged.length * row + 38 : 0;
  return {height: height + 16 + strip, probe: (px, py) => probeSweep(plot, lines.flat(), bars, px, py)};
}

function drawLane(plot, y, shown, isLost) {
  const {box, theme, layer} = plot;
  const lost = shown.flatMap((one) => one.sweep.filter(isLost));
  const words = [
    lost.some((p) => p.status !== 'diverged') && 'above the scale',
    lost.some((p) => p.status === 'diverged') && 'diverged (open markers)'
  ].filter(Boolean);
  layer.append(svg('rect', {x: box.left, y: y - 12, width: box.width, height: 24, rx: 4, fill: theme.shade}));
  write(layer, box.right, y - 20, words.join(', '), {anchor: 'end', color: theme.muted});
  write(layer, 0, y - 20, '↑ held-out loss', {color: theme.muted});
}

function drawTolerance(plot, one, y, named) {
  const {theme, layer} = plot;
  const style = styleOf(one.id, theme);
  const {low, high, low_open, high_open} = one.tolerance;
  const [from, to] = [plot.x(low), plot.x(high)];
  const group = svg('g', {'data-key': one.id});
  const bar = named ? y : y + 7;
  group.append(svg('path', {d: `M${plot.box.left} ${bar}H${plot.box.right}`, stroke: theme.grid}));
  group.append(svg('path', {
    d: `M${from.toFixed(1)} ${bar}H${to.toFixed(1)}`,
    stroke: style.color,
    'stroke-width': 6,
    'stroke-linecap': 'butt'
  }));
  if (low_open) group.append(svg('path', {d: `M${from - 8} ${bar}l8 -6v12Z`, fill: style.color}));
  if (high_open) group.append(svg('path', {d: `M${to + 8} ${bar}l-8 -6v12Z`, fill: style.color}));
  layer.append(group);
  if (known(one.best_lr)) plot.marker(plot.x(one.best_lr), bar, style, {size: 5.4, key: one.id});
  const text = write(
      group, named ? plot.box.right + 10 : plot.box.left, named ? y : y - 8, `${one.label}  `,
      {size: 12, color: theme.ink, middle: true});
  text.append(svg('tspan', {'font-weight': 650}, toleranceFactor(one)));
  return {y: bar, one, style};
}

function probeSweep(plot, spots, bars, px, py) {
  const bar = bars.find((candidate) => Math.abs(candidate.y - py) < 9 && px > plot.box.left - 10);
  if (bar) {
    const {low, high, low_open, high_open} = bar.one.tolerance;
    const range = `${low_open ? '≤ ' : ''}${formatRate(low)} to ${high_open ? '≥ ' : ''}${formatRate(high)}`;
    return {
      x: Math.min(px, plot.box.right),
      y: bar.y,
      heading: 'tolerated learning rates',
      rows: [{style: bar.style, name: `${bar.one.label} · ${range}`, value: toleranceFactor(bar.one)}]
    };
  }
  let found = null;
  let distance = 36;
  for (const spot of spots) {
    const away = Math.hypot(spot.x - px, spot.y - py);
    if (away < distance) [found, distance] = [spot, away];
  }
  if (!found) return null;
  const {p, one, style, x, y} = found;
  const edge =
      p.lr === one.best_lr && one.edge ? `, at the ${one.edge === 'low' ? 'lower' : 'upper'} edge of the grid` : '';
  const value =
      p.status === 'finished' ? formatLoss(p.loss) : `${p.status}${known(p.loss) ? ` ${formatLoss(p.loss)}` : ''}`;
  return {
    x,
    y,
    heading: `learning rate ${formatRate(p.lr)}${p.lr === one.best_lr ? ' · its best rate' : ''}${edge}`,
    rows: [{style, name: one.label, value}],
    marks: [{x, y, style}]
  };
}
