// The API as the pages ask it: JSON both ways, an Idempotency-Key on what changes something, problems as exceptions.

export class Problem extends Error {
  constructor(status, code, detail, body = {}) {
    super(detail);
    this.status = status;
    this.code = code;
    this.detail = detail;
    this.body = body;
  }
}

// How far the server's clock is ahead of this one: deadlines are the server's.
let ahead = 0;

export function serverNow() {
  return Date.now() + ahead;
}

export function newKey() {
  return crypto.randomUUID();
}

export const get = (path) => ask("GET", path);
export const remove = (path) => ask("DELETE", path);
// A repeated click must not repeat the effect: pass the same key again.
export const post = (path, body = {}, key = newKey()) => ask("POST", path, body, key);
export const patch = (path, body, key = newKey()) => ask("PATCH", path, body, key);
export const put = (path, body) => ask("PUT", path, body);

async function ask(method, path, body, key) {
  const headers = { accept: "application/json" };
  if (body !== undefined) headers["content-type"] = "application/json";
  if (key !== undefined) headers["idempotency-key"] = key;
  let reply;
  try {
    reply = await fetch(`/api/v1${path}`, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new Problem(0, "network", "no connection");
  }
  const date = Date.parse(reply.headers.get("date") ?? "");
  // The header counts whole seconds: only a clock that is really off is corrected.
  if (!Number.isNaN(date) && Math.abs(date - Date.now()) > 3000) ahead = date - Date.now();
  const answer = reply.status === 204 ? null : await reply.json().catch(() => null);
  if (!reply.ok) {
    throw new Problem(reply.status, answer?.code ?? "other", answer?.detail ?? `${reply.status}`, answer ?? {});
  }
  return answer;
}
