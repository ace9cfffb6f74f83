// Formats numbers for readers. The format… functions accept null for an unknown value.

const NONE = '–';
const known = (value) => typeof value === 'number' && Number.isFinite(value);
const minus = (text) => text.replace('-', '\u2212');
const grouped = (digits) => digits.replace(/\B(?=(\d{3})+$)/g, '\u202f');

function significant(value, digits) {
  if (!known(value)) return NONE;
  if (value === 0) return '0';
  const size = Math.floor(Math.log10(Math.abs(Number(value.toPrecision(digits)))));
  if (size < -4 || size > 6) {
    const [mantissa, exponent] = value.toExponential(digits - 1).split('e');
    return minus(`${Number(mantissa)}e${Number(exponent)}`);
  }
  return minus(value.toFixed(Math.max(0, digits - 1 - size)));
}

const formatLoss = (value) => (known(value) ? minus(value.toFixed(3)) : NONE);
const formatSigned = (value) => (known(value) ? (value > 0 ? '+' : '') + formatLoss(value) : NONE);
const formatNumber = (value) => (known(value) ? minus(String(Number(value.toPrecision(4)))) : NONE);
const formatInteger = (value) => (known(value) ? minus(grouped(String(Math.round(value)))) : NONE);

// Three significant digits without trailing zeros.
const shortened = (value) => minus(String(Number(value.toPrecision(3))));

function formatRate(value) {
  if (!known(value)) return NONE;
  const short = Number(value.toPrecision(3));
  return short < 1e-3 ? short.toExponential().replace('e-', 'e\u2212') : String(short);
}

function scaled(value, units, base) {
  if (!known(value)) return NONE;
  let unit = 0;
  while (unit + 1 < units.length && Math.abs(value) >= base * 0.9995) {
    value /= base;
    ++unit;
  }
  const text = unit === 0 && Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(3)));
  return minus(text) + (units[unit] && '\u00a0' + units[unit]);
}

const formatCount = (value) => scaled(value, ['', 'k', 'M', 'G', 'T'], 1000);
const formatBytes = (value) => scaled(value, ['B', 'KiB', 'MiB', 'GiB', 'TiB'], 1024);
const formatMilliseconds = (value) => !known(value) ? NONE :
    value >= 1000                                   ? `${shortened(value / 1000)}\u00a0s` :
                                                      `${shortened(value)}\u00a0ms`;
const formatPercent = (value) =>
    (known(value) ? `${value < 0.095 ? significant(100 * value, 2) : Math.round(100 * value)}\u00a0%` : NONE);

function formatSeconds(value) {
  if (!known(value)) return NONE;
  if (value < 100) return `${significant(value, value < 10 ? 2 : 3)}\u00a0s`;
  const minutes = value / 60;
  if (minutes < 100) return `${significant(minutes, 3)}\u00a0min`;
  return `${significant(minutes / 60, 3)}\u00a0h`;
}

const formatFactor = (value) => (known(value) ? `${significant(value, 2)}×` : NONE);

// The quantities that a curve can be plotted against.
const ABSCISSAS = {
  step: {label: 'step', name: 'steps', format: formatInteger, tick: formatCount},
  tokens: {label: 'tokens', name: 'tokens', format: formatCount, tick: formatCount},
  seconds: {label: 'training time', name: 'time', format: formatSeconds, tick: formatSeconds},
};
