// A ticket's code without a network: what it says and whether we signed it. The format: docs/reference/ticket-code.md.

const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const [HEAD_BYTES, SIGNATURE_BYTES] = [5, 64];
// What is left of a group of eight letters when its last bytes are missing.
const WHOLE_TAILS = new Set([0, 2, 4, 5, 7]);

// `keys` is the published key set. Returns { event, place, seat, version }, or { refused } with why it is not believed.
export async function readCode(typed, { keys }) {
  const raw = unpack(typed.trim().toUpperCase());
  if (raw === null || raw.length <= HEAD_BYTES + SIGNATURE_BYTES || raw[0] !== 1) return { refused: "tampered" };
  const kid = [...raw.slice(1, HEAD_BYTES)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  const jwk = keys.find((key) => key.kid === kid);
  if (!jwk) return { refused: "unknown_key" };
  const signed = raw.slice(0, -SIGNATURE_BYTES);
  if (!(await isSigned(jwk, raw.slice(-SIGNATURE_BYTES), signed))) return { refused: "tampered" };
  const found = numbers(signed.slice(HEAD_BYTES));
  if (found.length !== 4) return { refused: "tampered" };
  const [event, place, seat, version] = found;
  return { event, place, seat, version };
}

async function isSigned({ kty, crv, x }, signature, signed) {
  const key = await crypto.subtle.importKey("jwk", { kty, crv, x }, { name: "Ed25519" }, false, ["verify"]);
  return crypto.subtle.verify({ name: "Ed25519" }, key, signature, signed);
}

// Base32 without padding; null if it is none. Only one of the texts that decode alike is the code.
function unpack(letters) {
  if (!WHOLE_TAILS.has(letters.length % 8)) return null;
  const bytes = [];
  let [value, bits] = [0, 0];
  for (const letter of letters) {
    const five = LETTERS.indexOf(letter);
    if (five < 0) return null;
    value = ((value << 5) | five) & 0xfff;
    bits += 5;
    if (bits < 8) continue;
    bits -= 8;
    bytes.push((value >> bits) & 0xff);
  }
  return (value & ((1 << bits) - 1)) === 0 ? Uint8Array.from(bytes) : null;
}

// Unsigned LEB128; more than 53 bits cannot be one of ours.
function numbers(bytes) {
  const found = [];
  let [value, factor] = [0, 1];
  for (const byte of bytes) {
    value += (byte & 0x7f) * factor;
    factor *= 128;
    if (byte < 0x80) {
      found.push(value);
      [value, factor] = [0, 1];
    } else if (factor > 2 ** 49) {
      return [];
    }
  }
  return factor === 1 ? found : [];
}
