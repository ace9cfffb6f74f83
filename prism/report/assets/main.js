// Assembles the page. Sections without data are left out.

function themeSwitch() {
  const apply = (value) => {
    if (value === 'auto')
      delete document.documentElement.dataset.theme;
    else
      document.documentElement.dataset.theme = value;
    repaint();
  };
  return choice('colors', [['auto', 'Auto'], ['light', 'Light'], ['dark', 'Dark']], 'auto', apply);
}

function repaint() {
  redrawAll();
  refreshSwatches();
}

function topBar(sections) {
  const sign = svg(
      'svg', {viewBox: '0 0 24 24', 'aria-hidden': 'true'},
      svg('path',
          {d: 'M12 3 22 20H2Z', fill: 'none', stroke: 'currentColor', 'stroke-width': 1.8, 'stroke-linejoin': 'round'}),
      svg('path', {d: 'M0 14 8.6 11', stroke: 'currentColor', 'stroke-width': 1.4}),
      ['#b83a0b', '#1ba345', '#2457d6'].map(
          (color, i) =>
              svg('path', {d: `M15.5 ${10.4 + i * 0.5} 24 ${10 + i * 3.4}`, stroke: color, 'stroke-width': 1.6})));
  return [
    html(
        'div', {class: 'top'},
        html(
            'div', {class: 'name'}, sign,
            html(
                'div', {}, html('h1', {}, report.title),
                html('div', {class: 'meta'}, [report.program, report.created].filter(Boolean).join(' · ')))),
        themeSwitch()),
    sections.length > 2 ?
        html('nav', {'aria-label': 'sections'}, sections.map(([id, name]) => html('a', {href: `#${id}`}, name))) :
        null,
  ];
}

function summarySection() {
  const lines =
      (report.summary ?? [])
          .map(
              ({text, tone = 'plain'}) => tone === 'headline' ?
                  html('h2', {class: 'headline'}, sentence(text)) :
                  html('p', {class: tone}, tone === 'caution' ? html('span', {}, sentence(text)) : sentence(text)));
  const tiles = report.highlights?.length ?
      html(
          'dl', {class: 'highlights'},
          report.highlights.map(({value, label}) => html('div', {}, html('dt', {}, value), html('dd', {}, label)))) :
      null;
  return html('section', {id: 'summary', class: 'summary'}, lines, tiles);
}

function group(id, title, parts) {
  const kept = parts.filter(Boolean).map((part) => (part instanceof Figure ? part.element : part));
  if (!kept.some((part) => part.matches('figure, table'))) return null;
  const plain = kept.filter((part) => !part.matches('figure'));
  const drawn = kept.filter((part) => part.matches('figure'));
  return html(
      'section', {id}, html('header', {}, html('h2', {}, title)), plain,
      drawn.length ? html('div', {class: 'figures'}, drawn) : null);
}

function resultsSection() {
  const table = optimizers.length > 1 ? resultsTable() : null;
  const seeds = seedsFigure();
  if (!table && !seeds) return null;
  const confidence = report.confidence ?
      ` Intervals are at the ${formatNumber(100 * report.confidence)} % level, paired by seed.` :
      '';
  return html(
      'section', {id: 'results'},
      html(
          'header', {}, html('h2', {}, 'Best rate against best rate'),
          html('p', {}, `Each optimizer at its own best learning rate.${confidence}`)),
      table && html('div', {class: 'scroll'}, table),
      seeds ? html('div', {class: 'figures', style: 'margin-top:36px'}, seeds.element) : null);
}

// The gain of a single run is a narrow figure, so the weight norm goes beside it.
function mechanismFigures() {
  const gain = gainFigure();
  return gain && !gain.wide ? [gain, normFigure(false), spectraFigure()] : [gain, spectraFigure(), normFigure(true)];
}

function build() {
  const sections = [
    ['summary', 'Summary', summarySection()],
    ['published', 'The paper', group('published', 'Compared with the paper', [publishedFigure()])],
    ['rates', 'Learning rates', group('rates', 'How much tuning does each optimizer need?', [sweepFigure()])],
    ['results', 'Results', resultsSection()],
    ['curves', 'Curves', group('curves', 'During training', [curveControls(), trainLossFigure(), heldOutFigure()])],
    ['cost', 'Cost', group('cost', 'Cost of a step', [timeFigure(), memoryFigure()])],
    ['mechanism', 'Mechanism', group('mechanism', 'Inside the optimizer', mechanismFigures())],
    ['samples', 'Samples', samplesSection()],
    ['setup', 'Setup', setupSection()],
  ].filter(([, , element]) => element);
  document.body.append(
      ...topBar(sections).filter(Boolean), html('main', {}, sections.map(([, , element]) => element)),
      html(
          'footer', {},
          'This page is one file and makes no network requests. Point at a figure to see its values, click a legend entry to hide a line, and download any figure as SVG for a paper.'));
  repaint();
}

function print(begin) {
  view.printing = begin;
  for (const element of document.querySelectorAll('details')) {
    if (begin) element.dataset.wasOpen = element.open;
    element.open = begin || element.dataset.wasOpen === 'true';
  }
  repaint();
}

build();
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', repaint);
addEventListener('beforeprint', () => print(true));
addEventListener('afterprint', () => print(false));
