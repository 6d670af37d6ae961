// The page: opens the model in the browser's WebAssembly, asks for work, and posts what it made of it.
import { open, refusal, run } from "./tensors.mjs";

const post = (path, body) => fetch(path, { method: "POST", body });
const say = (answer) => post("/answer", JSON.stringify(answer));
const bytesOf = async (path) => new Uint8Array(await (await fetch(path)).arrayBuffer());

async function serve() {
  const settings = await (await fetch("/settings")).json();
  let ort, session;
  try {
    ort = await import("/package/dist/ort.wasm.min.mjs");
    ort.env.wasm.wasmPaths = "/package/dist/";
    ort.env.wasm.numThreads = settings.serving.threads || 1;
    const external = await Promise.all(settings.external.map(async (path) => ({ path, data: await bytesOf(`/beside/${path}`) })));
    session = await open(ort, await bytesOf("/model"), settings, external);
  } catch (error) {
    await say(refusal(error, "ModelError"));
    return;
  }
  await say({ inputs: settings.inputs, outputs: settings.outputs, findings: [] });
  for (;;) {
    const { inputs: slots } = await (await fetch("/next")).json();
    try {
      const size = Math.max(0, ...slots.map((slot) => slot.offset + slot.bytes));
      const { answer, pieces, size: wanted } = await run(ort, session, slots, await bytesOf(`/inputs?${size}`), settings.outputs);
      const body = new Uint8Array(wanted);
      for (const [offset, piece] of pieces) body.set(piece, offset);
      await post("/outputs", body);
      await say(answer);
    } catch (error) {
      await say(refusal(error, "Refused"));
    }
  }
}

serve();
