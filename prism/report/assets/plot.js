// Marks and axes. A canvas is { root, theme, width, paper }: the element to draw into, the colors, the width, and true
// for a downloaded figure.

let clipCount = 0;
const measuring = document.createElement('canvas').getContext('2d');
function measure(text, size = 11.5, weight = 400) {
  measuring.font = `${weight} ${size}px ${FONT}`;
  return measuring.measureText(text).width;
}

function write(parent, x, y, text, {size = 11.5, weight, anchor, color, middle, halo} = {}) {
  const element =
      svg('text', {
        x: x.toFixed(1),
        y: (middle ? y + size * 0.35 : y).toFixed(1),
        fill: color,
        'font-size': size,
        'font-weight': weight,
        'text-anchor': anchor,
        ...(halo && {stroke: halo, 'stroke-width': 3.5, 'stroke-linejoin': 'round', 'paint-order': 'stroke'})
      },
          text);
  parent.append(element);
  return element;
}

// Returns a path through the points [x, y] in pixels, with a gap where a coordinate is not finite.
function pathThrough(points) {
  let path = '';
  let pen = 'M';
  for (const [x, y] of points) {
    if (!Number.isFinite(x) || !Number.isFinite(y)) {
      pen = 'M';
      continue;
    }
    path += `${pen}${x.toFixed(1)} ${y.toFixed(1)}`;
    pen = 'L';
  }
  return path;
}

// A rectangle with axes. `outer` is the space for it all; `x` and `y` are { domain, log, ticks, format, label }.
class Plot {
  constructor(canvas, outer, x, y) {
    this.canvas = canvas;
    this.theme = canvas.theme;
    this.layer = svg('g');
    canvas.root.append(this.layer);
    this.yTicks =
        y.ticks ?? makeScale({...y, range: [0, 1]}).ticks(Math.max(y.log ? 4 : 2, Math.round(outer.height / 58)));
    const yFormat = tickFormat(this.yTicks, y.format, y.log);
    const gutter = outer.gutter ?? Math.max(0, ...this.yTicks.map((tick) => measure(yFormat(tick)))) + 9;
    const top = outer.top + (y.label ? 24 : 8);
    const bottom = outer.top + outer.height - 20 - (x.label ? 17 : 0);
    this.box = {left: outer.left + gutter, top, right: outer.left + outer.width, bottom};
    this.box.width = this.box.right - this.box.left;
    this.box.height = bottom - top;
    this.x = makeScale({log: x.log, domain: x.domain, range: [this.box.left, this.box.right]});
    this.y = makeScale({log: y.log, domain: y.domain, range: [bottom, top]});
    this.yAxis(y, yFormat, outer.left);
    this.xAxis(x, outer.left, outer.left + outer.width + (outer.after ?? 0));
    const clip = `clip-${++clipCount}`;
    this.layer.append(
        svg('clipPath', {id: clip},
            svg('rect', {x: this.box.left - 5, y: top - 1, width: this.box.width + 10, height: this.box.height + 2})));
    this.marks = svg('g', {'clip-path': `url(#${clip})`});
    this.layer.append(this.marks);
  }

  yAxis(y, format, left) {
    const {box, theme, layer} = this;
    for (const tick of this.yTicks) {
      const at = this.y(tick);
      if (at > box.bottom + 0.5 || at < box.top - 0.5) continue;
      layer.append(svg('path', {d: `M${box.left} ${at.toFixed(1)}H${box.right}`, stroke: theme.grid}));
      write(layer, box.left - 7, at, format(tick), {anchor: 'end', color: theme.muted, middle: true});
    }
    if (y.label) write(layer, left, box.top - 12, y.label, {color: theme.muted});
  }

  // Keeps labels between `left` and `right`.
  xAxis(x, left, right) {
    const {box, theme, layer} = this;
    layer.append(svg('path', {d: `M${box.left} ${box.bottom + 0.5}H${box.right}`, stroke: theme.axis}));
    const ticks = (x.ticks ?? this.x.ticks(Math.max(x.log ? 3 : 2, Math.round(box.width / 84))))
                      .filter((tick) => this.x(tick) >= box.left - 1 && this.x(tick) <= box.right + 1);
    const format = tickFormat(ticks, x.format, x.log);
    let free = -Infinity;
    for (const tick of ticks) {
      const at = this.x(tick);
      layer.append(svg('path', {d: `M${at.toFixed(1)} ${box.bottom}v4`, stroke: theme.axis}));
      const half = measure(format(tick)) / 2;
      const shift = Math.max(left - (at - half), 0) + Math.min(0, right - (at + half));
      if (at - half + shift < free) continue;
      write(layer, at + shift, box.bottom + 16, format(tick), {anchor: 'middle', color: theme.muted});
      free = at + half + 6;
    }
    if (x.label) write(layer, box.right, box.bottom + 33, `${x.label} →`, {anchor: 'end', color: theme.muted});
  }

  place([x, y]) {
    const usable = known(x) && known(y) && (!this.x.log || x > 0) && (!this.y.log || y > 0);
    return usable ? [this.x(x), this.y(y)] : [NaN, NaN];
  }

  line(points, {color, dash, width = 1.8, opacity, key, parent = this.marks}) {
    const d = pathThrough(points.map((point) => this.place(point)));
    parent.append(svg('path', {
      d,
      fill: 'none',
      stroke: color,
      'stroke-width': width,
      'stroke-dasharray': dash,
      'stroke-linejoin': 'round',
      'stroke-linecap': dash ? 'butt' : 'round',
      opacity,
      'data-key': key
    }));
  }

  // Fills the area between low and high of the points [x, low, high].
  band(points, {color, opacity, key}) {
    const inside = points.filter(
        ([x, low, high]) =>
            known(x) && known(low) && known(high) && (!this.y.log || low > 0) && (!this.x.log || x > 0));
    const there = inside.map(([x, , high]) => this.place([x, high]));
    const back = inside.map(([x, low]) => this.place([x, low])).reverse();
    if (there.length > 1)
      this.marks.append(
          svg('path', {d: pathThrough([...there, ...back]) + 'Z', fill: color, opacity, 'data-key': key}));
  }

  // Draws all dots as one path of zero-length segments with round ends.
  dots(points, {color, size = 3, opacity = 0.6}) {
    let d = '';
    for (const point of points) {
      const [x, y] = this.place(point);
      if (Number.isFinite(x)) d += `M${x.toFixed(1)} ${y.toFixed(1)}h0`;
    }
    this.marks.append(
        svg('path', {d, fill: 'none', stroke: color, 'stroke-width': size, 'stroke-linecap': 'round', opacity}));
  }

  marker(x, y, {color, marker}, {size = 4, open = false, key, parent = this.layer} = {}) {
    parent.append(svg('path', {
      d: markerPath(marker, x, y, size),
      fill: open ? this.theme.page : color,
      stroke: open ? color : this.theme.page,
      'stroke-width': open ? 1.6 : 1,
      'data-key': key
    }));
  }

  contains(x, y, slack = 12) {
    const {left, right, top, bottom} = this.box;
    return x >= left - slack && x <= right + slack && y >= top - slack && y <= bottom + slack;
  }
}

// Writes names beside the ends of lines, moved apart where they would overlap. labels: { y, text, style, key }.
function endLabels(plot, labels, x, {gap = 15, top = plot.box.top} = {}) {
  const {bottom} = plot.box;
  const placed = labels.filter((label) => Number.isFinite(label.y)).sort((a, b) => a.y - b.y);
  const y = placed.map((label) => Math.min(Math.max(label.y, top), bottom));
  for (let pass = 0; pass < 60; ++pass) {
    for (let i = 1; i < y.length; ++i) {
      const overlap = gap - (y[i] - y[i - 1]);
      if (overlap > 0.01) {
        y[i - 1] -= overlap / 2;
        y[i] += overlap / 2;
      }
    }
    if (y.length && y[0] < top) y[0] = top;
    if (y.length && y.at(-1) > bottom + 4) y[y.length - 1] = bottom + 4;
  }
  // Many labels may still overlap: push them down from the first, then up from the bottom.
  const least = Math.min(gap, (bottom + 4 - top) / Math.max(1, y.length - 1));
  for (let i = 1; i < y.length; ++i) y[i] = Math.max(y[i], y[i - 1] + least);
  for (let i = y.length - 1, limit = bottom + 4; i >= 0; limit = y[i--] - least) y[i] = Math.min(y[i], limit);
  placed.forEach((label, i) => {
    const group = svg('g', {'data-key': label.key});
    group.append(svg('path', {d: markerPath(label.style.marker, x + 10, y[i], 3.6), fill: label.style.color}));
    write(group, x + 19, y[i], label.text, {size: 12, weight: 600, color: plot.theme.ink, middle: true});
    plot.layer.append(group);
  });
}
const endLabelRoom = (texts) => Math.max(0, ...texts.map((text) => measure(text, 12, 600))) + 21;

// Draws lines with axes and with labels at their ends; returns { probe, plot }. A series is { key, name, label, style,
// points [[x, y]…], width, opacity, markers, faint [[x, y]…], band [[x, low, high]…] }.
function drawLines(canvas, outer, {series, x, y, labels = true, heading}) {
  const named = labels && outer.width >= 440 ? series.filter((one) => one.label) : [];
  const room = named.length ? endLabelRoom(named.map((one) => one.label)) : 6;
  const plot = new Plot(canvas, {...outer, width: outer.width - room, after: room}, x, y);
  for (const {band, faint, style, key} of series) {
    if (band) plot.band(band, {color: style.color, opacity: 0.16, key});
    if (faint) plot.line(faint, {color: style.color, width: 1, opacity: 0.25, key});
  }
  for (const {points, style, width, opacity, key, markers, label} of series) {
    plot.line(points, {...style, width, opacity, key});
    if (markers && label)
      for (const point of points) {
        const [px, py] = plot.place(point);
        if (plot.contains(px, py, 1)) plot.marker(px, py, style, {size: 3.2, key, parent: plot.marks});
      }
  }
  const end = (points) => points.findLast(([, value]) => known(value));
  endLabels(
      plot, named.map((one) => ({
                        key: one.key,
                        text: one.label,
                        style: one.style,
                        y: end(one.points) ? plot.place(end(one.points))[1] : NaN
                      })),
      plot.box.right);
  return {plot, probe: (px, py) => probeLines(plot, series, x, y, heading, px, py)};
}

function nearest(points, value) {
  let low = 0;
  let high = points.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (points[middle][0] < value)
      low = middle;
    else
      high = middle;
  }
  const [a, b] = [points[low], points[high]];
  return Math.abs(b[0] - value) < Math.abs(a[0] - value) ? b : a;
}

const MAX_TIP_ROWS = 10;

function probeLines(plot, series, x, y, heading, px, py) {
  if (!plot.contains(px, py)) return null;
  const wanted = plot.x.invert(Math.min(Math.max(px, plot.box.left), plot.box.right));
  let hits = [];
  for (const one of series) {
    if (!one.points.length) continue;
    const point = nearest(one.points, wanted);
    const [hx, hy] = plot.place(point);
    if (Number.isFinite(hx) && Math.abs(hx - px) < 40) hits.push({one, point, x: hx, y: hy});
  }
  if (!hits.length) return null;
  // Labeled lines come first, then those nearest to the pointer.
  hits.sort((a, b) => Boolean(b.one.label) - Boolean(a.one.label) || Math.abs(a.y - py) - Math.abs(b.y - py));
  hits = hits.slice(0, MAX_TIP_ROWS);
  const at = hits.reduce((best, hit) => (Math.abs(hit.x - px) < Math.abs(best.x - px) ? hit : best));
  hits.sort((a, b) => a.y - b.y);
  return {
    x: at.x,
    y: Math.min(...hits.map((hit) => Math.max(hit.y, plot.box.top))),
    rule: [plot.box.top, plot.box.bottom],
    heading: heading ? heading(at.point, at.one) : `${x.label} ${x.exact(at.point[0])}`,
    rows: hits.map(({one, point}) => ({style: one.style, name: one.name, value: y.exact(point[1])})),
    marks: hits.filter((hit) => hit.y >= plot.box.top - 1 && hit.y <= plot.box.bottom + 1)
               .map((hit) => ({x: hit.x, y: hit.y, style: hit.one.style})),
  };
}
