// The table of results, the figure of seeds and the table of runs.

const cell = (label, ...content) => html('td', {'data-label': label}, content);
const main = (...text) => html('div', {class: 'main'}, text);
const sub = (...text) => html('div', {class: 'sub'}, text);
const optimizerName = (one) => html(
    'div', {class: 'optimizer', 'data-swatch': one.id}, keyIcon(look(one.index, themeNow())),
    html('span', {}, one.label));

// Returns a table with one row per item. Columns are [title, content(item)].
function scrollTable(id, columns, items) {
  const head = html('tr', {}, columns.map(([title]) => html('th', {scope: 'col'}, title)));
  const rows = items.map((item) => html('tr', {}, columns.map(([title, content]) => cell(title, content(item)))));
  return html('div', {class: 'scroll'}, html('table', {id}, html('thead', {}, head), html('tbody', {}, rows)));
}

// Redraws the icons and intervals in tables in the current theme.
function refreshSwatches() {
  const theme = view.printing ? PAPER : themeNow();
  for (const element of document.querySelectorAll('[data-swatch]'))
    element.firstChild.replaceWith(keyIcon(styleOf(element.dataset.swatch, theme)));
  for (const element of document.querySelectorAll('[data-interval]'))
    element.replaceChildren(...intervalMarks(optimizerById.get(element.dataset.interval), theme));
}

const withInterval = ({mean, low, high}) =>
    `${formatLoss(mean)}${known(low) && known(high) ? ` ± ${formatLoss((high - low) / 2)}` : ''}`;
const spread = ({low, high}) =>
    (known(low) && known(high) ? `${formatSigned(low)} to ${formatSigned(high)}` : 'interval unknown');

function intervalMarks(one, theme) {
  const all = optimizers.flatMap(({difference: d}) => (d ? [d.mean, d.low, d.high] : []));
  const scale = makeScale({domain: extent([0, ...all]), range: [6, 144]});
  const x = (value) => scale(value).toFixed(1);
  const {mean, low, high} = one.difference;
  const style = look(one.index, theme);
  return [
    svg('path', {d: `M${x(0)} 1V21`, stroke: theme.axis, 'stroke-dasharray': '2 2'}),
    known(low) && known(high) ?
        svg('path', {d: `M${x(low)} 11H${x(high)}`, stroke: style.color, 'stroke-width': 7, opacity: 0.28}) :
        '',
    known(mean) ? svg('path', {d: markerPath(style.marker, Number(x(mean)), 11, 3.8), fill: style.color}) : '',
  ];
}

function differenceCell(label, one) {
  if (one === baseline) return cell(label, main('baseline'));
  const {difference: d} = one;
  if (!d || !known(d.mean)) return cell(label, main(NONE));
  const marks = svg('svg', {class: 'interval', viewBox: '0 0 150 22', 'data-interval': one.id, 'aria-hidden': 'true'});
  return cell(label, main(formatSigned(d.mean)), marks, sub(spread(d)));
}

// Returns a factor to the baseline in words, with the digits that formatFactor shows.
function speedText(speedup) {
  if (formatFactor(Math.max(speedup, 1 / speedup)) === formatFactor(1)) return 'about as fast';
  return speedup > 1 ? `${formatFactor(speedup)} faster` : `${formatFactor(1 / speedup)} slower`;
}

function reachCell(label, one, value, speedup, format) {
  if (value === undefined) return cell(label, main(NONE));
  if (value === null) return cell(label, main('not reached'));
  return cell(label, main(format(value)), known(speedup) && one !== baseline ? sub(speedText(speedup)) : '');
}

function toleranceCell(label, one) {
  const {tolerance: t} = one;
  if (!t) return cell(label, main(NONE));
  return cell(
      label, main(toleranceFactor(one)),
      sub(`${formatRate(Number(t.low.toPrecision(2)))} – ${formatRate(Number(t.high.toPrecision(2)))}`),
      t.low_open || t.high_open ? html('div', {class: 'flag'}, 'up to the end of the grid') : '');
}

const baselineName = baseline?.label ?? 'the baseline';

// The table shows a column if `has` is true for any optimizer.
const RESULT_COLUMNS = [
  {
    title: 'Best rate',
    has: (one) => known(one.best_lr),
    cell: (title, one) => cell(
        title, main(formatRate(one.best_lr)),
        one.edge ? html('div', {class: 'flag'}, `${one.edge === 'low' ? 'lowest' : 'highest'} tried`) : '')
  },
  {title: 'Rate tolerance', has: (one) => one.tolerance, cell: toleranceCell},
  {
    title: 'Held-out loss',
    has: (one) => one.final,
    cell: (title, one) => cell(
        title, main(one.final ? withInterval(one.final) : NONE),
        one.final ? sub(`${one.final.seeds.length} ${one.final.seeds.length === 1 ? 'seed' : 'seeds'}`) : '')
  },
  {title: `Difference from ${baselineName}`, has: (one) => one.difference, cell: differenceCell},
  {
    title: `Tokens to ${baselineName}’s loss`,
    has: (one) => one.tokens_to_baseline !== undefined,
    cell: (title, one) => reachCell(title, one, one.tokens_to_baseline, one.tokens_speedup, formatCount)
  },
  {
    title: `Time to ${baselineName}’s loss`,
    has: (one) => one.seconds_to_baseline !== undefined,
    cell: (title, one) => reachCell(title, one, one.seconds_to_baseline, one.seconds_speedup, formatSeconds)
  },
  {
    title: 'Time per step',
    has: (one) => known(one.step_ms),
    cell: (title, one) => cell(
        title, main(formatMilliseconds(one.step_ms)),
        known(one.optimizer_ms) && known(one.step_ms) ?
            sub(`optimizer ${formatPercent(one.optimizer_ms / one.step_ms)}`) :
            '')
  },
  {
    title: 'Peak memory',
    has: (one) => known(one.memory?.peak),
    cell: (title, one) =>
        cell(title, main(formatBytes(one.memory?.peak)), one.memory?.of ? sub(`on the ${one.memory.of}`) : '')
  },
];

function resultsTable() {
  const columns = RESULT_COLUMNS.filter((column) => optimizers.some(column.has));
  if (columns.length < 2) return null;
  const rows = optimizers.map(
      (one) => html(
          'tr', {class: one === baseline ? 'baseline' : '', 'data-optimizer': one.id},
          cell('Optimizer', optimizerName(one), one.detail ? sub(one.detail) : ''),
          columns.map((column) => column.cell(column.title, one))));
  return html(
      'table', {class: 'cards', id: 'results-table'},
      html(
          'thead', {},
          html(
              'tr', {},
              ['Optimizer', ...columns.map((column) => column.title)].map(
                  (title) => html('th', {scope: 'col'}, title)))),
      html('tbody', {}, rows));
}

function seedsFigure() {
  const measured = optimizers.filter((one) => one.final && one.final.seeds.length > 1);
  if (measured.length < 2) return null;
  const confidence = report.confidence ? `${formatNumber(100 * report.confidence)} % interval` : 'interval';
  return new Figure({
    id: 'seeds',
    title: 'Every seed',
    wide: true,
    note: `Held-out loss of every seed at the optimizer's best rate. The bar is the ${confidence} of the mean.`,
    draw: (canvas) => drawSeeds(canvas, measured.filter((one) => visible(one.id))),
  });
}

function drawSeeds(canvas, shown) {
  const {theme, width} = canvas;
  const wide = width >= NARROW;
  const row = wide ? 34 : 46;
  const height = shown.length * row + 38 + 17;
  const domain = extent(shown.flatMap(({final: f}) => [f.low, f.high, f.mean, ...f.seeds.map((one) => one.loss)]));
  if (!domain) return drawNothing(canvas, 'All optimizers are hidden.');
  const names = wide ? Math.max(...shown.map((one) => measure(one.label, 12.5, 600))) + 18 : 0;
  const values = wide ? 108 : 6;
  const plot = new Plot(
      canvas, {left: names, top: 0, width: width - names - values, height, gutter: 0},
      {domain: widen(domain, 0.06), label: 'held-out loss'}, {domain: [0, 1], ticks: []});
  const spots = [];
  for (const tick of plot.x.ticks(Math.max(2, Math.round(plot.box.width / 84))))
    plot.marks.append(
        svg('path', {d: `M${plot.x(tick).toFixed(1)} ${plot.box.top}V${plot.box.bottom}`, stroke: theme.grid}));
  shown.forEach((one, i) => {
    const style = styleOf(one.id, theme);
    const y = plot.box.top + row * i + (wide ? row / 2 : row * 0.68);
    const group = svg('g', {'data-key': one.id});
    plot.layer.append(group);
    const {mean, low, high, seeds} = one.final;
    if (known(low) && known(high))
      group.append(svg('rect', {
        x: plot.x(low),
        y: y - 6,
        width: Math.max(1, plot.x(high) - plot.x(low)),
        height: 12,
        rx: 2,
        fill: style.color,
        opacity: 0.2
      }));
    if (known(mean))
      group.append(
          svg('path', {d: `M${plot.x(mean).toFixed(1)} ${y - 9}v18`, stroke: style.color, 'stroke-width': 2.4}));
    for (const {seed, loss} of seeds) {
      if (!known(loss)) continue;
      plot.marker(plot.x(loss), y, style, {size: 3.6, key: one.id, parent: group});
      spots.push({x: plot.x(loss), y, heading: `seed ${seed}`, one, style, loss});
    }
    write(group, 0, wide ? y : y - 21, one.label, {size: 12.5, weight: 600, color: theme.ink, middle: true});
    write(
        group, wide ? width : width - 2, wide ? y : y - 21, withInterval(one.final),
        {size: 12.5, anchor: 'end', color: theme.ink, middle: true});
  });
  const probe = (px, py) => {
    const near =
        spots.map((spot) => ({...spot, away: Math.hypot(spot.x - px, spot.y - py)})).sort((a, b) => a.away - b.away)[0];
    return near && near.away < 24 ?
        {...near, rows: [{style: near.style, name: near.one.label, value: formatLoss(near.loss)}], marks: [near]} :
        null;
  };
  return {height, probe};
}

function runsTable() {
  const status = (run) =>
      (run.status === 'finished' ? 'finished' :
                                   html(
                                       'span', {class: 'bad'}, run.status,
                                       known(run.stopped_step) ? ` at step ${formatInteger(run.stopped_step)}` : ''));
  const columns = [
    ['Optimizer', (run) => optimizerName(optimizerById.get(run.optimizer))],
    ['Rate', (run) => formatRate(run.lr)],
    ['Seed', (run) => String(run.seed ?? NONE)],
    ['Status', status],
    ['Held-out loss', (run) => formatLoss(run.val_loss)],
    ['Training loss', (run) => formatLoss(run.loss)],
    ['Time', (run) => formatSeconds(run.seconds)],
    ['Folder', (run) => (run.folder ? html('code', {}, run.folder) : NONE)],
  ];
  return scrollTable('runs-table', columns, runs);
}
