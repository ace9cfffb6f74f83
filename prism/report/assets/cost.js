// Bars of time and memory, one row per optimizer.

// Returns round numbers up to `most`, in the unit that `most` is shown in.
function unitTicks(most, base, width) {
  const unit = base ** Math.floor(Math.log(most) / Math.log(base));
  return linearTicks(0, most / unit, Math.max(2, Math.round(width / 100))).map((tick) => tick * unit);
}

// rows: { one, total, text, parts: [{ name, value, own }] }. Own parts have the optimizer's color, others are gray.
function drawBars(canvas, rows, {format, label, base}) {
  const {theme, width} = canvas;
  const row = 46;
  const height = rows.length * row + 44;
  if (!rows.length) return drawNothing(canvas, 'All optimizers are hidden.');
  const most = Math.max(...rows.map((one) => one.total));
  const plot = new Plot(
      canvas, {left: 0, top: 0, width: width - 8, height, gutter: 0},
      {domain: [0, most * 1.02], ticks: unitTicks(most, base, width), format, label}, {domain: [0, 1], ticks: []});
  const zones = rows.map(({one, total, parts, text}, i) => {
    const style = styleOf(one.id, theme);
    const y = plot.box.top + i * row;
    const group = svg('g', {'data-key': one.id});
    plot.layer.append(group);
    write(group, 0, y + 11, one.label, {size: 12.5, weight: 600, color: theme.ink});
    write(group, width - 8, y + 11, text, {size: 12, anchor: 'end', color: theme.muted});
    let at = 0;
    let neutral = 0;
    for (const part of parts) {
      const [from, to] = [plot.x(at), plot.x(at + part.value)];
      const color = part.own ? style.color : mix(theme.muted, theme.page, 0.48 + 0.17 * (neutral++ % 3));
      group.append(
          svg('rect',
              {x: from.toFixed(1), y: y + 18, width: Math.max(0, to - from - 1).toFixed(1), height: 15, fill: color}));
      at += part.value;
    }
    return {y: y + 4, one, style, parts, total};
  });
  const probe = (px, py) => {
    const zone = zones.find((candidate) => py >= candidate.y && py < candidate.y + row - 8);
    if (!zone) return null;
    return {
      x: Math.min(Math.max(px, 0), plot.box.right),
      y: zone.y,
      heading: `${zone.one.label} · ${format(zone.total)}`,
      rows: zone.parts.map((part) => ({style: undefined, name: part.name, value: format(part.value)}))
    };
  };
  return {height, probe};
}

function timeFigure() {
  const timed = optimizers.filter((one) => known(one.step_ms));
  if (!timed.length) return null;
  const rows = () => timed.filter((one) => visible(one.id)).map((one) => {
    const own = Math.min(one.optimizer_ms ?? 0, one.step_ms);
    const share = known(one.optimizer_ms) ? ` · optimizer ${formatPercent(own / one.step_ms)}` : '';
    return {
      one,
      total: one.step_ms,
      text: formatMilliseconds(one.step_ms) + share,
      parts: [{name: 'optimizer', value: own, own: true}, {name: 'forward, backward, data', value: one.step_ms - own}]
    };
  });
  return new Figure({
    id: 'step-time',
    title: 'Time per step',
    note: 'Median training step. Color: the optimizer. Gray: forward, backward and data.',
    draw: (canvas) => drawBars(canvas, rows(), {format: formatMilliseconds, label: 'time per step', base: 1000}),
  });
}

const MEMORY_PARTS = [['optimizer', 'optimizer state'], ['weights', 'weights'], ['gradients', 'gradients']];

function memoryFigure() {
  const keys = ['peak', ...MEMORY_PARTS.map(([key]) => key)];
  const measured = optimizers.filter((one) => one.memory && keys.some((key) => known(one.memory[key])));
  if (!measured.length) return null;
  const rows = () => measured.filter((one) => visible(one.id)).map((one) => {
    const parts = MEMORY_PARTS.filter(([key]) => known(one.memory[key]))
                      .map(([key, name]) => ({name, value: one.memory[key], own: key === 'optimizer'}));
    const sum = parts.reduce((total, part) => total + part.value, 0);
    const total = Math.max(sum, one.memory.peak ?? 0);
    if (known(one.memory.peak) && total > sum)
      parts.push({name: parts.length ? 'activations and other' : 'peak', value: total - sum});
    const state = known(one.memory.optimizer) ? ` · optimizer state ${formatBytes(one.memory.optimizer)}` : '';
    return {one, total, text: formatBytes(total) + state, parts};
  });
  return new Figure({
    id: 'memory',
    title: 'Memory',
    note:
        'Peak during training. Color: optimizer state. Gray: weights, gradients, then activations and everything else.',
    draw: (canvas) => drawBars(canvas, rows(), {format: formatBytes, label: 'memory', base: 1024}),
  });
}
