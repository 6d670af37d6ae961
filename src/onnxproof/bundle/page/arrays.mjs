// Tensors of a bundle: read from safetensors, converted to what a model takes, and widened to float64 for measuring.

const PLAIN = {
  BOOL: "bool", I8: "int8", I16: "int16", I32: "int32", I64: "int64", U8: "uint8", U16: "uint16", U32: "uint32", U64: "uint64",
  F16: "float16", F32: "float32", F64: "float64",
};
const VIEWS = {
  bool: Uint8Array, int8: Int8Array, uint8: Uint8Array, int16: Int16Array, uint16: Uint16Array, int32: Int32Array, uint32: Uint32Array,
  int64: BigInt64Array, uint64: BigUint64Array, float16: Uint16Array, bfloat16: Uint16Array, float32: Float32Array, float64: Float64Array,
};
const EPS = { float16: 2 ** -10, bfloat16: 2 ** -7, float32: 2 ** -23, float64: 2 ** -52 };
const TINY = { float16: 2 ** -14, bfloat16: 2 ** -126, float32: 2 ** -126, float64: 2 ** -1022 };

export const isFloat = (tensor) => tensor.dtype in EPS;
export const epsOf = (tensor) => EPS[tensor.dtype];
export const tinyOf = (tensor) => TINY[tensor.dtype];
export const sizeOf = (shape) => shape.reduce((product, size) => product * size, 1);
export const sameShape = (a, b) => a.shape.length === b.shape.length && a.shape.every((size, axis) => size === b.shape[axis]);

export function tensorOf(dtype, shape, bytes) {
  const View = VIEWS[dtype];
  if (!View) throw new Error(`JavaScript has no array for ${dtype}`);
  const own = bytes.slice(); // at the start of a buffer of its own, as wide numbers have to be
  return { dtype, shape, data: new View(own.buffer, 0, own.byteLength / View.BYTES_PER_ELEMENT) };
}

// The tensors of a .safetensors file; `dtypes` names those that are stored as another. Complex numbers stay pairs.
export function readTensors(buffer, dtypes) {
  const size = Number(new DataView(buffer).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, size)));
  const tensors = {};
  for (const [name, about] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    const [begin, end] = about.data_offsets;
    const odd = dtypes[name] ?? "";
    const dtype = odd && !odd.startsWith("complex") ? odd : PLAIN[about.dtype];
    tensors[name] = tensorOf(dtype, about.shape, new Uint8Array(buffer, 8 + size + begin, end - begin));
  }
  return tensors;
}

export function toFloat64({ dtype, data }) {
  if (dtype === "float64") return data;
  if (dtype === "float16") return Float64Array.from(data, halfToNumber);
  if (dtype === "bfloat16") return Float64Array.from(data, (bits) => new Float32Array(new Uint32Array([bits << 16]).buffer)[0]);
  if (dtype === "int64" || dtype === "uint64") return Float64Array.from(data, Number);
  return Float64Array.from(data);
}

// The same values in the dtype that the file's input has.
export function convert(tensor, dtype) {
  if (dtype === tensor.dtype) return tensor;
  if (!(dtype in VIEWS) || dtype === "bfloat16") throw new Error(`JavaScript has no array for ${dtype}`);
  const data = new VIEWS[dtype](tensor.data.length);
  const values = toFloat64(tensor);
  for (let i = 0; i < data.length; i++) data[i] = converted(values[i], tensor.data[i], dtype);
  return { dtype, shape: tensor.shape, data };
}

function converted(value, own, dtype) {
  if (dtype === "float16") return numberToHalf(value);
  if (dtype === "bool") return value ? 1 : 0;
  if (dtype === "int64" || dtype === "uint64") return typeof own === "bigint" ? own : BigInt(Math.trunc(value) || 0);
  if (dtype.startsWith("float")) return value;
  return typeof own === "bigint" ? Number(BigInt.asIntN(32, own)) : Math.trunc(value);
}

function halfToNumber(bits) {
  const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

function numberToHalf(value) {
  const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0, size = Math.abs(value);
  if (Number.isNaN(value)) return 0x7e00;
  if (size >= 65520) return sign | 0x7c00; // from half way beyond the largest number on
  const exponent = Math.max(-14, Math.floor(Math.log2(size)));
  const step = 2 ** (exponent - 10);
  const rounded = halfEven(size / step);
  if (size < 2 ** -14) return sign | rounded;
  return (sign | ((exponent + 15) << 10)) + (rounded - 1024);
}

function halfEven(value) {
  const low = Math.floor(value), rest = value - low;
  if (rest !== 0.5) return Math.round(value);
  return low % 2 ? low + 1 : low;
}

// The elements at the places that `keep.at` keeps.
export function select(tensor, keep) {
  const data = tensor.data.filter((_, place) => keep.at(place));
  return { dtype: tensor.dtype, shape: [data.length], data };
}
