// The paper's numbers beside those measured here, one row each. Each side has its own scale, since only the order of the
// rows and the shape can be compared.

const PUBLISHED_GAP = 28;

function publishedName(value, values) {
  const several = values.some((other) => other.optimizer === value.optimizer && other.lr !== value.lr);
  const {label} = optimizerById.get(value.optimizer);
  return several ? `${label} at ${formatRate(value.lr)}` : label;
}

function publishedFigure() {
  const {published} = report;
  if (!published?.values.length) return null;
  return new Figure({
    id: 'published-values',
    title: 'The paper’s numbers and ours',
    note: 'Each side has its own scale: compare the order and the shape, not the size.',
    wide: true,
    draw: (canvas) => drawPublished(canvas, published, published.values.filter((one) => visible(one.optimizer))),
  });
}

// Draws one side: a dot for each value that is a number, and every value as text, beside the dots if there are any.
function drawPublishedSide(canvas, outer, label, rows) {
  const {theme} = canvas;
  const numbers = extent(rows.flatMap(({value, low, high}) => [value, low, high]));
  const room = Math.max(...rows.map(({text}) => measure(text, 12))) + 12;
  write(canvas.root, outer.left, outer.top + 12, label, {size: 12.5, weight: 620, color: theme.ink});
  const place = {...outer, width: outer.width - room, gutter: 0};
  const plot =
      numbers && new Plot(canvas, place, {domain: widen(numbers, 0.08)}, {domain: [0, 1], ticks: [], label: ' '});
  for (const tick of plot ? plot.x.ticks(Math.max(2, Math.round(plot.box.width / 84))) : [])
    plot.marks.append(
        svg('path', {d: `M${plot.x(tick).toFixed(1)} ${plot.box.top}V${plot.box.bottom}`, stroke: theme.grid}));
  for (const {y, key, value, low, high, text} of rows) {
    const style = styleOf(key, theme);
    const group = svg('g', {'data-key': key});
    canvas.root.append(group);
    if (known(value) && known(low) && known(high))
      group.append(svg('path', {
        d: `M${plot.x(low).toFixed(1)} ${y}H${plot.x(high).toFixed(1)}`,
        stroke: style.color,
        'stroke-width': 8,
        opacity: 0.25
      }));
    if (known(value)) plot.marker(plot.x(value), y, style, {size: 4.4, parent: group});
    const right = {size: 12, anchor: 'end', color: theme.ink, middle: true};
    write(group, plot ? outer.left + outer.width : outer.left, y, text, plot ? right : {...right, anchor: 'start'});
  }
}

function drawPublished(canvas, {paper_label: paper, here_label: here}, shown) {
  const {theme, width} = canvas;
  if (!shown.length) return drawNothing(canvas, 'All optimizers are hidden.');
  const names = shown.map((one) => publishedName(one, report.published.values));
  const beside = width >= NARROW;
  const left = beside ? Math.max(...names.map((name) => measure(name, 12.5, 600))) + 20 : 0;
  const row = beside ? 24 : 44;
  const top = 26;
  const height = top + shown.length * row + 24;
  const y = (i) => top + row * i + (beside ? row / 2 : row * 0.7);
  names.forEach((name, i) => {
    const group = svg('g', {'data-key': shown[i].optimizer});
    canvas.root.append(group);
    write(group, 0, beside ? y(i) : y(i) - 20, name, {size: 12.5, weight: 600, color: theme.ink, middle: true});
  });
  const side = (width - left - PUBLISHED_GAP) / 2;
  const rowsOf = (value, text, low, high) => shown.map((one, i) => ({
                                                         y: y(i),
                                                         key: one.optimizer,
                                                         value: one[value],
                                                         text: one[text],
                                                         low: one[low],
                                                         high: one[high],
                                                       }));
  const outer = {left, top: 0, width: side, height};
  drawPublishedSide(canvas, outer, `in the paper: ${paper}`, rowsOf('paper_value', 'paper'));
  drawPublishedSide(
      canvas, {...outer, left: left + side + PUBLISHED_GAP}, `here: ${here}`,
      rowsOf('here_value', 'here', 'here_low', 'here_high'));
  const probe = (px, py) => {
    const i = shown.findIndex((one, at) => Math.abs(py - y(at)) < row / 2);
    if (i < 0) return null;
    const style = styleOf(shown[i].optimizer, theme);
    const rows = [{style, name: 'in the paper', value: shown[i].paper}, {style, name: 'here', value: shown[i].here}];
    return {x: px, y: y(i), heading: names[i], rows};
  };
  return {height, probe};
}
