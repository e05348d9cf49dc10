
// --- values ----------------------------------------------------------------------------------------------------------
// A strip of boxes for each kind of tensor: how a layer differs from the others is what is looked for.
const METRICS = [
  { name: "largest value", of: layer => layer.absmax },
  { name: "deviation", of: layer => layer.std },
  { name: "mean", of: layer => layer.mean == null ? null : Math.abs(layer.mean), text: layer => number(layer.mean) },
  { name: "zeros", of: layer => layer.sparsity, share: true },
];
const WIDE = 348;
let metric = METRICS[0], boxes = [], chosenBox;

const number = value => value == null ? "" : value === 0 ? "0" : Math.abs(value) >= 1e5 || Math.abs(value) < 1e-3
  ? value.toExponential(2).replace(/\.?0+e/, "e").replace("e+", "e") : String(+value.toPrecision(4));
const percent = share => share == null ? "" : share > 0 && share < 0.0005 ? "<0.1%" : `${+(100 * share).toFixed(1)}%`;
const amount = n => n >= 1e9 ? `${(n / 1e9).toFixed(2)} B` : n >= 1e6 ? `${(n / 1e6).toFixed(2)} M` : n >= 1e3 ? `${(n / 1e3).toFixed(2)} k` : `${n}`;
const shown = layer => metric.share ? percent(metric.of(layer)) : metric.text ? metric.text(layer) : number(metric.of(layer));
const broken = layer => layer.nan + layer.infinite > 0;
const SVG = document.createRange().createContextualFragment("<svg></svg>").firstChild.namespaceURI;
const svg = (tag, attributes, parent, text) => {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  if (parent) parent.append(element);
  return element;
};

function fillValues() {
  const values = data.values;
  $("contents").textContent = `${amount(values.elements)} values in ${values.tensors} tensors`;
  const bad = values.kinds.flatMap(kind => kind.layers).reduce((sum, layer) => sum + layer.nan + layer.infinite, 0);
  const place = data.steps.length ? [values.path] : [];
  $("place").textContent = [...place, `${values.kinds.length} kinds of tensors`].join(" · ");
  if (bad) make("b", ` · ${amount(bad)} NaN or infinite`, $("place")).className = "bad";
  METRICS.forEach((each, n) => {
    const button = make("button", each.name, $("metrics"));
    button.title = `key ${n + 1}`;
    button.onclick = () => chooseMetric(n);
  });
  const last = Math.max(0, ...values.kinds.flatMap(kind => kind.layers.map(layer => layer.layer || 0)));
  const columns = `repeat(${last + 1}, minmax(0, 1fr))`;
  if (last) fillNumbers(last, columns);
  for (const kind of values.kinds) {
    const row = make("div", undefined, $("strips"));
    row.className = "kind";
    row.setAttribute("role", "row");
    const label = make("b", undefined, row);
    make("bdi", kind.kind, label);
    label.title = kind.kind;
    const strip = make("div", undefined, row);
    strip.className = "layers";
    strip.style.gridTemplateColumns = columns;
    const range = make("small", "", row);
    boxes.push(kind.layers.map(layer => {
      const button = make("button", undefined, strip);
      button.tabIndex = -1;
      button.setAttribute("role", "gridcell");
      // A tensor without layers has a box of its own width.
      button.style.gridColumn = layer.layer == null ? "1 / span " + Math.max(1, Math.ceil((last + 1) / 24)) : layer.layer + 1;
      button.classList.toggle("broken", broken(layer));
      const box = { kind, layer, button, range };
      button.onclick = () => chooseBox(box);
      button.onkeydown = event => move(event, box);
      button.onpointerenter = event => tell(box, event);
      button.onpointerleave = hide;
      return box;
    }));
  }
  chooseMetric(0);
  const first = boxes.flat().find(box => broken(box.layer)) || boxes.flat()[0];
  if (first) chooseBox(first);
}
function fillNumbers(last, columns) {
  const row = make("div", undefined, $("strips"));
  row.className = "numbers";
  make("i", undefined, row);
  const numbers = make("div", undefined, row);
  numbers.style.gridTemplateColumns = columns;
  const step = [1, 2, 4, 5, 8, 10, 16, 20, 32, 50, 100, 200, 500].find(step => last / step <= 12) || 1000;
  for (let n = 0; n <= last; n += step) make("span", n, numbers).style.gridColumn = n + 1;
}
function chooseMetric(n) {
  metric = METRICS[n];
  [...$("metrics").children].forEach((button, i) => button.setAttribute("aria-pressed", i === n));
  document.querySelector(".scale").classList.toggle("share", !!metric.share);
  document.querySelector(".scale").hidden = !!metric.share;
  for (const row of boxes) {
    const known = row.map(box => metric.of(box.layer)).filter(value => value != null).sort((a, b) => a - b);
    const middle = known[known.length >> 1];
    for (const box of row) {
      const value = metric.of(box.layer);
      box.button.style.setProperty("--cell", value == null ? "transparent" : metric.share ? mix("high", value) : against(value, middle));
      box.button.setAttribute("aria-label", `${nameOf(box)}: ${metric.name} ${shown(box.layer)}${broken(box.layer) ? ", not all finite" : ""}`);
    }
    const text = value => metric.share ? percent(value) : number(value);
    const [low, high] = [known[0], known[known.length - 1]];
    if (row.length) row[0].range.textContent = low === high ? text(low) : `${text(low)} – ${text(high)}`;
  }
}
const mix = (name, share) => `color-mix(in oklab, var(--${name}) ${Math.round(100 * Math.min(1, Math.max(0, share)))}%, var(--box))`;
// Blue where a layer is below the median of its row, red above; full at a quarter and at four times.
function against(value, middle) {
  if (!(middle > 0) || !(value > 0)) return "var(--box)";
  const distance = Math.log2(value / middle) / 2;
  return mix(distance < 0 ? "low" : "high", Math.abs(distance));
}
const nameOf = box => box.layer.layer == null ? box.kind.kind : box.kind.kind.replace("#", box.layer.layer);
function tell(box, event) {
  const tip = $("tip"), all = box.layer.count > 1 ? ` (${box.layer.count} tensors)` : "";
  tip.textContent = [`${nameOf(box)}${all}`, ...METRICS.map(each => {
    const value = each.share ? percent(each.of(box.layer)) : each.text ? each.text(box.layer) : number(each.of(box.layer));
    return `${each.name} ${value}`;
  })].join("\n");
  tip.style.display = "block";
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8))}px`;
  tip.style.top = `${event.clientY + tip.offsetHeight + 24 > innerHeight ? event.clientY - tip.offsetHeight - 10 : event.clientY + 16}px`;
}
function move(event, box) {
  const row = boxes.findIndex(row => row.includes(box)), at = boxes[row].indexOf(box);
  const near = other => other && other.reduce((best, each) =>
    Math.abs((each.layer.layer || 0) - (box.layer.layer || 0)) < Math.abs((best.layer.layer || 0) - (box.layer.layer || 0)) ? each : best);
  const next = { ArrowLeft: boxes[row][at - 1], ArrowRight: boxes[row][at + 1], ArrowUp: near(boxes[row - 1]), ArrowDown: near(boxes[row + 1]),
    Home: boxes[row][0], End: boxes[row][boxes[row].length - 1] }[event.key];
  if (!next) return;
  event.preventDefault();
  chooseBox(next);
  next.button.focus();
}
function chooseBox(box) {
  if (chosenBox) {
    chosenBox.button.removeAttribute("aria-selected");
    chosenBox.button.tabIndex = -1;
  }
  chosenBox = box;
  box.button.setAttribute("aria-selected", "true");
  box.button.tabIndex = 0;
  fillDetail(box);
}

// --- one box closely -------------------------------------------------------------------------------------------------
function fillDetail({ kind, layer }) {
  const detail = $("detail"), map = kind.map;
  detail.replaceChildren();
  make("h2", nameOf({ kind, layer }), detail);
  const type = map ? `${map.dtype}[${map.shape.join(", ")}]` : "";
  const many = layer.count > 1 ? `${layer.count} tensors` : "";
  make("p", [type, many, `${amount(layer.elements)} values`].filter(Boolean).join(" · "), detail);
  if (layer.histogram.length) drawHistogram(layer, detail);
  const list = make("dl", undefined, detail);
  const facts = [["mean", number(layer.mean)], ["deviation", number(layer.std)], ["least", number(layer.min)], ["greatest", number(layer.max)],
    ["zeros", percent(layer.sparsity)], ["NaN, Inf", `${layer.nan}, ${layer.infinite}`]];
  for (const [name, fact] of facts) {
    make("dt", name, list);
    make("dd", fact, list).classList.toggle("bad", name === "NaN, Inf" && broken(layer));
  }
  if (map) drawMap(map, detail);
}
function drawHistogram(layer, parent) {
  const high = 120, most = Math.max(...layer.histogram), wide = WIDE / layer.histogram.length;
  const picture = svg("svg", { viewBox: `0 0 ${WIDE} ${high + 18}`, role: "img", "aria-label": "how often which values occur" }, parent);
  layer.histogram.forEach((count, n) => {
    if (!count) return;
    const tall = Math.max(1, high * count / most), low = layer.min + (layer.max - layer.min) * n / layer.histogram.length;
    const bar = svg("rect", { x: n * wide + 0.5, y: high - tall, width: Math.max(1, wide - 1), height: tall, rx: 1, fill: "var(--copy)" }, picture);
    svg("title", {}, bar, `${amount(count)} from ${number(low)}`);
  });
  svg("line", { x1: 0, x2: WIDE, y1: high, y2: high, stroke: "var(--line)" }, picture);
  const zero = -layer.min / (layer.max - layer.min) * WIDE;
  svg("text", { x: 0, y: high + 14 }, picture, number(layer.min));
  if (layer.max > layer.min) svg("text", { x: WIDE, y: high + 14, "text-anchor": "end" }, picture, number(layer.max));
  if (zero > 50 && zero < WIDE - 50) svg("text", { x: zero, y: high + 14, "text-anchor": "middle" }, picture, "0");
}

// --- who holds what --------------------------------------------------------------------------------------------------
const slice = (piece, shape) => `[${piece.offset.map((start, dim) => start === 0 && piece.extent[dim] === shape[dim] ? ":" : `${start}:${start + piece.extent[dim]}`).join(", ")}]`
  + (piece.elements ? ` elements ${piece.elements.start}:${piece.elements.end}` : "");
const ranksText = ranks => {
  const runs = [];
  for (const rank of ranks) {
    const run = runs[runs.length - 1];
    if (run && run[1] + 1 === rank) run[1] = rank; else runs.push([rank, rank]);
  }
  return runs.map(([first, last]) => first === last ? `${first}` : `${first}–${last}`).join(", ");
};
const hue = n => `hsl(${(n * 137.5 + 210) % 360} 55% 55%)`;
function drawMap(map, parent) {
  const parts = map.shards.length ? map.shards.flatMap((shard, n) => shard.pieces.map(piece => ({ piece, n, label: ranksText(shard.ranks), copies: shard.ranks.length })))
    : map.stored.map((piece, n) => ({ piece, n, label: String(n), copies: 1 }));
  const how = map.sharding ? `${map.sharding}${map.mesh ? ` on ${map.mesh}` : ""}` : "";
  make("h3", map.shards.length ? "held by ranks" : "stored as", parent);
  const copies = parts[0] && parts[0].copies > 1 ? `${parts[0].copies} replicas` : "";
  const first = map.name === nameOf(chosenBox) ? "" : `as ${map.name}`;
  const facts = [how, copies, first].filter(Boolean);
  if (facts.length) make("p", facts.join(" · "), parent);
  if (parts.length > 1 || map.shards.length) drawParts(map, parts, parent);
  const box = make("div", undefined, parent), table = make("table", undefined, box);
  box.className = "stored";
  const row = (cells, tag) => { const tr = make("tr", undefined, table); for (const text of cells) make(tag, text, tr); };
  row(["part", "file", "offset", "size"], "th");
  for (const stored of map.stored.slice(0, 64)) row([slice(stored, map.shape), stored.file.replace(/^.*\//, ""), stored.file_offset, size(stored.len_bytes)], "td");
  if (map.stored.length > 64) make("p", `and ${map.stored.length - 64} more`, box);
}
// The two dims that are cut, or the first and the last. A range of a box's elements is drawn as the rows it takes up.
function drawParts(map, parts, parent) {
  const cut = map.shape.map((len, dim) => dim).filter(dim => parts.some(part => part.piece.extent[dim] !== map.shape[dim]));
  const [down, across] = cut.length > 1 ? cut : map.shape.length > 1 ? [0, map.shape.length - 1] : [undefined, map.shape.length ? 0 : undefined];
  const high = down === undefined ? 44 : Math.max(60, Math.min(220, WIDE * map.shape[down] / (map.shape[across] || 1)));
  const picture = svg("svg", { viewBox: `-1 -1 ${WIDE + 2} ${high + 2}`, role: "img", "aria-label": "parts of the tensor" }, parent);
  const span = (piece, dim, room) => dim === undefined ? [0, room] : [piece.offset[dim] / (map.shape[dim] || 1) * room, piece.extent[dim] / (map.shape[dim] || 1) * room];
  for (const { piece, n, label } of parts) {
    let [[x, width], [y, height]] = [span(piece, across, WIDE), span(piece, down, high)];
    if (piece.elements) {
      const count = piece.extent.reduce((a, b) => a * b, 1) || 1, [from, to] = [piece.elements.start / count, piece.elements.end / count];
      if (down === undefined) [x, width] = [x + from * width, (to - from) * width];
      else [y, height] = [y + from * height, (to - from) * height];
    }
    const group = svg("g", {}, picture);
    svg("title", {}, group, `${map.shards.length ? "ranks" : "part"} ${label}\n${slice(piece, map.shape)}`);
    svg("rect", { x, y, width: Math.max(0.5, width), height: Math.max(0.5, height), fill: hue(n), "fill-opacity": 0.28, stroke: hue(n) }, group);
    const room = Math.floor((width - 8) / 6.2);
    if (room > 0 && height > 13) svg("text", { x: x + 5, y: y + 14, class: "label" }, group, label.length <= room ? label : room > 1 ? `${label.slice(0, room - 1)}…` : "");
  }
}

// --- which of the two ------------------------------------------------------------------------------------------------
function showView(name) {
  for (const each of ["saves", "values"]) {
    $(each).hidden = each !== name;
    $(`show-${each}`).setAttribute("aria-pressed", each === name);
  }
  document.querySelector(".picker").hidden = name !== "saves" || !data.steps.length;
  if (name === "saves" && view) redraw();
}
if (data.values) {
  fillValues();
  $("views").hidden = !data.steps.length;
  $("show-saves").onclick = () => showView("saves");
  $("show-values").onclick = () => showView("values");
  $("run").textContent = data.run;
  addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || $("values").hidden) return;
    if (METRICS[event.key - 1]) chooseMetric(event.key - 1);
  });
}
showView(data.steps.length ? "saves" : "values");
