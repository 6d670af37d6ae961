// The measures and the judge of a replay in float64: those of `replay.py` in the bundle, step by step. What counts is judged again where it was served.
import { epsOf, isFloat, sameShape, select, sizeOf, tinyOf, toFloat64 } from "./arrays.mjs";

const FLOOR = 0.25, FLOOR_DOUBLE = 2.0, FAR_BELOW = 1e-9;
const ROUGH_KINDS = ["float64-graph", "perturbed"];
const RTOL_GRID = [0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1];
const ORDER = ["faithful", "drift", "diverged", "error"];
const UNMEASURABLE = ["shape", "missing", "refused"];

// Measuring

const ratio = (value, level) => (level ? value / level : value ? Infinity : 0);

function noiseFloor(reference, scale) {
  const eps = epsOf(reference);
  const share = eps > 1e-15 ? FLOOR : FLOOR_DOUBLE;
  return Math.max(share * eps * scale, tinyOf(reference) * eps);
}

export function measure(label, answer, output, noise, floorScale) {
  const { reference } = answer;
  const gap = { ...label, status: "compared", noise_kind: noise.kind, compared: 0 };
  if (!output) return { ...gap, status: "missing" };
  if (!sameShape(output, reference)) return { ...gap, status: "shape", detail: `reference [${reference.shape}], candidate [${output.shape}]` };
  if (sizeOf(reference.shape) === 0) return { ...gap, status: "empty" };
  if (output.dtype !== reference.dtype) gap.status = "dtype";
  if (!isFloat(reference)) return measureExact(gap, answer, output, noise);
  return measureFloats(gap, answer, output, noise, floorScale);
}

function measureExact(gap, answer, output, noise) {
  const { reference, unstable } = answer;
  let mismatches = 0, undecided = 0, apart = 0;
  for (let i = 0; i < reference.data.length; i++) {
    if (reference.data[i] == output.data[i]) continue; // eslint-disable-line eqeqeq -- big and small integers are compared by value
    mismatches += 1;
    if (unstable?.data[i]) undecided += 1;
    apart = Math.max(apart, Math.abs(Number(reference.data[i]) - Number(output.data[i])));
  }
  const times = ratio(mismatches, noise.flips);
  return {
    ...gap, compared: reference.data.length, noise_kind: "exact", noise: noise.flips, noise_ratio: times, worst_ratio: times,
    max_abs: apart, mismatches, unstable: undecided, allowance: mismatches ? Infinity : 0,
  };
}

function measureFloats(gap, answer, output, noise, floorScale) {
  const r = toFloat64(answer.reference), t = answer.truth ? toFloat64(answer.truth) : r, c = toFloat64(output);
  const needed = RTOL_GRID.map(() => 0);
  let lost = 0, odd = 0, count = 0, truthPower = 0, errorPower = 0, peak = 0, apart = 0, place = -1;
  for (let i = 0; i < r.length; i++) {
    const finite = Number.isFinite(r[i]);
    if (finite && !Number.isFinite(c[i])) lost += 1;
    if (!finite && !Object.is(r[i], c[i])) odd += 1;
    if (!finite || !Number.isFinite(t[i]) || !Number.isFinite(c[i])) continue;
    const error = Math.abs(c[i] - t[i]), difference = Math.abs(c[i] - r[i]);
    count += 1;
    truthPower += t[i] * t[i];
    errorPower += error * error;
    if (error > peak) [peak, place] = [error, i];
    apart = Math.max(apart, difference);
    for (let k = 0; k < needed.length; k++) needed[k] = Math.max(needed[k], difference - RTOL_GRID[k] * Math.abs(r[i]));
  }
  if (!count) return { ...gap, lost, odd };
  const scale = Math.sqrt(truthPower / count), rms = Math.sqrt(errorPower / count);
  const level = Math.max(noise.rms, noiseFloor(answer.reference, Math.max(scale, floorScale)));
  return {
    ...gap, compared: count, lost, odd, scale, rms, noise: level, noise_ratio: ratio(rms, level),
    worst_ratio: ratio(peak, Math.max(noise.worst, 2 * level)), atol_needed: needed, max_abs: apart, place,
  };
}

// Judging

function withinTolerance(gap, policy) {
  if (!gap.atol_needed) return (gap.allowance ?? 0) <= 1;
  const place = RTOL_GRID.reduce((best, rtol, i) => (rtol <= policy.rtol ? i : best), 0);
  return gap.atol_needed[place] <= policy.atol;
}

export function beyondNoise(gap, policy) {
  if (gap.mismatches) return gap.mismatches > gap.unstable && gap.noise_ratio > policy.noise_limit / 4;
  const times = gap.noise_ratio ?? 0, scale = gap.scale ?? 0;
  const fills = (gap.noise ?? 0) < scale && (gap.rms ?? 0) > 0.5 * scale;
  if (fills && times > 0.4 * policy.noise_limit && !withinTolerance(gap, policy)) return true;
  return !(times <= policy.noise_limit && (gap.worst_ratio ?? 0) <= policy.worst_limit);
}

const suspicious = (gap, policy) => UNMEASURABLE.includes(gap.status) || gap.lost > 0 || beyondNoise(gap, policy);

function domainOf(gap, record, answer, half) {
  if (record.domain === "empty" || (gap.status === "shape" && sizeOf(answer.reference.shape) === 0)) return "empty";
  if (answer.undecided && (gap.lost || half)) return "inf";
  const absorbed = gap.lost && record.domain === "nan" && answer.all_finite;
  return absorbed ? null : record.domain;
}

function classify(gap, answer, output, remeasure, policy) {
  if (!output || gap.status === "shape" || gap.lost) return gap;
  if (answer.loud) {
    const louder = remeasure({ ...answer, unstable: answer.loud_unstable }, output, answer.loud);
    if (!suspicious(louder, policy)) return louder;
  }
  if (!answer.visible || !answer.excused) return gap;
  const keep = { at: (place) => !answer.excused.data[place] };
  const truth = answer.truth && select(answer.truth, keep);
  const seen = remeasure({ ...answer, reference: select(answer.reference, keep), truth }, select(output, keep), answer.visible);
  return seen.compared && suspicious(seen, policy) ? gap : { ...seen, domain: "masked" };
}

function answersOf(record, tensors) {
  const answers = record.outputs.map((output, place) => {
    const answer = { ...output, reference: tensors[`reference_${place}`] };
    for (const name of ["truth", "unstable", "loud_unstable", "excused"]) answer[name] = tensors[`${name}_${place}`] ?? null;
    return answer;
  });
  const floats = answers.map((answer) => answer.reference).filter(isFloat);
  const all_finite = floats.every((tensor) => toFloat64(tensor).every(Number.isFinite));
  return answers.map((answer) => ({ ...answer, all_finite }));
}

// The gaps of all outputs of one case; `outputs` are tensors by the file's names, or an error.
export function gapsOf(manifest, record, tensors, outputs, backend) {
  const { policy, half } = manifest;
  const answers = answersOf(record, tensors);
  const read = manifest.signature.outputs.map((info, place) => [info, place]).filter(([, place]) => !answers[place].unread);
  return read.map(([info, place]) => {
    const label = { case: record.name, group: record.group, backend, output: info.name, domain: null };
    if (outputs.error) return { ...label, status: "refused", detail: outputs.error, domain: record.domain, compared: 0, void: null };
    const answer = answers[place], output = outputs[info.onnx_name];
    const remeasure = (from, values, noise) => {
      const scale = manifest.usual_scale[info.name] ?? 0;
      return measure(label, from, values, noise, ROUGH_KINDS.includes(noise.kind) ? scale : scale * FAR_BELOW);
    };
    let gap = remeasure(answer, output, answer.noise);
    if (suspicious(gap, policy)) {
      gap.domain = domainOf(gap, record, answer, half);
      if (gap.domain === null) gap = classify(gap, answer, output, remeasure, policy);
    }
    return { ...gap, void: answer.void };
  });
}

// The gaps of the answers to one call of a rollout, at the places that are real.
export function callGaps(record, number, tensors, outputs, backend) {
  const real = tensors[`${number}_real`];
  return record.calls[number].answers.map(({ output: name, noise }, place) => {
    const label = { case: record.name, group: "rollout", backend, output: name, domain: null, void: null };
    if (outputs.error) return { ...label, status: "refused", detail: `call ${number}: ${outputs.error}`, compared: 0 };
    const answer = { reference: tensors[`${number}_reference_${place}`] };
    for (const kind of ["truth", "unstable"]) answer[kind] = tensors[`${number}_${kind}_${place}`] ?? null;
    return measure(label, answer, atRealPlaces(outputs[name], real), noise, 0);
  });
}

function atRealPlaces(tensor, real) {
  const places = real && tensor && tensor.shape[0] === real.shape[0] && tensor.shape[1] === real.shape[1];
  if (!places) return tensor;
  const rest = tensor.shape.slice(2), width = sizeOf(rest);
  const kept = select(tensor, { at: (place) => real.data[Math.floor(place / width)] });
  return { ...kept, shape: [kept.data.length / width, ...rest] };
}

export function judgeGap(gap, policy) {
  const verdict = judgeValues(gap, policy);
  if (gap.void === "nondeterministic-reference" && gap.status !== "refused") return "vacuous";
  return gap.void && verdict === "faithful" ? "vacuous" : verdict;
}

function judgeValues(gap, policy) {
  const compared = gap.compared > 0;
  if (gap.domain && !policy.strict_domains) return compared ? "faithful" : "vacuous";
  if (gap.status === "empty") return "vacuous";
  if (gap.lost || (gap.odd && policy.strict_domains) || UNMEASURABLE.includes(gap.status)) return "diverged";
  if (compared && gap.noise_kind === "none") return "error";
  const beyond = beyondNoise(gap, policy);
  if (beyond && !withinTolerance(gap, policy)) return "diverged";
  if (beyond || gap.status === "dtype") return "drift";
  return compared || gap.odd ? "faithful" : "vacuous";
}

export function judge(gaps, policy) {
  const deciding = gaps.map((gap) => judgeGap(gap, policy)).filter((verdict) => verdict !== "vacuous");
  if (!deciding.length) return "vacuous";
  return deciding.reduce((worst, verdict) => (ORDER.indexOf(verdict) > ORDER.indexOf(worst) ? verdict : worst));
}

// The gap that decides: by its verdict, then by how many times the noise it is.
export function worstOf(gaps, policy) {
  const rank = (gap) => ORDER.indexOf(judgeGap(gap, policy));
  const times = (gap) => (gap.domain === null ? (gap.noise_ratio ?? 0) : -1);
  const worse = (a, b) => rank(b) - rank(a) || times(b) - times(a);
  return [...gaps].sort(worse)[0] ?? null;
}
