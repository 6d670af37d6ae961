"use strict";
// The page's own behaviour: draw the charts, filter, sort, zoom by keyboard, change the theme. All text is set as text, never as HTML.
// Vega warns of an empty extent whenever a filter leaves nothing to draw, so only its errors go to the console.

const FILTERS = ["backend", "group", "verdict"];
const FEW = 100;
const ERRORS = 1; // the level at which Vega speaks

/** Columns of values (some by number into a list) as rows. */
function rowsOf(columns) {
  const names = Object.keys(columns);
  const at = (column, i) => Array.isArray(column) ? column[i] : column.values[column.at[i]];
  const first = columns[names[0]];
  const count = (Array.isArray(first) ? first : first.at).length;
  return Array.from({ length: count }, (_, i) => Object.fromEntries(names.map((name) => [name, at(columns[name], i)])));
}

class Report {
  constructor(article) {
    this.article = article;
    const page = JSON.parse(article.querySelector("script.data").textContent);
    this.charts = page.charts;
    this.data = Object.fromEntries(Object.entries(page.data).map(([name, columns]) => [name, rowsOf(columns)]));
    this.views = {};
    this.chosen = { backend: "", group: "", verdict: "", text: "" };
    article.querySelectorAll("table.long").forEach((table) => this.longTable(table));
    const form = article.querySelector("form.filters");
    form?.addEventListener("submit", (event) => event.preventDefault());
    form?.addEventListener("input", () => this.filter(new FormData(form)));
    article.querySelector("select.dim")?.addEventListener("change", (event) => this.views.dims?.signal("dim", Number(event.target.value)).runAsync());
    article.querySelector(".copy")?.addEventListener("click", (event) => copy(event.target));
  }

  /** Draw the charts, once: whoever asks again waits for the same drawing. */
  draw() {
    return this.drawn ??= this.drawAll();
  }

  async drawAll() {
    for (const place of this.article.querySelectorAll(".chart")) {
      await new Promise((done) => setTimeout(done)); // let the page be seen, and be scrolled, between two charts
      const name = place.dataset.chart;
      const spec = { ...this.charts[name], datasets: { ...this.charts[name].datasets, ...this.data } };
      const made = await vegaEmbed(place, spec, {
        renderer: "svg", ast: true, logLevel: ERRORS, actions: { export: true, source: false, compiled: false, editor: false },
        tooltip: { disableDefaultStyle: true, maxDepth: 1 }, downloadFileName: `onnxproof-${name}`,
      });
      this.views[name] = made.view;
      place.querySelector("summary")?.setAttribute("aria-label", "Save this chart");
      const zoom = place.parentElement.querySelector(".zoom");
      if (zoom) this.zoomButtons(zoom, made.view);
    }
  }

  filter(form) {
    for (const name of Object.keys(this.chosen)) this.chosen[name] = form.get(name) ?? "";
    for (const view of Object.values(this.views)) {
      for (const name of FILTERS) view.signal(name, this.chosen[name]);
      view.runAsync();
    }
    this.article.querySelectorAll("table.long[data-filtered]").forEach((table) => this.fill(table));
  }

  matches(row) {
    const text = this.chosen.text.toLowerCase();
    return FILTERS.every((name) => !this.chosen[name] || row[name] === this.chosen[name]) && (!text || `${row.case} ${row.output}`.toLowerCase().includes(text));
  }

  /** A table whose rows are made from the data when somebody looks: sorted, filtered, the first hundred until all are asked for. */
  longTable(table) {
    table.order = { column: table.dataset.sort, down: true };
    const columns = table.dataset.columns.split(",").map((word) => word.split(":"));
    headers(table, (place) => {
      const column = columns[place][1] ?? columns[place][0];
      table.order = { column, down: table.order.column === column ? !table.order.down : false };
      this.fill(table);
      return table.order.down;
    });
    table.cells = columns.map(([name]) => name);
    table.closest("details").addEventListener("toggle", () => this.fill(table));
  }

  fill(table) {
    const details = table.closest("details");
    if (!details.open) return;
    const rows = this.data[table.dataset.from] ?? [];
    const wanted = "filtered" in table.dataset ? rows.filter((row) => this.matches(row)) : [...rows];
    wanted.sort((a, b) => compare(a[table.order.column], b[table.order.column]) * (table.order.down ? -1 : 1));
    const shown = table.all ? wanted : wanted.slice(0, FEW);
    table.tBodies[0].replaceChildren(...shown.map((row) => tableRow(table.cells.map((name) => [row[name], name]))));
    const count = details.querySelector(".count");
    const rest = shown.length < wanted.length ? `, the first ${shown.length} are shown` : "";
    if (count) count.textContent = `${wanted.length} of ${rows.length} outputs of cases${rest}`;
    details.querySelector(".more")?.remove();
    if (shown.length < wanted.length) {
      const more = button(`show all ${wanted.length}`, () => { table.all = true; this.fill(table); });
      more.className = "more";
      details.append(more);
    }
  }

  /** Open all that is folded, with its rows, at once: before printing there is no time for the browser to tell us that it is open. */
  unfold() {
    this.article.querySelectorAll("details:not(.vega-embed details)").forEach((details) => { details.open = true; });
    this.article.querySelectorAll("table.long").forEach((table) => this.fill(table));
  }

  /** Zooming for those without a mouse. */
  zoomButtons(place, view) {
    const domain = () => view.scale("x").domain();
    const set = (low, high) => view.signal("zoom_place", [low, high]).runAsync();
    const scale = (factor) => { const [a, b] = domain(), middle = (a + b) / 2, half = (b - a) * factor / 2; set(middle - half, middle + half); };
    const move = (share) => { const [a, b] = domain(), step = (b - a) * share; set(a + step, b + step); };
    place.append(button("◀", () => move(-0.25), "Move left"), button("▶", () => move(0.25), "Move right"), button("+", () => scale(0.5), "Zoom in"),
      button("−", () => scale(2), "Zoom out"), button("all", () => view.signal("zoom_place", null).runAsync(), "See all"));
  }
}

function compare(a, b) {
  const [x, y] = [Number(a), Number(b)];
  if (!Number.isNaN(x) && !Number.isNaN(y) && a !== "" && b !== "") return x - y;
  return String(a).localeCompare(String(b), undefined, { numeric: true });
}

function button(text, act, label) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = text;
  if (label) made.setAttribute("aria-label", label);
  made.addEventListener("click", act);
  return made;
}

function tableRow(cells) {
  const row = document.createElement("tr");
  for (const [value, name] of cells) {
    const cell = row.insertCell();
    const text = document.createElement(name === "verdict" ? "span" : "bdi");
    text.textContent = value ?? "";
    if (name === "verdict") text.className = `v ${value}`;
    if (["said", "peak", "largest", "tolerance", "place"].includes(name)) cell.className = "n";
    cell.append(text);
  }
  return row;
}

/** A button in each header cell; `sort` is told which, and says whether it went down. */
function headers(table, sort) {
  [...table.tHead.rows[0].cells].forEach((cell, place) => {
    const made = button(cell.textContent, () => {
      const down = sort(place);
      [...table.tHead.rows[0].cells].forEach((other) => other.removeAttribute("aria-sort"));
      cell.setAttribute("aria-sort", down ? "descending" : "ascending");
    });
    cell.replaceChildren(made);
  });
}

function sortable(table) {
  let last = -1, down = false;
  headers(table, (place) => {
    down = place === last ? !down : false;
    last = place;
    const key = (row) => row.cells[place].dataset.v ?? row.cells[place].textContent.trim();
    const number = (text) => text === "inf" ? Infinity : text;
    const rows = [...table.tBodies[0].rows].sort((a, b) => compare(number(key(a)), number(key(b))) * (down ? -1 : 1));
    table.tBodies[0].replaceChildren(...rows);
    return down;
  });
}

async function copy(target) {
  const code = target.parentElement.querySelector("code");
  try { await navigator.clipboard.writeText(code.textContent); target.textContent = "copied"; } catch { getSelection().selectAllChildren(code); }
}

function theme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
}

async function start() {
  document.getElementById("theme").addEventListener("click", theme);
  document.querySelectorAll("table.sortable").forEach(sortable);
  const reports = [...document.querySelectorAll("article")].map((article) => new Report(article));
  for (const report of reports) {
    const details = report.article.querySelector("details.proof");
    details?.addEventListener("toggle", () => details.open && report.draw());
  }
  const reveal = () => { const target = location.hash && document.getElementById(location.hash.slice(1))?.querySelector("details.proof"); if (target) target.open = true; };
  addEventListener("hashchange", reveal);
  addEventListener("beforeprint", () => reports.forEach((report) => report.unfold()));
  reveal();
  for (const report of reports) if (report.article.querySelector("details.proof")?.open ?? true) await report.draw();
  document.documentElement.dataset.ready = "yes";
}

start();
