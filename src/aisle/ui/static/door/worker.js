// Keeps the door's page on the device, so that a reload without a network shows it again. A service worker of its own
// for `/door`: FILES, the addresses of what the page is made of, stands in front of this text when it is served.
//
// The page itself is asked from the server whenever that answers; the copy is for when it does not. What has a digest in
// its address never changes and is taken from the copy at once. Scans are no business of this file.
/* global FILES */

const CACHE = "aisle-door";
const PAGE = "/door";
const PATIENCE_MS = 5000;

async function keepEverything() {
  const cache = await caches.open(CACHE);
  await cache.addAll(FILES);
  await keepPage(await fetch(PAGE)).catch(() => undefined);
}

// Somebody who is no longer logged in is sent elsewhere: then the copy goes, too.
async function keepPage(answer) {
  const cache = await caches.open(CACHE);
  const isPage = answer.ok && !answer.redirected;
  if (isPage) await cache.put(PAGE, answer.clone());
  else if (answer.status < 500) await cache.delete(PAGE);
  return answer;
}

async function forgetOthers() {
  const cache = await caches.open(CACHE);
  const kept = new Set([...FILES, PAGE]);
  for (const request of await cache.keys()) {
    if (!kept.has(new URL(request.url).pathname)) await cache.delete(request);
  }
  await clients.claim();
}

async function page(request) {
  try {
    const answer = await fetch(request, { signal: AbortSignal.timeout(PATIENCE_MS) });
    if (answer.status < 500) return keepPage(answer);
    return (await copyOf(PAGE)) ?? answer;
  } catch {
    return (await copyOf(PAGE)) ?? Response.error();
  }
}

async function file(request) {
  const known = await copyOf(request);
  if (known) return known;
  const answer = await fetch(request);
  if (answer.ok) await (await caches.open(CACHE)).put(request, answer.clone());
  return answer;
}

async function copyOf(request) {
  return (await caches.open(CACHE)).match(request, { ignoreVary: true });
}

addEventListener("install", (event) => {
  skipWaiting();
  event.waitUntil(keepEverything());
});
addEventListener("activate", (event) => event.waitUntil(forgetOthers()));
addEventListener("fetch", (event) => {
  const { pathname, origin } = new URL(event.request.url);
  if (event.request.method !== "GET" || origin !== location.origin) return;
  if (event.request.mode === "navigate" && pathname === PAGE) event.respondWith(page(event.request));
  else if (pathname.startsWith("/static/")) event.respondWith(file(event.request));
});
