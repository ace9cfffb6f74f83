// Scales map a domain of numbers to pixels: scale(value), scale.invert(pixel), scale.ticks(count).

function niceStep(span, count) {
  const rough = span / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const multiple = [1, 2, 2.5, 5, 10].find((m) => m * power >= rough * 0.999);
  return multiple * power;
}

function linearTicks(low, high, count) {
  if (!(high > low)) return [low];
  const step = niceStep(high - low, count);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i)
    ticks.push(Number((i * step).toPrecision(12)));
  return ticks;
}

function logTicks(low, high, count) {
  const decades = Math.log10(high / low);
  if (decades < 1) {
    const ticks = linearTicks(low, high, count).filter((tick) => tick > 0);
    if (ticks.length > 1) return ticks;
  }
  const multiples = decades > count / 2 ? [1] : decades > count / 3 ? [1, 3] : [1, 2, 5];
  const skip = multiples.length === 1 ? Math.max(1, Math.ceil(decades / count)) : 1;
  const ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); ++power) {
    if (power % skip) continue;
    for (const multiple of multiples) {
      const tick = multiple * 10 ** power;
      if (tick >= low * 0.9999 && tick <= high * 1.0001) ticks.push(Number(tick.toPrecision(12)));
    }
  }
  return ticks;
}

function makeScale({log, domain: [low, high], range: [from, to]}) {
  if (!(high > low)) {
    const pad = log ? 1.1 : Math.abs(low) * 0.05 || 1;
    [low, high] = log ? [low / pad, low * pad] : [low - pad, low + pad];
  }
  const forward = log ? Math.log : (value) => value;
  const backward = log ? Math.exp : (value) => value;
  const start = forward(low);
  const factor = (to - from) / (forward(high) - start);
  const scale = (value) => from + (forward(value) - start) * factor;
  scale.invert = (pixel) => backward(start + (pixel - from) / factor);
  scale.ticks = (count) => (log ? logTicks(low, high, count) : linearTicks(low, high, count));
  return Object.assign(scale, {log: Boolean(log)});
}

// Returns the smallest and the largest usable number, or undefined if there is none.
function extent(values, log) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (!known(value) || (log && value <= 0)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? [low, high] : undefined;
}

// Extends a domain on both sides by a fraction of its length.
function widen([low, high], fraction, log) {
  if (log) {
    const factor = (high / low) ** fraction || 1;
    return [low / factor, high * factor];
  }
  const pad = (high - low) * fraction;
  return [low - pad, high + pad];
}

function quantile(values, q) {
  const sorted = values.filter(known).sort((a, b) => a - b);
  if (!sorted.length) return undefined;
  const at = (sorted.length - 1) * q;
  const below = sorted[Math.floor(at)];
  return below + (sorted[Math.ceil(at)] - below) * (at % 1);
}

// Returns a format for the ticks of one axis, with the same number of decimals for all.
function tickFormat(ticks, format, log) {
  if (format) return format;
  if (log) return formatNumber;
  const decimals =
      Math.max(0, ...ticks.map((tick) => (String(Number(tick.toPrecision(6))).split('.')[1] ?? '').length));
  return decimals > 4 || ticks.some((tick) => String(tick).includes('e')) ?
      (tick) => significant(tick, 1) :
      (tick) => minus(Math.abs(tick) >= 1e4 ? formatCount(tick) : tick.toFixed(decimals));
}
