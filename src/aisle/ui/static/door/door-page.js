// At the door: a code in front of the camera or typed, and one large answer. Without a network the device decides itself
// with the published keys, and hands its scans in as soon as it can.
import { newKey, post, serverNow } from "../ask.js";
import { byId, say } from "../elements.js";
import { explain, moment, text } from "../words.js";
import { canScan, startCamera } from "./camera.js";
import { readCode } from "./code.js";
import { Notebook } from "./notebook.js";

const REFRESH_MS = 20_000;
const SIGNS = { accepted: "✓", refused: "✕" };
const counts = { accepted: 0, refused: 0 };
let notebook = null;
let working = Promise.resolve();

// One after the other, in the order they were shown.
function scan(code) {
  working = working.then(() => decide(code.trim())).catch((problem) => say(explain(problem)));
  return working;
}

async function decide(code) {
  if (!code) return;
  const gate = byId("gate").value.trim();
  const scanned_at = new Date(serverNow()).toISOString();
  try {
    const answer = await post("/check-ins", { event_id: notebook.event, code, gate });
    await remember(code, answer.outcome);
    show(answer.outcome, { seat: answer.ticket, first: answer.first_entry });
    network(true);
  } catch (problem) {
    // A refusal of the request itself (not logged in, no longer at this door) is no reason to let anybody in.
    if (problem.status !== 0 && problem.status < 500) throw problem;
    await decideAlone({ id: newKey(), code, gate, scanned_at });
  }
}

async function remember(code, outcome) {
  if (outcome !== "accepted" && outcome !== "already_in") return;
  const content = await readCode(code, notebook).catch(() => ({ refused: "unreadable" }));
  if (!content.refused) notebook.enter(content);
}

async function decideAlone(seen) {
  network(false);
  const content = await readCode(seen.code, notebook).catch(() => ({ refused: "unreadable" }));
  const outcome = notebook.judge(content);
  if (outcome === "accepted") notebook.enter(content);
  if (outcome !== "unreadable") notebook.keep(seen);
  show(outcome, { isAlone: true });
}

function show(outcome, { seat = null, first = null, isAlone = false }) {
  const verdict = outcome === "accepted" ? "accepted" : "refused";
  counts[verdict] += 1;
  byId("answer").dataset.outcome = verdict;
  byId("sign").textContent = SIGNS[verdict];
  byId("verdict").textContent = text(`verdict.${outcome}`);
  byId("seat").textContent = seat ?? "";
  const since = first ? text("door.first", { at: moment(first.scanned_at), gate: first.gate || "–" }) : "";
  byId("why").textContent = [since, isAlone ? text("door.alone") : ""].filter(Boolean).join(" ");
  navigator.vibrate?.(verdict === "accepted" ? 80 : [80, 80, 80]);
  tally();
}

function tally() {
  byId("accepted").textContent = counts.accepted;
  byId("refused").textContent = counts.refused;
  byId("queued").textContent = notebook.queue.length;
}

function network(isThere) {
  byId("network").textContent = text(isThere ? "door.online" : "door.offline");
}

// Hand in what waits, then learn what is void by now.
async function catchUp() {
  const known = notebook;
  try {
    const results = await known.merge();
    const doubled = results.filter((one) => one.outcome !== "accepted").length;
    if (results.length) say(text("door.merged", { count: results.length, doubled }));
    await known.refresh();
    network(true);
  } catch (problem) {
    if (problem.status === 0 || problem.status >= 500) network(false);
    else say(explain(problem));
  }
  tally();
}

function choose() {
  notebook = new Notebook(byId("door").dataset.account, Number(byId("event").value));
  tally();
  return catchUp();
}

async function offerCamera() {
  const isPossible = await canScan();
  byId("start-camera").hidden = !isPossible;
  byId("no-camera").hidden = isPossible;
  byId("start-camera").addEventListener("click", async () => {
    try {
      byId("camera").hidden = false;
      await startCamera(byId("camera"), scan);
      byId("start-camera").hidden = true;
    } catch {
      byId("camera").hidden = true;
      say(text("door.camera_refused"));
    }
  });
}

// A copy of this page for a start without a network; a browser that keeps none scans all the same.
async function keepThisPage() {
  try {
    await navigator.serviceWorker.register("/door-worker.js", { scope: "/door" });
    await navigator.serviceWorker.ready;
    byId("kept").hidden = !(await caches.match("/door", { ignoreVary: true }));
  } catch {
    byId("kept").hidden = true;
  }
}

byId("manual").addEventListener("submit", (event) => {
  event.preventDefault();
  const code = byId("code").value;
  byId("code").value = "";
  byId("code").focus();
  scan(code);
});
byId("event").addEventListener("change", choose);
addEventListener("online", catchUp);
addEventListener("offline", () => network(false));
setInterval(catchUp, REFRESH_MS);
choose();
offerCamera();
keepThisPage();
