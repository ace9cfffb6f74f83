// Builds elements of the page. Text is always added as text nodes, so nothing in the document can become markup.

const SVG_NAMESPACE = 'http://www.w3.org/2000/svg';

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on'))
      element.addEventListener(name.slice(2), value);
    else
      element.setAttribute(name, value === true ? '' : value);
  }
  element.append(
      ...children.flat(Infinity).filter((child) => child !== undefined && child !== null && child !== false));
  return element;
}

const html = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG_NAMESPACE, tag), attributes, children);

// Returns the parts of a sentence, with "**strong**" as <strong>.
function sentence(text) {
  return text.split(/\*\*(.+?)\*\*/).map((part, i) => (i % 2 ? html('strong', {}, part) : part));
}

// Returns a row of buttons, one of them pressed.
function choice(label, options, value, onchange) {
  const buttons = options.map(
      ([key, text]) => html(
          'button',
          {type: 'button', 'aria-pressed': String(key === value), 'data-value': key, onclick: () => press(key)}, text),
  );
  function press(key) {
    for (const button of buttons) button.setAttribute('aria-pressed', String(button.dataset.value === String(key)));
    onchange(key);
  }
  return html('span', {class: 'choice', role: 'group', 'aria-label': label}, buttons);
}

// Returns a button that is pressed or not.
function toggle(label, name, value, onchange) {
  const button = html('button', {type: 'button', 'aria-pressed': String(value), 'data-value': name}, label);
  button.addEventListener('click', () => {
    const pressed = button.getAttribute('aria-pressed') !== 'true';
    button.setAttribute('aria-pressed', String(pressed));
    onchange(pressed);
  });
  return button;
}

function select(label, options, value, onchange) {
  const list = html('select', {onchange: (event) => onchange(event.target.value)});
  for (const [key, text] of options) list.append(html('option', {value: key, selected: key === value}, text));
  return html('label', {}, label, list);
}

function slider(label, {min, max, step, value, show}, oninput) {
  const shown = html('output', {}, show(value));
  const input = html('input', {type: 'range', min, max, step, value, 'aria-label': label});
  input.addEventListener('input', () => {
    shown.textContent = show(Number(input.value));
    oninput(Number(input.value));
  });
  return html('label', {}, label, input, shown);
}

function copyButton(text) {
  const button = html('button', {type: 'button', class: 'save'}, 'Copy');
  button.addEventListener('click', async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = 'Copied';
    } catch {
      button.textContent = 'Select and copy';
    }
    setTimeout(() => (button.textContent = 'Copy'), 1500);
  });
  return button;
}

function download(name, type, text) {
  const address = URL.createObjectURL(new Blob([text], {type}));
  html('a', {href: address, download: name}).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
