// Everything needed to check and repeat the results: samples, command, machine, runs, routing and configuration.

// Merges rows that differ only in the number of the layer: "model.layers.{0…7}.mlp.up_proj.weight".
function groupedRouting(rows) {
  const groups = new Map();
  for (const row of rows) {
    const words = row.parameter.split('.');
    const at = words.findIndex((word) => /^\d+$/.test(word));
    const pattern = words.map((word, i) => (i === at ? '{}' : word)).join('.');
    const key = JSON.stringify([pattern, row.shape, row.to, row.rule]);
    if (!groups.has(key)) groups.set(key, {...row, pattern, numbers: []});
    if (at >= 0) groups.get(key).numbers.push(Number(words[at]));
  }
  return [...groups.values()].map((group) => {
    const [low, high] = [Math.min(...group.numbers), Math.max(...group.numbers)];
    const complete = high - low + 1 === group.numbers.length;
    const inside = low === high ? String(low) : complete ? `{${low}…${high}}` : `{${group.numbers.join(',')}}`;
    return {...group, name: group.pattern.replace('{}', inside), count: Math.max(1, group.numbers.length)};
  });
}

function routingTable(rows) {
  const columns = [
    ['Parameter', (row) => html('code', {}, row.name)],
    ['Shape', (row) => (row.shape ? row.shape.join(' × ') : NONE)],
    ['Tensors', (row) => String(row.count)],
    ['Optimizer', (row) => row.to],
    ['Rule', (row) => row.rule ?? ''],
  ].filter(([title]) => title !== 'Rule' || rows.some((row) => row.rule));
  return scrollTable(null, columns, groupedRouting(rows));
}

function routingSection() {
  if (!report.routing?.length) return null;
  const same = report.routing.length > 1 &&
      report.routing.every((one) => JSON.stringify(one.rows) === JSON.stringify(report.routing[0].rows));
  const shown = same ? report.routing.slice(0, 1) : report.routing;
  const content = shown.flatMap(
      (one) =>
          [report.routing.length > 1 && !same ?
               html('h3', {}, optimizerById.get(one.optimizer)?.label ?? one.optimizer) :
               null,
           routingTable(one.rows)]);
  return fold('Routing: which optimizer trains which parameter', '', content);
}

const fold = (title, count, ...content) => html(
    'details', {}, html('summary', {}, title, count ? html('span', {class: 'count'}, count) : null),
    html('div', {}, content));

function codeBlock(text, wrap) {
  return html('div', {class: wrap ? 'code wrap' : 'code'}, html('pre', {tabindex: '0'}, text), copyButton(text));
}

function samplesSection() {
  if (!report.samples?.length) return null;
  return html(
      'section', {id: 'samples'},
      html(
          'header', {}, html('h2', {}, 'What the models write'),
          html(
              'p', {},
              'A few lines that each model generated from the same prompt. Small models write nonsense; judge by the losses above.')),
      html(
          'div', {class: 'samples'},
          report.samples.map(
              (one) => html(
                  'div', {},
                  html(
                      'div', {class: 'who', 'data-swatch': one.optimizer}, keyIcon(styleOf(one.optimizer, themeNow())),
                      optimizerById.get(one.optimizer).label),
                  html('pre', {}, one.prompt ? html('span', {class: 'prompt'}, one.prompt) : '', one.text)))));
}

function factsTables() {
  if (!report.facts?.length) return null;
  return html(
      'div', {class: 'facts'},
      report.facts.map(
          (group) => html(
              'div', {}, html('h3', {}, group.title),
              html(
                  'table', {},
                  html(
                      'tbody', {},
                      group.rows.map(
                          ([name, value]) => html('tr', {}, html('td', {}, name), html('td', {}, value))))))));
}

function setupSection() {
  const folds = [
    runs.length > 1 ? fold('All runs', `${runs.length}`, runsTable()) : null,
    routingSection(),
    report.config ? fold('Configuration', '', codeBlock(report.config)) : null,
  ].filter(Boolean);
  if (!folds.length && !report.command && !report.facts?.length) return null;
  return html(
      'section', {id: 'setup'},
      html(
          'header', {}, html('h2', {}, 'Setup'),
          report.command ? html('p', {}, 'Run this command to reproduce the page:') : null),
      report.command ? codeBlock(report.command, true) : null, factsTables(),
      folds.length ? html('div', {style: 'margin-top:28px'}, folds) : null);
}
