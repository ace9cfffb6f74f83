// Colors of the figures. The series colors remain distinct with protan, deutan and tritan vision, and every series also
// has its own dash and marker. The baseline of a comparison always has the neutral first color.

const THEMES = {
  light: {
    page: '#ffffff',
    ink: '#16181d',
    muted: '#5a616d',
    grid: '#e9ebef',
    axis: '#8b929e',
    shade: '#eef0f3',
    series: ['#4a505b', '#2457d6', '#b83a0b', '#1ba345', '#d6439c', '#86791f', '#16808f', '#9c80d2'],
    ramp: ['#f0a13c', '#d4574e', '#93318a', '#2b2373'],
  },
  dark: {
    page: '#14161a',
    ink: '#eceef2',
    muted: '#a4abb8',
    grid: '#272b32',
    axis: '#6d7581',
    shade: '#1f2329',
    series: ['#c3c8d1', '#5b95ff', '#ee6a1c', '#6ae892', '#c070a6', '#d3ad6e', '#3bbff9', '#a88cc2'],
    ramp: ['#7a5bd6', '#c45bb5', '#f58a63', '#fbdc7a'],
  },
};
const PAPER = THEMES.light;
const FONT =
    'Inter, -apple-system, \'Segoe UI\', Roboto, \'Helvetica Neue\', Helvetica, Arial, \'Liberation Sans\', sans-serif';
const DASHES = ['5 3', null, '11 3', '9 2.5 2 2.5', '2 2.5', '14 3 2 3 2 3', '7 2', '2 3 6 3'];
const MARKERS = ['square', 'circle', 'triangle', 'diamond', 'cross', 'down', 'plus', 'star'];

const themeNow = () => {
  const chosen = document.documentElement.dataset.theme;
  if (chosen) return THEMES[chosen];
  return matchMedia('(prefers-color-scheme: dark)').matches ? THEMES.dark : THEMES.light;
};

const channels = (color) => [1, 3, 5].map((i) => parseInt(color.slice(i, i + 2), 16));
const mix = (a, b, t) => {
  const [from, to] = [channels(a), channels(b)];
  return '#' + from.map((c, i) => Math.round(c + (to[i] - c) * t).toString(16).padStart(2, '0')).join('');
};

// Returns the look of a series. After the eighth, colors repeat, closer to the ink, with other dashes and markers.
function look(index, theme) {
  const round = Math.floor(index / theme.series.length);
  const other = index + 3 * round;
  return {
    color: mix(theme.series[index % theme.series.length], theme.ink, Math.min(0.4 * round, 0.8)),
    dash: DASHES[other % DASHES.length],
    marker: MARKERS[other % MARKERS.length],
  };
}

// Returns the sequential color at t in [0, 1], which shows depth or time.
function ramp(theme, t) {
  const at = Math.min(Math.max(t, 0), 1) * (theme.ramp.length - 1);
  const i = Math.min(Math.floor(at), theme.ramp.length - 2);
  return mix(theme.ramp[i], theme.ramp[i + 1], at - i);
}

function markerPath(kind, x, y, r) {
  const move = (points) =>
      'M' + points.map(([dx, dy]) => `${(x + dx * r).toFixed(1)} ${(y + dy * r).toFixed(1)}`).join('L');
  switch (kind) {
    case 'square':
      return move([[-0.85, -0.85], [0.85, -0.85], [0.85, 0.85], [-0.85, 0.85]]) + 'Z';
    case 'triangle':
      return move([[0, -1.15], [1.1, 0.8], [-1.1, 0.8]]) + 'Z';
    case 'down':
      return move([[0, 1.15], [1.1, -0.8], [-1.1, -0.8]]) + 'Z';
    case 'diamond':
      return move([[0, -1.25], [1.1, 0], [0, 1.25], [-1.1, 0]]) + 'Z';
    case 'plus':
      return move([
               [-0.35, -1.1], [0.35, -1.1], [0.35, -0.35], [1.1, -0.35], [1.1, 0.35], [0.35, 0.35], [0.35, 1.1],
               [-0.35, 1.1], [-0.35, 0.35], [-1.1, 0.35], [-1.1, -0.35], [-0.35, -0.35]
             ]) +
          'Z';
    case 'cross':
      return move([
               [-1, -0.6], [-0.6, -1], [0, -0.4], [0.6, -1], [1, -0.6], [0.4, 0], [1, 0.6], [0.6, 1], [0, 0.4],
               [-0.6, 1], [-1, 0.6], [-0.4, 0]
             ]) +
          'Z';
    case 'star':
      return move([...Array(10).keys()].map(
                 (i) =>
                     [Math.sin((i * Math.PI) / 5) * (i % 2 ? 0.5 : 1.25),
                      -Math.cos((i * Math.PI) / 5) * (i % 2 ? 0.5 : 1.25)])) +
          'Z';
    default:
      return `M${(x - r).toFixed(1)} ${y.toFixed(1)}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${- 2 * r} 0Z`;
  }
}

// Returns the line and marker of a legend entry, at (x, y) inside a figure.
function keySymbol(style, {x = 0, y = 6} = {}) {
  return svg(
      'g',
      {},
      svg('path',
          {d: `M${x} ${y}h26`, stroke: style.color, 'stroke-width': 2.2, 'stroke-dasharray': style.dash, fill: 'none'}),
      svg('path', {d: markerPath(style.marker, x + 13, y, 4), fill: style.color}),
  );
}
const keyIcon = (style) => svg('svg', {class: 'key', viewBox: '0 0 26 12', 'aria-hidden': 'true'}, keySymbol(style));
