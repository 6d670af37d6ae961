"""A bundle that is served in a thread, a stand-in for onnxruntime-web that runs the linear layer, and a visitor without a browser."""

import http.client
import json
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from support.linear_files import BIAS, WEIGHT

from onnxproof.bundle.serve import serve
from onnxproof.options import Listening, ReplayOptions, Serving
from onnxproof.results.proof import Proof

_RUNTIME = """
const WEIGHT = %s, BIAS = %s;
export const env = { wasm: {} };
export class Tensor {
  constructor(type, data, dims) { Object.assign(this, { type, data, dims }); }
  async getData() { return this.data; }
}
export const InferenceSession = {
  async create(model, options) {
    const [provider] = options.executionProviders;
    if (provider === "webnn") throw new Error("no kernel for Gemm");
    return { run: async ({ input }) => ({ y: linear(input, provider === "webgpu" ? 1 : 0) }) };
  },
};
function linear({ data, dims }, off) {
  const out = new Float32Array(dims[0] * BIAS.length);
  for (let row = 0; row < dims[0]; row++)
    for (let k = 0; k < BIAS.length; k++) {
      let sum = BIAS[k] + off;
      for (let i = 0; i < dims[1]; i++) sum += WEIGHT[k][i] * data[row * dims[1] + i];
      out[row * BIAS.length + k] = sum;
    }
  return new Tensor("float32", out, [dims[0], BIAS.length]);
}
"""


def stand_in(folder: Path) -> Path:
    """A folder of npm packages with a runtime that is right on `wasm`, off by one on `webgpu` and refuses the model on `webnn`."""
    package = folder / "onnxruntime-web"
    (package / "dist").mkdir(parents=True)
    (package / "package.json").write_text('{"version": "0.0.1"}')
    script = _RUNTIME % (WEIGHT.tolist(), BIAS.tolist())
    for name in ("ort.wasm.min.mjs", "ort.webgpu.min.mjs"):
        (package / "dist" / name).write_text(script)
    (package / "secret.txt").write_text("not for visitors")
    return folder


@dataclass
class Served:
    """A replay that waits for its visitor."""

    address: str = ""
    proof: Proof | None = None
    error: BaseException | None = None
    ready: threading.Event = field(default_factory=threading.Event)

    def ask(
        self, method: str, name: str, body: bytes | None = None, **headers: str
    ) -> tuple[int, bytes]:
        """One request below the token."""
        return self.ask_path(method, urlsplit(self.address).path + name, body, **headers)

    def ask_path(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(urlsplit(self.address).netloc, timeout=30)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def post(self, name: str, document: Any) -> tuple[int, Any]:
        status, body = self.ask("POST", name, json.dumps(document).encode())
        return status, json.loads(body)


@contextmanager
def served(
    bundle: Path, wait_s: float = 60.0, time_s: float = 60.0, **options: Any
) -> Iterator[Served]:
    """The replay of a bundle in a thread, which has ended afterwards."""
    state = Served()

    def announce(address: str) -> None:
        state.address = address
        state.ready.set()

    def run() -> None:
        chosen = ReplayOptions(serving=Serving(time_s=time_s), **options)
        try:
            state.proof = serve(bundle, chosen, Listening(wait_s=wait_s), announce)
        except BaseException as why:
            state.error = why
        finally:
            state.ready.set()

    thread = threading.Thread(target=run)
    thread.start()
    assert state.ready.wait(60)
    try:
        yield state
    finally:
        thread.join(90)
        assert not thread.is_alive()


def packed(*outputs: np.ndarray) -> bytes:
    """An answer as the page sends it."""
    about, data = [], b""
    for array in outputs:
        content = array.tobytes()
        about.append(
            {
                "dtype": str(array.dtype),
                "shape": list(array.shape),
                "offset": len(data),
                "bytes": len(content),
            }
        )
        data += content
    header = json.dumps({"outputs": about, "seconds": 0.01, "overwritten": []}).encode()
    return struct.pack("<Q", len(header)) + header + data
