// The page: lets the visitor choose, runs the cases, shows what came out, and what the machine that serves it makes of that.
import { callGaps, gapsOf, judge, judgeGap, worstOf } from "./measures.mjs";
import { call, feedsOf, jsonOf, load, openAll, post, providers, readCase, roll } from "./runner.mjs";

const find = (id) => document.getElementById(id);
const CLASSES = { faithful: "pass", drift: "warn" };
const figure = (value) => (value === undefined || Number.isNaN(value) ? "–" : Number.isFinite(value) ? Math.abs(value) >= 1000 && Math.abs(value) < 1e15 ? Math.round(value).toLocaleString("en") : Number(value.toPrecision(3)).toString() : "∞");
let over = true, found = [];

function element(name, text, className = "") {
  const made = document.createElement(name);
  made.textContent = text; // names come from models: they are text and never markup
  if (className) made.className = className;
  return made;
}

function chooseTheme() {
  const root = document.documentElement, button = find("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const show = (theme) => {
    root.dataset.theme = theme;
    button.textContent = theme === "dark" ? "light" : "dark";
  };
  show(dark ? "dark" : "light");
  button.addEventListener("click", () => show(root.dataset.theme === "dark" ? "light" : "dark"));
}

async function offer() {
  found = await providers();
  for (const { name, title, there, note } of found) {
    const label = element("label", ""), box = document.createElement("input");
    Object.assign(box, { type: "checkbox", name: "provider", value: name, checked: there, disabled: !there });
    label.append(box, element("span", title, "title"), element("span", note, "facts"));
    find("providers").append(label);
  }
  find("choice").hidden = false;
}

function say(text, share) {
  find("running").hidden = false;
  find("state").textContent = text;
  if (share !== undefined) find("progress").value = share;
}

async function replay(manifest, settings, chosen) {
  say("loading onnxruntime-web …");
  const ort = await load(chosen, settings);
  say("opening the model …");
  const { sessions, failed } = await openAll(ort, chosen, settings);
  const about = { agent: navigator.userAgent, cores: navigator.hardwareConcurrency ?? "", threads: ort.env.wasm.numThreads };
  const described = found.filter(({ name, there }) => there && chosen.includes(name));
  for (const { name, note } of described) about[name] = note || "yes";
  await post("start", JSON.stringify({ providers: chosen, failed, about }));
  over = false;
  const cases = manifest.cases.filter(({ name }) => !settings.only.length || settings.only.includes(name));
  const gaps = [];
  for (const [done, record] of cases.entries()) {
    say(`${done + 1} of ${cases.length}: ${record.name}`, done / cases.length);
    const tensors = await readCase(record);
    for (const [provider, session] of Object.entries(sessions)) {
      const { outputs, body } = await call(ort, session, () => feedsOf(manifest.signature, (place) => tensors[`input_${place}`]), settings);
      await post(`answer/${provider}`, body);
      gaps.push(...gapsOf(manifest, record, tensors, outputs, provider));
    }
  }
  const rollouts = manifest.rollouts.filter(({ name }) => !settings.only.length || settings.only.includes(name));
  for (const record of rollouts) gaps.push(...(await rollOut(ort, sessions, manifest, record, settings)));
  say(`${cases.length} cases were run${rollouts.length ? `, and ${rollouts.length} rollouts` : ""}`, 1);
  return { gaps, failed };
}

// The worst gap of each answer, as the page's judge sees it.
async function rollOut(ort, sessions, manifest, record, settings) {
  const tensors = await readCase(record);
  const worst = [];
  for (const [provider, session] of Object.entries(sessions)) {
    const gaps = [];
    for await (const { number, answered, body } of roll(ort, session, manifest.signature, record, tensors, settings)) {
      say(`rollout ${record.name}: call ${number + 1} of ${record.calls.length}`, 1);
      await post(`answer/${provider}`, body);
      gaps.push(...callGaps(record, number, tensors, answered, provider).map((gap) => ({ ...gap, detail: gap.detail ?? `call ${number}` })));
    }
    for (const name of new Set(gaps.map((gap) => gap.output))) worst.push(worstOf(gaps.filter((gap) => gap.output === name), manifest.policy));
  }
  return worst;
}

function show(manifest, settings, { gaps, failed }, verdict) {
  const { policy } = manifest;
  showVerdict(verdict, `${settings.model} on ${[...new Set(gaps.map((gap) => gap.backend))].join(", ") || "nothing"}`);
  const rows = find("table").tBodies[0];
  for (const [provider, why] of Object.entries(failed)) rows.append(row([why, provider, "0", "–", "–"], "diverged"));
  for (const key of new Set(gaps.map((gap) => JSON.stringify([gap.output, gap.backend])))) {
    const [output, backend] = JSON.parse(key);
    const own = gaps.filter((gap) => gap.output === output && gap.backend === backend);
    const worst = worstOf(own, policy);
    rows.append(row([output, backend, String(own.length), figure(worst.noise_ratio), figure(worst.max_abs)], judge(own, policy)));
  }
  const worst = worstOf(gaps, policy);
  if (worst) showWorst(manifest, worst, policy);
  find("result").hidden = false;
}

function showVerdict(verdict, sentence) {
  find("verdict").className = `verdict ${CLASSES[verdict] ?? ""}`;
  find("badge").textContent = verdict.toUpperCase();
  find("sentence").textContent = sentence;
}

function row(cells, verdict) {
  const made = document.createElement("tr");
  made.append(element("td", verdict, `v ${verdict}`));
  cells.forEach((text, place) => made.append(element("td", text, place > 1 ? "n" : "")));
  return made;
}

function showWorst(manifest, worst, policy) {
  const record = manifest.cases.find(({ name }) => name === worst.case);
  const facts = {
    case: worst.case, about: record?.about ?? "", output: worst.output, runtime: worst.backend, verdict: judgeGap(worst, policy),
    "times the noise": figure(worst.noise_ratio), "worst element": `${figure(worst.worst_ratio)} times the noise`,
    "not finite": worst.lost ? `${worst.lost} values that are finite in the reference` : "", detail: worst.detail ?? "",
  };
  for (const [name, value] of Object.entries(facts)) if (value) find("worst").append(element("dt", name), element("dd", value));
}

async function main() {
  chooseTheme();
  const [manifest, settings] = await Promise.all([jsonOf("manifest.json"), jsonOf("settings.json")]);
  find("title").textContent = `${settings.model}: ${manifest.cases.length} cases of ${settings.bundle}`;
  find("facts").textContent = `The reference is ${manifest.subject}. Where the bundle was made it was ${settings.made} on ${manifest.backends.join(", ")}.`;
  if (settings.other) find("facts").textContent += ` This is not the file that it was made for, which is ${manifest.model.name}.`;
  await offer();
  find("choice").addEventListener("submit", (event) => {
    event.preventDefault();
    const chosen = [...document.querySelectorAll("input[name=provider]:checked")].map((box) => box.value);
    if (chosen.length) runAll(manifest, settings, chosen).catch(fail);
    else find("error").textContent = "Choose at least one.";
  });
  document.documentElement.dataset.ready = "yes";
}

async function runAll(manifest, settings, chosen) {
  find("error").textContent = "";
  for (const control of find("choice").elements) control.disabled = true;
  const result = await replay(manifest, settings, chosen);
  const own = Object.keys(result.failed).length ? "diverged" : judge(result.gaps, manifest.policy);
  const verdict = settings.judged ? own : "";
  const confirmed = post("done", JSON.stringify({ verdict }));
  if (settings.judged) show(manifest, settings, result, verdict);
  const told = await confirmed;
  over = true;
  if (told.error) throw new Error(told.error);
  if (!settings.judged) show(manifest, settings, result, told.verdict);
  showVerdict(told.verdict, find("sentence").textContent);
  find("confirmed").textContent = `${told.verdict === own || !settings.judged ? "Confirmed" : "Corrected"} by onnxproof, which measured the same answers: ${told.sentence}`;
  document.documentElement.dataset.done = "yes";
}

function fail(error) {
  find("error").textContent = String(error?.message ?? error);
  if (!over) post("failed", JSON.stringify({ what: find("error").textContent })).catch(() => {});
  over = true;
  document.documentElement.dataset.done = "failed";
}

addEventListener("pagehide", () => {
  if (!over) navigator.sendBeacon("failed", JSON.stringify({ what: "the page was closed" }));
});
main().catch(fail);
