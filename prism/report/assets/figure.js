// A figure with heading, controls, legend, drawing and tooltip, which can be downloaded as SVG.

const figures = [];
const PAPER_WIDTH = 528;  // 5.5 inches of 96 pixels, a usual text width of papers
const PAPER_MARGIN = 8;
const NARROW = 500;  // in narrower figures, names stand above their rows instead of beside them
const PRINT_WIDTH = {
  wide: 690,
  half: 332
};
const view = {
  hidden: new Set(),
  printing: false
};

function redrawAll() {
  for (const one of figures) one.render();
}

function showOnly(key) {
  for (const group of document.querySelectorAll('[data-key]'))
    group.style.opacity = key && group.dataset.key !== key ? 0.12 : '';
}

class Figure {
  // draw(canvas) returns { height, probe }; probe(x, y) returns the content of the tooltip at that point, or null.
  // legend() returns a list of { key, label, index }.
  constructor({id, title, note, wide = false, controls = [], legend, draw}) {
    Object.assign(this, {id, title, wide, legendItems: legend, draw});
    this.noteElement = html('p', {class: 'note'});
    this.noteText = note;
    this.legendElement = legend && html('div', {class: 'legend', role: 'group', 'aria-label': 'visible lines'});
    this.tip = html('div', {class: 'tip', role: 'status', hidden: true});
    this.plot = html('div', {class: 'plot'}, this.tip);
    const save = html(
        'button', {
          type: 'button',
          class: 'save',
          title: 'Download this figure as SVG',
          onclick: () => download(`prism-${id}.svg`, 'image/svg+xml', this.paper())
        },
        'SVG');
    this.element = html(
        'figure', {id, class: wide ? 'wide' : ''},
        html('header', {}, html('div', {}, html('h3', {}, title), this.noteElement), save),
        controls.length ? html('div', {class: 'controls'}, controls) : null, this.legendElement, this.plot);
    figures.push(this);
    new ResizeObserver(() => this.width() !== this.drawnWidth && this.render()).observe(this.plot);
  }

  width() {
    if (view.printing) return this.wide ? PRINT_WIDTH.wide : PRINT_WIDTH.half;
    return Math.max(260, Math.floor(this.plot.clientWidth));
  }

  render() {
    const theme = view.printing ? PAPER : themeNow();
    this.drawnWidth = this.width();
    this.noteElement.textContent = typeof this.noteText === 'function' ? this.noteText() : this.noteText ?? '';
    this.renderLegend(theme);
    const {image, probe} = this.image({theme, width: this.drawnWidth, paper: false});
    image.setAttribute('tabindex', '0');
    image.addEventListener('pointermove', (event) => this.point(event));
    image.addEventListener('pointerdown', (event) => this.point(event));
    image.addEventListener('pointerleave', () => this.unpoint());
    image.addEventListener('blur', () => this.unpoint());
    image.addEventListener('keydown', (event) => this.step(event));
    this.probe = probe;
    this.unpoint();
    this.drawing?.remove();
    this.drawing = image;
    this.plot.prepend(image);
  }

  image({theme, width, paper, top = 0}) {
    const root = svg('g', top ? {transform: `translate(0 ${top})`} : {});
    const {height, probe} = this.draw({root, theme, width, paper});
    const image =
        svg('svg', {
          viewBox: `0 0 ${width} ${Math.ceil(height + top)}`,
          role: 'img',
          'aria-label': this.title,
          'font-family': FONT,
          'font-size': 11.5
        },
            root);
    return {image, probe, height};
  }

  renderLegend(theme) {
    if (!this.legendElement) return;
    this.legendElement.replaceChildren(...this.legendItems().map(
        ({key, label, index}) => html(
            'button', {
              type: 'button',
              'data-legend': key,
              'aria-pressed': String(!view.hidden.has(key)),
              title: 'Show or hide',
              onclick: () => {
                view.hidden.has(key) ? view.hidden.delete(key) : view.hidden.add(key);
                redrawAll();
                this.legendElement.querySelector(`[data-legend="${CSS.escape(key)}"]`)?.focus();
              },
              onpointerenter: () => showOnly(view.hidden.has(key) ? null : key),
              onpointerleave: () => showOnly(null),
            },
            keyIcon(look(index, theme)), label)));
  }

  point(event) {
    const frame = this.drawing.getBoundingClientRect();
    const scale = this.drawnWidth / frame.width;
    this.show((event.clientX - frame.left) * scale, (event.clientY - frame.top) * scale);
  }

  // Moves the tooltip with the arrow keys.
  step(event) {
    const move = {ArrowLeft: [-8, 0], ArrowRight: [8, 0], ArrowUp: [0, -8], ArrowDown: [0, 8]}[event.key];
    if (!move) return;
    event.preventDefault();
    const height = Number(this.drawing.getAttribute('viewBox').split(' ')[3]);
    const [x, y] = this.cursor ?? [this.drawnWidth / 2, height / 2];
    this.show(Math.min(Math.max(x + move[0], 0), this.drawnWidth), Math.min(Math.max(y + move[1], 0), height));
  }

  show(x, y) {
    const found = this.probe?.(x, y);
    this.overlay?.remove();
    this.tip.hidden = !found;
    if (!found) return;
    this.cursor = [x, y];
    this.overlay = this.overlayFor(found);
    this.drawing.append(this.overlay);
    this.tip.replaceChildren(
        html('div', {class: 'heading'}, found.heading),
        ...found.rows.map(
            (row) => html(
                'div', {class: 'row'}, row.style && keyIcon(row.style), html('span', {}, row.name),
                html('span', {}, row.value))));
    const scale = this.plot.clientWidth / this.drawnWidth;
    const {offsetWidth: width, offsetHeight: height} = this.tip;
    const beside = found.x * scale + 16;
    const left = beside + width > this.plot.clientWidth ? found.x * scale - width - 16 : beside;
    this.tip.style.left = `${Math.max(0, Math.min(left, this.plot.clientWidth - width))}px`;
    this.tip.style.top = `${Math.max(-height / 3, found.y * scale - height - 14)}px`;
  }

  unpoint() {
    this.tip.hidden = true;
    this.overlay?.remove();
    this.cursor = undefined;
  }

  overlayFor({x, rule, marks = []}) {
    const theme = themeNow();
    const group = svg('g', {'pointer-events': 'none'});
    if (rule)
      group.append(svg('path', {
        d: `M${x.toFixed(1)} ${rule[0]}V${rule[1]}`,
        stroke: theme.muted,
        'stroke-width': 1,
        'stroke-dasharray': '2 2'
      }));
    for (const mark of marks)
      group.append(svg('circle', {
        cx: mark.x.toFixed(1),
        cy: mark.y.toFixed(1),
        r: 4.5,
        fill: mark.style.color,
        stroke: theme.page,
        'stroke-width': 1.5
      }));
    return group;
  }

  // Returns the figure as a standalone SVG: white background with a margin, explicit colors and fonts, legend inside.
  paper() {
    const inside = PAPER_WIDTH - 2 * PAPER_MARGIN;
    const legend = this.legendItems ? paperLegend(this.legendItems().filter(({key}) => !view.hidden.has(key)), inside) :
                                      {height: 0};
    const {image, height} = this.image({theme: PAPER, width: inside, paper: true, top: legend.height});
    const size = {width: PAPER_WIDTH, height: Math.ceil(height + legend.height) + 2 * PAPER_MARGIN};
    fill(image, {...size, viewBox: `${- PAPER_MARGIN} ${- PAPER_MARGIN} ${size.width} ${size.height}`}, []);
    image.prepend(
        svg('title', {}, this.title), svg('rect', {x: -PAPER_MARGIN, y: -PAPER_MARGIN, ...size, fill: PAPER.page}));
    if (legend.group) image.append(legend.group);
    for (const element of image.querySelectorAll('[data-key]')) element.removeAttribute('data-key');
    return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(image)}\n`;
  }
}

function paperLegend(items, room) {
  const group = svg('g');
  let [x, y] = [0, 6];
  for (const {label, index} of items) {
    const width = 33 + measure(label, 12) + 20;
    if (x + width > room && x > 0) [x, y] = [0, y + 19];
    group.append(keySymbol(look(index, PAPER), {x, y}));
    write(group, x + 33, y, label, {size: 12, color: PAPER.ink, middle: true});
    x += width;
  }
  return {group, height: items.length ? y + 18 : 0};
}
