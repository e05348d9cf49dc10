"use strict";
// Draws the timelines of saves. Each rank has a canvas, drawn when it is on screen; all share one view of the time.
const data = JSON.parse(document.getElementById("data").textContent);
const $ = id => document.getElementById(id);
const make = (tag, text, parent) => {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (parent) parent.append(element);
  return element;
};
const MANY = 8, ROW = 18, FOLDED = 14, MAX_TRACKS = 4;
let step, index, view, showAll = false;
let sections = [];

// --- numbers as text -------------------------------------------------------------------------------------------------
const trim = text => text.replace(/\.0(?= )/, "");
const time = us => us < 0.5 ? "0 ms" : us < 999.5 ? `${us.toFixed(0)} µs` : us < 9950 ? trim(`${(us / 1e3).toFixed(1)} ms`)
  : us < 999500 ? `${(us / 1e3).toFixed(0)} ms` : us < 119.95e6 ? trim(`${(us / 1e6).toFixed(1)} s`)
  : `${Math.floor(Math.round(us / 1e6) / 60)} min ${Math.round(us / 1e6) % 60} s`;
const seconds = s => s == null ? "" : time(s * 1e6);
const size = bytes => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  let unit = 0;
  while (bytes >= 1023.95 && unit < 6) { bytes /= 1024; unit++; }
  return unit ? `${bytes.toFixed(1)} ${units[unit]}` : `${bytes} B`;
};
const speed = rate => rate == null ? "" : `${(rate / 1e9).toFixed(2)} GB/s`;
const laneSpeed = (rank, lane) => speed((rank.lanes[lane] || {}).bytes_per_second);

// --- choosing a step -------------------------------------------------------------------------------------------------
function fillPicker() {
  $("run").textContent = data.run;
  for (let i = data.steps.length - 1; i >= 0; i--) {
    const option = make("option", `step ${data.steps[i].step}`, $("step"));
    option.value = i;
    option.disabled = !data.steps[i].ranks.length;
  }
  $("step").onchange = () => choose(+$("step").value);
  $("older").onclick = () => choose(nearest(-1));
  $("newer").onclick = () => choose(nearest(1));
  if (data.steps.length < 2) return;
  const longest = Math.max(...data.steps.map(s => s.committed_seconds || 0)) || 1;
  data.steps.forEach((s, i) => {
    const bar = make("button", undefined, $("strip"));
    const [rest, stall] = [make("i", undefined, bar), make("i", undefined, bar)];
    stall.style.height = `${100 * (s.stall_seconds || 0) / longest}%`;
    rest.style.height = `${100 * ((s.committed_seconds || 0) - (s.stall_seconds || 0)) / longest}%`;
    bar.title = `step ${s.step}: ${s.headline || "no timeline"}`;
    bar.setAttribute("aria-label", bar.title);
    bar.disabled = !s.ranks.length;
    bar.onclick = () => choose(i);
  });
}
function nearest(way) {
  let i = index + way;
  while (data.steps[i] && !data.steps[i].ranks.length) i += way;
  return data.steps[i] ? i : index;
}
function choose(i) {
  index = i;
  step = data.steps[i];
  showAll = step.ranks.length <= MANY;
  $("step").value = i;
  $("older").disabled = nearest(-1) === i;
  $("newer").disabled = nearest(1) === i;
  [...$("strip").children].forEach((bar, n) => n === i ? bar.setAttribute("aria-current", "step") : bar.removeAttribute("aria-current"));
  const end = Math.max(...step.ranks.map(r => r.committed_seconds)) * 1e6 || 1;
  view = { from: 0, to: end, end };
  fillHead();
  fillTable();
  fillLegend();
  fillLanes();
}
function fillHead() {
  const head = $("headline"), parts = /^(training stall )(.*)( of .*)$/.exec(step.headline) || ["", "", "", step.headline];
  head.textContent = parts[1];
  make("b", parts[2], head);
  head.append(parts[3]);
  const ranks = step.world === 1 ? "1 rank" : `${step.world} ranks`;
  $("facts").textContent = [`step ${step.step}`, step.started, ranks, size(step.len_bytes), step.capture].filter(Boolean).join(" · ");
  const notes = new Map();
  for (const rank of step.ranks) for (const note of rank.notes) notes.set(note, [...(notes.get(note) || []), rank.rank]);
  $("notes").replaceChildren();
  const add = text => make("li", text, $("notes"));
  if (step.missing.length) add(`no timeline of ${who(step.missing)}`);
  for (const [note, ranks] of notes) add(`${who(ranks)}: ${note}`);
}
function who(ranks) {
  const shown = ranks.slice(0, 8).join(", ") + (ranks.length > 8 ? ` … (+${ranks.length - 8} more)` : "");
  return `${ranks.length === 1 ? "rank" : "ranks"} ${shown}`;
}

// --- the table -------------------------------------------------------------------------------------------------------
// The ranks to show, the slowest first where not all are shown, each with what there is to say of it.
function picked() {
  const order = [...step.ranks].sort((a, b) => b.durable_seconds - a.durable_seconds || a.rank - b.rank);
  const last = order.length - 1;
  const words = new Map(last ? [[order[last], "fastest"], [order[last >> 1], "median"], [order[0], "slowest"]] : []);
  if (order.length <= MANY) return step.ranks.map(rank => [rank, rank === order[0] && last ? "slowest" : ""]);
  const first = [order[0], order[last >> 1], order[last]];
  const rest = showAll ? step.ranks.filter(rank => !first.includes(rank)) : [];
  return [...first, ...rest].map(rank => [rank, words.get(rank) || ""]);
}
function fillTable() {
  const table = $("ranks");
  table.replaceChildren();
  const row = (cells, tag) => {
    const tr = make("tr", undefined, table);
    for (const text of cells) make(tag, text, tr);
    return tr;
  };
  row(["rank", "stall", "fence", "copy", "write", "commit", "durable", ""], "th");
  for (const [rank, word] of picked()) {
    if (step.ranks.length > MANY && !word) continue;
    const tr = row([rank.rank, seconds(rank.stall_seconds), seconds(rank.fence_seconds), laneSpeed(rank, "copy"), laneSpeed(rank, "write"),
      seconds(rank.commit_seconds), seconds(rank.durable_seconds), word], "td");
    if (word === "slowest") tr.firstChild.className = tr.lastChild.className = "slow";
  }
  $("all").hidden = step.ranks.length <= MANY;
  $("all").textContent = showAll ? "fewer ranks" : `all ${step.ranks.length} ranks`;
}

// --- the timelines ---------------------------------------------------------------------------------------------------
const style = getComputedStyle(document.documentElement);
const color = name => style.getPropertyValue(`--${name}`).trim();
const gutter = () => innerWidth < 600 ? 62 : 84;
const seen = new IntersectionObserver(entries => {
  for (const entry of entries) {
    const section = entry.target.section;
    section.visible = entry.isIntersecting;
    if (section.visible) draw(section);
  }
}, { rootMargin: "200px" });

function fillLegend() {
  const used = new Set(step.ranks.flatMap(rank => Object.keys(rank.lanes)));
  $("legend").replaceChildren();
  for (const lane of data.lanes) if (used.has(lane)) make("span", lane, $("legend")).style.setProperty("--c", `var(--${lane})`);
}
function fillLanes() {
  seen.disconnect();
  $("lanes").replaceChildren();
  sections = [];
  if (!step.drawn) {
    make("p", `This step is too old to be drawn here; cairn report --step ${step.step} draws it.`, $("lanes")).className = "help";
    return drawAxis();
  }
  const list = picked();
  list.forEach(([rank, word], n) => {
    const element = make("section", undefined, $("lanes"));
    const title = make("h2", `rank ${rank.rank}`, element);
    make("small", [word, `stall ${seconds(rank.stall_seconds)}`, `durable ${seconds(rank.durable_seconds)}`].filter(Boolean).join(" · "), title);
    const canvas = make("canvas", undefined, element);
    const section = { rank, element, canvas, lanes: lanesOf(rank), folded: n >= 3 && list.length > MANY };
    canvas.section = section;
    element.classList.toggle("folded", section.folded);
    resize(section);
    title.onclick = () => {
      section.folded = !section.folded;
      element.classList.toggle("folded", section.folded);
      resize(section);
      draw(section);
    };
    sections.push(section);
    seen.observe(canvas);
  });
  drawAxis();
}
// The spans of each lane, dealt to tracks so that those of one track do not overlap.
function lanesOf(rank) {
  return Object.entries(rank.spans).map(([lane, flat]) => {
    const ends = [], spans = [];
    for (let i = 0; i < flat.length; i += 3) {
      const begin = flat[i], end = begin + flat[i + 1];
      let track = ends.findIndex(other => other <= begin + 0.15);
      if (track < 0) track = ends.length < MAX_TRACKS ? ends.length : MAX_TRACKS - 1;
      ends[track] = Math.max(end, ends[track] || 0);
      spans.push({ begin, end, bytes: flat[i + 2], track });
    }
    return { name: data.lanes[lane], tracks: ends.length, spans };
  });
}
function resize(section) {
  const height = section.folded ? FOLDED : Math.max(1, section.lanes.length) * ROW + 4;
  section.canvas.style.height = `${height}px`;
}
// Prepares a canvas for the screen's pixels; gives its context, width and height.
function begin(canvas) {
  const scale = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  context.font = "12px system-ui, sans-serif";
  context.textBaseline = "middle";
  return [context, width, height];
}
const place = (us, width) => gutter() + (us - view.from) / (view.to - view.from) * (width - gutter());
function ticks(width) {
  const rough = (view.to - view.from) / Math.max(2, (width - gutter()) / 110), power = 10 ** Math.floor(Math.log10(rough));
  const unit = [1, 2, 5, 10].map(n => n * power).find(n => n >= rough);
  const list = [];
  for (let n = Math.ceil(view.from / unit); n * unit <= view.to && list.length < 50; n++) list.push(n * unit);
  return [list, unit];
}
function tickText(us, unit) {
  const [scale, name] = view.to >= 1e6 ? [1e6, "s"] : view.to >= 1e3 ? [1e3, "ms"] : [1, "µs"];
  const digits = Math.max(0, Math.ceil(-Math.log10(unit / scale) - 1e-9));
  return us === 0 ? "0" : `${(us / scale).toFixed(Math.min(digits, 6))} ${name}`;
}
function drawAxis() {
  const canvas = $("axis").firstChild;
  canvas.style.height = "24px";
  const [context, width] = begin(canvas);
  context.fillStyle = color("dim");
  const [list, unit] = ticks(width);
  for (const us of list) {
    const text = tickText(us, unit), x = place(us, width);
    context.fillText(text, Math.min(x, width - context.measureText(text).width), 12);
  }
}
function draw(section) {
  const [context, width, height] = begin(section.canvas);
  context.fillStyle = color("line");
  for (const us of ticks(width)[0]) context.fillRect(Math.round(place(us, width)), 0, 1, height);
  section.lanes.forEach((lane, row) => {
    const top = section.folded ? 2 : row * ROW + 2, room = section.folded ? FOLDED - 4 : ROW - 4;
    if (!section.folded) {
      context.fillStyle = color("dim");
      context.fillText(lane.name, 0, top + room / 2 + 1);
    }
    context.fillStyle = color(lane.name);
    const tall = section.folded ? room : room / lane.tracks;
    for (const span of lane.spans) {
      if (span.end < view.from || span.begin > view.to) continue;
      const left = Math.max(gutter(), place(span.begin, width)), right = Math.min(width, place(span.end, width));
      // Spans that touch stay apart to the eye where there is room.
      const wide = right - left > 4 ? right - left - 0.5 : Math.max(1, right - left);
      context.fillRect(left, top + (section.folded ? 0 : span.track * tall), wide, Math.max(1, tall - (lane.tracks > 1 ? 0.5 : 0)));
    }
  });
  if (!section.folded) return;
  // What training waits for lies on top of the rest.
  for (const lane of section.lanes.filter(lane => lane.name === "stall" || lane.name === "fence")) {
    context.fillStyle = color(lane.name);
    for (const span of lane.spans) {
      const left = Math.max(gutter(), place(span.begin, width));
      if (span.end >= view.from && left < width) context.fillRect(left, 1, Math.max(1, place(span.end, width) - left), FOLDED - 2);
    }
  }
}
let waiting = false;
function redraw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    drawAxis();
    sections.filter(section => section.visible).forEach(draw);
  });
}

// --- moving and zooming ----------------------------------------------------------------------------------------------
function show(from, to) {
  const length = Math.min(Math.max(to - from, view.end / 1e6, 0.5), view.end);
  from = Math.min(Math.max(0, from), view.end - length);
  view = { from, to: from + length, end: view.end };
  redraw();
}
function zoom(factor, share = 0.5) {
  const length = view.to - view.from, at = view.from + share * length;
  show(at - share * length * factor, at + (1 - share) * length * factor);
}
const share = (canvas, x) => {
  const box = canvas.getBoundingClientRect();
  return Math.min(1, Math.max(0, (x - box.left - gutter()) / (box.width - gutter())));
};
const touching = new Map();
function watch(area) {
  const canvasOf = event => event.target.closest("canvas");
  area.addEventListener("wheel", event => {
    const canvas = canvasOf(event);
    if (!canvas) return;
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      zoom(Math.exp(event.deltaY * 0.005), share(canvas, event.clientX));
    } else if (event.deltaX) {
      event.preventDefault();
      pan(event.deltaX, canvas);
    }
  }, { passive: false });
  area.addEventListener("pointerdown", event => {
    const canvas = canvasOf(event);
    if (!canvas) return;
    touching.set(event.pointerId, { x: event.clientX, canvas });
    if (event.pointerType === "mouse") canvas.setPointerCapture(event.pointerId);
  });
  area.addEventListener("pointermove", event => {
    const last = touching.get(event.pointerId), canvas = canvasOf(event);
    if (!last) return canvas && hover(canvas, event);
    if (touching.size === 2) pinch(event, last);
    else pan(last.x - event.clientX, last.canvas);
    last.x = event.clientX;
    hide();
  });
  area.addEventListener("dblclick", event => canvasOf(event) && show(0, view.end));
  area.addEventListener("pointerleave", hide);
  area.addEventListener("click", event => canvasOf(event) && hover(canvasOf(event), event));
}
for (const kind of ["pointerup", "pointercancel"]) addEventListener(kind, event => touching.delete(event.pointerId));
function pan(pixels, canvas) {
  const delta = pixels / (canvas.clientWidth - gutter()) * (view.to - view.from);
  show(view.from + delta, view.to + delta);
}
function pinch(event, last) {
  const other = [...touching].find(([id]) => id !== event.pointerId)[1];
  const before = Math.abs(last.x - other.x), after = Math.abs(event.clientX - other.x);
  if (before > 8 && after > 8) zoom(before / after, share(last.canvas, (event.clientX + other.x) / 2));
}
function hover(canvas, event) {
  const span = canvas.section && find(canvas, event);
  if (!span) return hide();
  const length = span.end - span.begin, lines = [`${span.lane} ${time(length)}`, `${time(span.begin)} – ${time(span.end)}`];
  if (span.bytes) lines.push(`${size(span.bytes)}${length > 0 ? `, ${speed(span.bytes / length * 1e6)}` : ""}`);
  const tip = $("tip");
  tip.textContent = lines.join("\n");
  tip.style.display = "block";
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8))}px`;
  tip.style.top = `${event.clientY + tip.offsetHeight + 24 > innerHeight ? event.clientY - tip.offsetHeight - 10 : event.clientY + 16}px`;
}
// The span under the pointer, or one within three pixels of it.
function find(canvas, event) {
  const { lanes, folded } = canvas.section, box = canvas.getBoundingClientRect();
  const x = event.clientX - box.left, y = event.clientY - box.top, width = box.width;
  if (x < gutter()) return;
  const rows = folded ? lanes : lanes.slice(Math.floor(y / ROW), Math.floor(y / ROW) + 1);
  let best, distance = 3.5;
  for (const lane of rows) {
    const track = folded ? -1 : Math.floor((y % ROW - 2) / (ROW - 4) * lane.tracks);
    for (const span of lane.spans) {
      const away = Math.max(0, place(span.begin, width) - x, x - place(span.end, width)) + (folded || span.track === track ? 0 : 1);
      if (away < distance) [best, distance] = [{ ...span, lane: lane.name }, away];
    }
  }
  return best;
}
function hide() { $("tip").style.display = "none"; }

$("all").onclick = () => { showAll = !showAll; fillTable(); fillLanes(); };
$("in").onclick = () => zoom(0.5);
$("out").onclick = () => zoom(2);
$("fit").onclick = () => show(0, view.end);
$("held").onclick = () => show(0, Math.max(...step.ranks.map(rank => rank.stall_seconds)) * 1.25e6);
addEventListener("keydown", event => {
  if (!view || $("saves").hidden || event.target.closest("select, button") || event.ctrlKey || event.metaKey || event.altKey) return;
  const length = view.to - view.from;
  const act = { "+": () => zoom(0.5), "-": () => zoom(2), "0": () => show(0, view.end), ArrowLeft: () => show(view.from - length / 5, view.to - length / 5),
    ArrowRight: () => show(view.from + length / 5, view.to + length / 5) }[event.key];
  if (act) { event.preventDefault(); act(); }
});
addEventListener("resize", () => view && redraw());
addEventListener("beforeprint", () => sections.forEach(draw));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => view && redraw());
watch($("lanes"));
watch($("axis"));
if (data.steps.length) {
  fillPicker();
  choose(data.chosen);
}
