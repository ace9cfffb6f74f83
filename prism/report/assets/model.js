// The document of the page (prism/report/page.h defines it) and functions that several figures share.

const report = JSON.parse(document.getElementById('document').textContent);
const optimizers = report.optimizers ?? [];
const runs = report.runs ?? [];

// The baseline has index 0, the neutral look; the others follow in the document's order.
{
  let next = 1;
  for (const one of optimizers) one.index = one.id === report.baseline ? 0 : next++;
}
const optimizerById = new Map(optimizers.map((one) => [one.id, one]));
const baseline = optimizerById.get(report.baseline);
const tolerance = report.tolerance ?? 0.02;

const visible = (id) => !view.hidden.has(id);
// A page with one optimizer needs no legend.
const legendOf = (list) =>
    (optimizers.length > 1 ? () => list.map(({id, label, index}) => ({key: id, label, index})) : undefined);
const styleOf = (id, theme) => look(optimizerById.get(id).index, theme);

function runName(run, among) {
  const {label} = optimizerById.get(run.optimizer);
  const others = among.filter((other) => other.optimizer === run.optimizer);
  const rate = others.some((other) => other.lr !== run.lr) ? ` · ${formatRate(run.lr)}` : '';
  const seed = others.some((other) => other.lr === run.lr && other.seed !== run.seed) ? ` · seed ${run.seed}` : '';
  return label + rate + seed;
}

// Replaces each value by a local linear fit, with weight exp(−d²/2h²) for a neighbor d points away. A weighted mean
// (Nadaraya-Watson) would be biased at the ends of a slope.
function smooth(values, h) {
  if (!(h > 0.3)) return values;
  const reach = Math.ceil(3 * h);
  const weights = [...Array(reach + 1).keys()].map((d) => Math.exp((-d * d) / (2 * h * h)));
  return values.map((value, i) => {
    if (!known(value)) return value;
    let [s0, s1, s2, t0, t1] = [0, 0, 0, 0, 0];
    for (let j = Math.max(0, i - reach); j <= Math.min(values.length - 1, i + reach); ++j) {
      if (!known(values[j])) continue;
      const d = j - i;
      const w = weights[Math.abs(d)];
      s0 += w;
      s1 += w * d;
      s2 += w * d * d;
      t0 += w * values[j];
      t1 += w * d * values[j];
    }
    const determinant = s0 * s2 - s1 * s1;
    return determinant > 1e-9 * s0 * s2 ? (s2 * t0 - s1 * t1) / determinant : t0 / s0;
  });
}
