// Runs every case of the bundle with onnxruntime-web, and sends what it answers to where it is judged.
import { convert, readTensors, tensorOf } from "./arrays.mjs";
import { open, refusal, run } from "./tensors.mjs";

export const bytesOf = async (path) => {
  const response = await fetch(path);
  if (!response.ok) throw new Error(`${path}: ${response.status}`);
  return response.arrayBuffer();
};
export const jsonOf = async (path) => JSON.parse(new TextDecoder().decode(await bytesOf(path)));

export async function post(path, body) {
  const response = await fetch(path, { method: "POST", body });
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error ?? `${response.status}`);
  return answer;
}

// Which providers this browser has, and what it lacks of the others.
export async function providers() {
  const insecure = globalThis.isSecureContext ? "" : "needs https or localhost";
  const adapter = await navigator.gpu?.requestAdapter().catch(() => null);
  const context = await navigator.ml?.createContext({ deviceType: "gpu" }).catch(() => null);
  const gpu = adapter ? [adapter.info?.vendor, adapter.info?.architecture].filter(Boolean).join(" ") : "";
  const half = adapter?.features.has("shader-f16") ?? false;
  return [
    { name: "wasm", title: "WebAssembly", there: true, note: globalThis.crossOriginIsolated ? "" : "one thread" },
    { name: "webgpu", title: "WebGPU", there: Boolean(adapter), note: adapter ? `${gpu}${half ? "" : ", without half precision"}` : insecure || "not in this browser", half },
    { name: "webnn", title: "WebNN", there: Boolean(context), note: context ? "" : insecure || "not in this browser" },
  ];
}

export async function load(chosen, settings) {
  const plain = chosen.every((name) => name === "wasm");
  const ort = await import(plain ? "../runtime/ort.wasm.min.mjs" : "../runtime/ort.webgpu.min.mjs");
  ort.env.wasm.wasmPaths = new URL("../runtime/", import.meta.url).href;
  ort.env.wasm.numThreads = settings.threads || (globalThis.crossOriginIsolated ? 0 : 1);
  ort.env.logLevel = "fatal"; // its warnings are about speed; what fails is told by the page
  return ort;
}

// A session on each provider that was chosen; why there is none, for those that refuse the model.
export async function openAll(ort, chosen, settings) {
  const model = new Uint8Array(await bytesOf("model/0"));
  const external = await Promise.all(
    settings.external.map(async (path, place) => ({ path, data: new Uint8Array(await bytesOf(`model/${place + 1}`)) })),
  );
  const sessions = {}, failed = {};
  for (const provider of chosen) {
    try {
      sessions[provider] = await open(ort, model, { provider, serving: { threads: settings.threads } }, external);
    } catch (error) {
      failed[provider] = refusal(error, "ModelError").error.what;
    }
  }
  return { sessions, failed };
}

export async function readCase(record) {
  return readTensors(await bytesOf(record.file), record.dtypes);
}

// The file's inputs from the reference's: renamed, and converted where the dtypes differ.
export function feedsOf(signature, tensorAt) {
  const feeds = {};
  signature.inputs.forEach((info, place) => {
    const tensor = tensorAt(place);
    if (info.onnx_name === null) return;
    const wanted = info.onnx_dtype ?? "unknown";
    feeds[info.onnx_name] = wanted === "unknown" || wanted.startsWith("complex") ? tensor : convert(tensor, wanted);
  });
  return feeds;
}

// One call: the outputs by name, or an error, and the body that is sent.
export async function call(ort, session, feeds, { outputs: outputNames, most_answer: mostBytes }) {
  try {
    const { slots, bytes } = inOneBuffer(feeds());
    const { answer, pieces, size } = await run(ort, session, slots, bytes, outputNames);
    const outputs = {};
    answer.outputs.forEach((about, place) => {
      if (about) outputs[about.name] = tensorOf(about.dtype, about.shape, pieces.find(([offset]) => offset === about.offset)[1]);
      else outputs[outputNames[place]] = null;
    });
    if (size > mostBytes) throw new Error(`its outputs take ${size} bytes, more than twice the reference's`);
    return { outputs, body: packed(answer, pieces, size) };
  } catch (error) {
    const what = refusal(error, "Refused").error.what;
    return { outputs: { error: what }, body: packed({ error: what }, [], 0) };
  }
}

// A rollout in the model's own loop: it is fed what the reference was fed, and its own states. Yields the outputs of every call by the reference's names.
export async function* roll(ort, session, signature, record, tensors, settings) {
  const places = Object.fromEntries(signature.inputs.map(({ name }, place) => [name, place]));
  const given = {};
  for (const input of Object.values(record.states)) given[places[input]] = tensors[`initial_${places[input]}`];
  for (const number of record.calls.keys()) {
    signature.inputs.forEach((_, place) => { given[place] = tensors[`${number}_input_${place}`] ?? given[place]; });
    const { outputs, body } = await call(ort, session, () => feedsOf(signature, (place) => given[place]), settings);
    const answered = { error: outputs.error };
    for (const { name, onnx_name } of signature.outputs) answered[name] = outputs[onnx_name] ?? null;
    yield { number, answered, body };
    for (const [output, input] of Object.entries(record.states)) given[places[input]] = answered[output];
    if (outputs.error || Object.keys(record.states).some((output) => !answered[output])) return;
  }
}

function inOneBuffer(feeds) {
  const slots = [];
  let offset = 0;
  for (const [name, { dtype, shape, data }] of Object.entries(feeds)) {
    slots.push({ name, dtype, shape, offset, bytes: data.byteLength });
    offset += data.byteLength;
  }
  const bytes = new Uint8Array(offset);
  Object.values(feeds).forEach(({ data }, place) => {
    bytes.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), slots[place].offset);
  });
  return { slots, bytes };
}

function packed(header, pieces, size) {
  const text = new TextEncoder().encode(JSON.stringify(header));
  const body = new Uint8Array(8 + text.length + size);
  new DataView(body.buffer).setBigUint64(0, BigInt(text.length), true);
  body.set(text, 8);
  for (const [offset, piece] of pieces) body.set(piece, 8 + text.length + offset);
  return body;
}
