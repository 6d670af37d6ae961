"use strict";
// The dashboard's own behaviour: rows that are made when they are seen, sorting, filters, trends, and a model's report in a frame.
// All text is set as text, never as HTML.

const read = (id) => JSON.parse(document.getElementById(id).textContent);
const DATA = read("data");
const HEIGHT = 40; // pixels of a row, as the style says
const BEYOND = 8; // rows beyond what is seen
const ORDER = ["error", "diverged", "drift", "vacuous", "faithful"];
const LEVEL = { faithful: "pass", drift: "warn", vacuous: "warn" };
const METRICS = { noise_ratio: "times the noise", quality: "dB", latency_ms: "ms" };
const SVG = "http://www.w3.org/2000/svg";

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function draw(tag, attributes = {}, text = "") {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.textContent = text;
  return element;
}

const digits = (value) => value === null || value === undefined ? "" : value >= 1e9 ? "∞" : value >= 100 ? Math.round(value).toLocaleString("en") : value.toPrecision(2);
const count = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
const badge = (verdict) => make("span", { class: `badge ${LEVEL[verdict] ?? ""}` }, verdict);

/** The worst value of all backends in each run. */
function worst(model, metric = "noise_ratio") {
  const lists = Object.values(model.trends[metric]);
  const pick = metric === "quality" ? Math.min : Math.max;
  return DATA.runs.map((_, place) => {
    const known = lists.map((list) => list[place]).filter((value) => value !== null);
    return known.length ? pick(...known) : null;
  });
}

for (const model of DATA.models) {
  const known = worst(model).filter((value) => value !== null);
  const before = known.length > 1 ? known[known.length - 2] : null;
  model.change = before ? known[known.length - 1] / before : null;
  model.tag = model.tags.join(", ");
  model.backend = model.backends.join(", ");
}

/** Points of a line in a box; ratios and times on a log scale. */
function scaled(values, metric, width, height, margin, low, high) {
  const at = (value) => metric === "quality" ? value : Math.log10(Math.max(value, 1e-9));
  const span = at(high) - at(low) || 1;
  const bottom = at(low) === at(high) ? at(low) - 0.5 : at(low);
  const step = (width - 2 * margin) / Math.max(values.length - 1, 1);
  return values.map((value, place) => value === null ? null : [margin + place * step, height - margin - (height - 2 * margin) * (at(value) - bottom) / span]);
}

const path = (points) => points.filter(Boolean).map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ");
const limits = (lists) => { const all = lists.flat().filter((value) => value !== null); return [Math.min(...all), Math.max(...all)]; };

function spark(model) {
  const values = worst(model);
  const picture = draw("svg", { class: "spark", viewBox: "0 0 110 26", "aria-hidden": "true", preserveAspectRatio: "none" });
  if (!values.some((value) => value !== null)) return picture;
  const points = scaled(values, "noise_ratio", 110, 26, 4, ...limits([values]));
  picture.append(draw("polyline", { points: path(points) }));
  points.forEach((point, place) => {
    const verdict = model.verdicts[place];
    if (point && (place === points.length - 1 || (verdict && verdict !== "faithful"))) picture.append(draw("circle", { cx: point[0], cy: point[1], r: 2.5, class: verdict === "faithful" ? "" : "bad" }));
  });
  return picture;
}

function legend(model, metric) {
  return make("p", { class: "facts" }, ...Object.keys(model.trends[metric]).map((backend, number) => make("span", { class: `key series-${number % 4}` }, backend)));
}

/** A trend of all backends over the runs, with a mark where versions changed. */
function trend(model, metric) {
  const lists = model.trends[metric];
  // as wide as it will be shown, so that its words keep their size on a phone
  const width = Math.max(300, Math.min(1100, innerWidth - 40)), height = 260, margin = 44, words_px = 200;
  const picture = draw("svg", { class: "trend", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${METRICS[metric]} over ${DATA.runs.length} runs` });
  const [low, high] = limits(Object.values(lists));
  const lines = low === high ? [[low, height / 2]] : [[high, margin], [low, height - margin]];
  for (const [value, y] of lines) {
    picture.append(draw("line", { class: "axis", x1: margin, x2: width - margin, y1: y, y2: y }), draw("text", { x: 2, y: y + 4 }, digits(value)));
  }
  const step = (width - 2 * margin) / Math.max(DATA.runs.length - 1, 1);
  let free = 0;
  DATA.runs.forEach((run, place) => {
    const x = margin + place * step;
    if (place === 0 || place === DATA.runs.length - 1) picture.append(draw("text", { x, y: height - 8, "text-anchor": place ? "end" : "start" }, `run ${run.id}, ${run.date}`));
    if (!run.marks.length) return;
    picture.append(draw("line", { class: "mark", x1: x, x2: x, y1: margin - 8, y2: height - margin }));
    const words = run.marks.length > 1 ? `${run.marks[0]} and ${run.marks.length - 1} more` : run.marks[0];
    if (x >= free) { picture.append(draw("text", { class: "mark-text", x: Math.max(2, Math.min(x, width - words_px)), y: margin - 14 }, words)); free = x + words_px; }
  });
  Object.entries(lists).forEach(([backend, values], number) => {
    const points = scaled(values, metric, width, height, margin, low, high);
    picture.append(draw("polyline", { points: path(points), class: `series-${number % 4}` }));
    points.forEach((point, place) => {
      if (!point) return;
      const run = DATA.runs[place], verdict = model.verdicts[place];
      const dot = draw("circle", { cx: point[0], cy: point[1], r: 3, class: verdict === "faithful" ? "" : "bad" });
      dot.append(draw("title", {}, `${backend} run ${run.id} (${run.date}): ${digits(values[place])} ${METRICS[metric]}, ${verdict}`));
      picture.append(dot);
    });
  });
  return picture;
}

const state = { key: "verdict", down: false, text: "", verdict: "", tag: "", backend: "", rows: [] };

function matches(model) {
  return (!state.verdict || model.verdict === state.verdict) && (!state.tag || model.tags.includes(state.tag)) && (!state.backend || model.backends.includes(state.backend)) && (!state.text || model.shown.toLowerCase().includes(state.text));
}

function compare(a, b) {
  if (a === b) return 0;
  if (a === null) return 1;
  if (b === null) return -1;
  return typeof a === "number" ? a - b : String(a).localeCompare(String(b));
}

function choose() {
  const rank = (model) => state.key === "verdict" ? ORDER.indexOf(model.verdict) : model[state.key];
  const sign = state.down ? -1 : 1;
  state.rows = DATA.models.filter(matches).sort((a, b) => compare(rank(a), rank(b)) * sign || compare(b.ratio, a.ratio) || compare(a.shown, b.shown));
  document.getElementById("count").textContent = `${state.rows.length} of ${DATA.models.length} models`;
  document.getElementById("table").setAttribute("aria-rowcount", state.rows.length + 1);
  grid.scrollTop = 0;
  fill();
}

const grid = document.getElementById("grid");
const body = document.getElementById("rows");

/** The rows that are seen, between two spaces as high as all the others. */
function fill() {
  const first = Math.max(0, Math.floor(grid.scrollTop / HEIGHT) - BEYOND);
  const last = Math.min(state.rows.length, Math.ceil((grid.scrollTop + grid.clientHeight) / HEIGHT) + BEYOND);
  const rows = state.rows.slice(first, last).map((model, place) => row(model, first + place));
  body.replaceChildren(space(first), ...rows, space(state.rows.length - last));
}

function space(count) {
  const columns = [...document.querySelectorAll("#table th")].filter((head) => head.offsetParent).length;
  const cell = make("td", { colspan: columns });
  cell.style.height = `${count * HEIGHT}px`;
  const line = make("tr", { class: "space", "aria-hidden": "true" }, cell);
  line.style.height = cell.style.height;
  return line;
}

function row(model, place) {
  const open = make("button", { type: "button", class: "link" }, make("bdi", {}, model.shown));
  open.addEventListener("click", () => show(model));
  const change = model.change === null ? "" : `${model.change >= 1 ? "+" : "−"}${digits(Math.abs(model.change - 1) * 100)}%`;
  return make("tr", { "aria-rowindex": place + 2 },
    make("td", { title: model.shown }, open), make("td", {}, badge(model.verdict), model.known ? make("span", { class: "known" }, "known") : ""), make("td", { class: "n" }, digits(model.ratio)),
    make("td", { class: `n wide-only ${model.change > 1.5 ? "worse" : ""}` }, change), make("td", {}, spark(model)),
    make("td", { class: "n wide-only" }, digits(model.seconds)), make("td", { class: "wide-only", title: model.backend }, model.backend), make("td", { class: "wide-only", title: model.tag }, model.tag));
}

const panel = document.getElementById("panel");

function table(head, rows) {
  const top = make("tr", {}, ...head.map((word) => make("th", { scope: "col" }, word)));
  return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": head.join(", ") }, make("table", {}, make("thead", {}, top), make("tbody", {}, ...rows.map((cells) => make("tr", {}, ...cells.map((cell) => make("td", {}, cell)))))));
}

/** What is known of one model: its numbers, its trend, its runs, and its report. */
function show(model) {
  document.getElementById("panel-title").replaceChildren(badge(model.verdict), " ", make("bdi", {}, model.shown));
  const parts = [make("p", {}, model.summary)];
  if (model.cause) parts.push(make("p", {}, `first cause: ${model.cause}`));
  if (model.expected) parts.push(make("p", { class: "facts" }, `expected: ${model.expected}`));
  if (model.error) parts.push(make("pre", {}, model.error));
  for (const move of DATA.moves.filter((each) => each.model === model.name)) parts.push(make("p", {}, ...moveWords(move)));
  parts.push(reportPart(model));
  for (const metric of Object.keys(METRICS)) if (Object.keys(model.trends[metric]).length) parts.push(make("h3", {}, METRICS[metric]), legend(model, metric), trend(model, metric));
  if (model.measures.length) parts.push(make("h3", {}, "backends"), table(["backend", "verdict", "× noise", "dB", "ms"], model.measures.map((each) => [each.backend, badge(each.verdict), digits(each.ratio), digits(each.quality), digits(each.latency)])));
  const values = worst(model);
  const runs = DATA.runs.map((run, place) => [run, place]).filter(([, place]) => model.verdicts[place]).reverse();
  parts.push(make("h3", {}, "runs"), table(["run", "date", "verdict", "× noise", "commit", "with it"], runs.map(([run, place]) => [String(run.id), run.date, badge(model.verdicts[place]), digits(values[place]), run.commit, run.marks.join("; ")])));
  document.getElementById("panel-body").replaceChildren(...parts);
  panel.showModal();
  panel.scrollTop = 0;
  location.hash = `model=${encodeURIComponent(model.name)}`;
}

let reports = null;

function reportPart(model) {
  reports ??= read("reports");
  if (!(model.name in reports)) return make("p", { class: "facts" }, "Its report is not in this page: ", make("code", {}, `onnxproof history FILE --model '${model.shown}' --report report.html`), " writes it.");
  const button = make("button", { type: "button", class: "open-report" }, "open the report");
  const place = make("div", {}, button);
  button.addEventListener("click", async () => place.replaceChildren(await frame(reports[model.name])));
  return place;
}

/** The model's own report: unpacked, with the scripts and styles that all reports share. */
async function frame(packed) {
  const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  let text = await new Response(stream).text();
  for (const [mark, id] of [["@@css@@", "report-css"], ["@@library@@", "library"], ["@@own@@", "report-script"]]) text = text.split(mark).join(read(id));
  return make("iframe", { title: "The report of the model", srcdoc: text });
}

/** What moved in one run: its changes, and what changed with it. */
function moveWords(move) {
  const value = (each) => typeof each === "number" ? digits(each) : each;
  const changes = move.changes.flatMap((each, place) => [place ? ", " : "", make("span", { class: each.worse ? "worse" : "better" }, `${each.what} ${value(each.before)} → ${value(each.after)}`), each.backend ? ` on ${each.backend}` : ""]);
  const back = move.until === null ? "" : `, back in run ${move.until}`;
  const why = move.why.length ? `with it ${move.why.join("; ")}` : "nothing that is recorded changed with it";
  return [...changes, ` since run ${move.run}${back}`, make("span", { class: "why" }, why)];
}

function moveItem(move) {
  const open = make("button", { type: "button", class: "link" }, make("bdi", {}, move.shown));
  const model = DATA.models.find((each) => each.name === move.model);
  open.addEventListener("click", () => model && show(model));
  return make("li", {}, open, " ", ...moveWords(move));
}

function options(select, values) {
  select.replaceChildren(make("option", { value: "" }, "all"), ...values.map((value) => make("option", { value }, value)));
}

function chips() {
  const place = document.getElementById("chips");
  for (const verdict of ORDER) {
    const count = DATA.models.filter((model) => model.verdict === verdict).length;
    if (!count) continue;
    const chip = make("button", { type: "button", "aria-pressed": "false", "data-verdict": verdict }, `${count} `, badge(verdict));
    chip.addEventListener("click", () => { const form = document.getElementById("filters"); form.verdict.value = state.verdict === verdict ? "" : verdict; filter(form); });
    place.append(chip);
  }
}

function filter(form) {
  const values = new FormData(form);
  for (const name of ["verdict", "tag", "backend"]) state[name] = values.get(name);
  state.text = values.get("text").toLowerCase();
  document.querySelectorAll("#chips button").forEach((chip) => chip.setAttribute("aria-pressed", String(chip.dataset.verdict === state.verdict)));
  choose();
}

function headers() {
  document.querySelectorAll("#table th[data-key]").forEach((cell) => {
    const button = make("button", { type: "button" }, cell.textContent);
    button.addEventListener("click", () => {
      state.down = state.key === cell.dataset.key ? !state.down : false;
      state.key = cell.dataset.key;
      document.querySelectorAll("#table th").forEach((other) => other.removeAttribute("aria-sort"));
      cell.setAttribute("aria-sort", state.down ? "descending" : "ascending");
      choose();
    });
    cell.replaceChildren(button);
  });
}

function theme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
}

function start() {
  const last = DATA.runs[DATA.runs.length - 1];
  document.getElementById("heading").textContent = DATA.suite;
  document.getElementById("facts").textContent = `${count(DATA.models.length, "model")}, ${count(DATA.runs.length, "run")}; the last is run ${last.id} of ${last.date}${last.commit ? `, commit ${last.commit}` : ""}${last.finished ? "" : " (not finished)"}`;
  document.getElementById("theme").addEventListener("click", theme);
  document.getElementById("close").addEventListener("click", () => panel.close());
  panel.addEventListener("close", () => history.replaceState(null, "", location.pathname + location.search));
  chips();
  const moves = document.getElementById("moves");
  moves.append(...DATA.moves.map(moveItem), ...DATA.unsteady.map((name) => make("li", {}, `${name}: its verdict comes and goes while nothing is recorded to change`)));
  if (!moves.childElementCount) moves.append(make("li", {}, DATA.runs.length > 1 ? "Nothing moved beyond the jitter of its earlier runs." : "This is the first run: from the second on, what moved is named here."));
  const form = document.getElementById("filters");
  const distinct = (key) => [...new Set(DATA.models.flatMap((model) => model[key]))].sort();
  options(form.verdict, ORDER.filter((verdict) => DATA.models.some((model) => model.verdict === verdict)));
  options(form.tag, distinct("tags"));
  options(form.backend, distinct("backends"));
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", () => filter(form));
  grid.addEventListener("scroll", () => requestAnimationFrame(fill), { passive: true });
  addEventListener("resize", fill);
  headers();
  choose();
  const wanted = decodeURIComponent(location.hash.replace("#model=", ""));
  const model = DATA.models.find((each) => each.name === wanted);
  if (model) show(model);
  document.documentElement.dataset.ready = "yes";
}

start();
