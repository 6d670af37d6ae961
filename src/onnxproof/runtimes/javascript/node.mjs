// A child of onnxproof in Node: opens one model, greets, and answers request by request over the shared files.
import fs from "node:fs";
import path from "node:path";
import readline from "node:readline";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { open, refusal, run } from "./tensors.mjs";

const MARK = "\x1eonnxproof ";
const settings = JSON.parse(process.argv[2]);
const folder = process.argv[3];

function say(answer) {
  fs.writeSync(1, `${MARK}${JSON.stringify(answer)}\n`);
}

async function load() {
  const require = createRequire(path.join(settings.package, "package.json"));
  const ort = settings.provider === "wasm" ? await import(pathToFileURL(webEntry())) : require(settings.package);
  if (ort.env?.wasm) ort.env.wasm.numThreads = settings.serving.threads || 1;
  return ort.default?.InferenceSession ? ort.default : ort;
}

function webEntry() {
  const condition = JSON.parse(fs.readFileSync(path.join(settings.package, "package.json"), "utf8")).exports["."].node;
  const entry = typeof condition === "string" ? condition : condition.import?.default ?? condition.import ?? condition.default;
  return path.join(settings.package, entry);
}

function read(slots) {
  const size = Math.max(0, ...slots.map((slot) => slot.offset + slot.bytes));
  const bytes = new Uint8Array(size);
  const file = fs.openSync(path.join(folder, "inputs"), "r");
  try { fs.readSync(file, bytes, 0, size, 0); } finally { fs.closeSync(file); }
  return bytes;
}

function write(pieces, size) {
  const file = fs.openSync(path.join(folder, "outputs"), "r+");
  try {
    if (fs.fstatSync(file).size < size) fs.ftruncateSync(file, 2 * size);
    for (const [offset, piece] of pieces) fs.writeSync(file, piece, 0, piece.byteLength, offset);
  } finally { fs.closeSync(file); }
}

let ort, session;
try {
  ort = await load();
  const web = settings.provider === "wasm";
  const beside = (name) => path.join(path.dirname(settings.model), name);
  const external = web ? settings.external.map((name) => ({ path: name, data: fs.readFileSync(beside(name)) })) : [];
  session = await open(ort, web ? fs.readFileSync(settings.model) : settings.model, settings, external);
} catch (error) {
  say(refusal(error, "ModelError"));
  process.exit(0);
}
say({ inputs: settings.inputs, outputs: settings.outputs, findings: [] });
for await (const line of readline.createInterface({ input: process.stdin })) {
  try {
    const slots = JSON.parse(line).inputs;
    const { answer, pieces, size } = await run(ort, session, slots, read(slots), settings.outputs);
    write(pieces, size);
    say(answer);
  } catch (error) {
    say(refusal(error, "Refused"));
  }
}
process.exit(0);
