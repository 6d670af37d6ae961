// What Node and a browser share: a model opened by an onnxruntime, and runs whose arrays lie in one buffer.

const VIEWS = {
  float32: Float32Array, float64: Float64Array, int8: Int8Array, uint8: Uint8Array, int16: Int16Array, uint16: Uint16Array,
  int32: Int32Array, uint32: Uint32Array, int64: BigInt64Array, uint64: BigUint64Array, bool: Uint8Array,
  float16: globalThis.Float16Array ?? Uint16Array,
};
const ALIGNED = 64;

export async function open(ort, model, settings, external) {
  const options = { executionProviders: [settings.provider], graphOptimizationLevel: "all", logSeverityLevel: 4 };
  if (settings.serving.threads && settings.provider === "cpu") options.intraOpNumThreads = settings.serving.threads;
  if (external.length) options.externalData = external; // WebAssembly has no files: weights beside the model are handed in
  return ort.InferenceSession.create(model, options);
}

export async function run(ort, session, slots, bytes, outputNames) {
  const feeds = {};
  const given = [];
  for (const slot of slots) {
    const View = VIEWS[slot.dtype];
    if (!View) throw new Error(`\`${slot.name}\` is ${slot.dtype}, for which JavaScript has no array`);
    // each array gets a buffer of its own: what the runtime does to it is seen afterwards and reaches nothing else
    const own = bytes.slice(slot.offset, slot.offset + slot.bytes);
    const data = new View(own.buffer, own.byteOffset, slot.bytes / View.BYTES_PER_ELEMENT);
    feeds[slot.name] = new ort.Tensor(slot.dtype, data, slot.shape);
    given.push([slot, own]);
  }
  const start = performance.now();
  const found = await session.run(feeds, outputNames);
  const seconds = (performance.now() - start) / 1000;
  const overwritten = given.filter(([slot, own]) => differs(own, bytes.subarray(slot.offset, slot.offset + slot.bytes))).map(([slot]) => slot.name);
  const outputs = [];
  const pieces = [];
  let offset = 0;
  for (const name of outputNames) {
    const tensor = found[name];
    if (tensor === undefined) { outputs.push(null); continue; }
    const data = await tensor.getData();
    const piece = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    outputs.push({ name, dtype: tensor.type, shape: [...tensor.dims].map(Number), offset, bytes: piece.byteLength });
    pieces.push([offset, piece]);
    offset += Math.ceil(piece.byteLength / ALIGNED) * ALIGNED;
  }
  return { answer: { outputs, seconds, overwritten }, pieces, size: offset };
}

export function refusal(error, kind) {
  const text = String(error?.message ?? error).replace(/\s+/g, " ").slice(0, 400);
  const what = kind === "ModelError" ? `onnxruntime can't open this model: ${text}` : `onnxruntime refuses this input: ${text}`;
  return { error: { kind, code: kind === "ModelError" ? "model-refused" : "refused", what } };
}

function differs(a, b) {
  if (a.length !== b.length) return true;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return true;
  return false;
}
