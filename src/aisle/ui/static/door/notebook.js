// What a door knows without a network: the keys, the codes that are void, who came in here, and scans to hand in later.
//
// Kept in localStorage for each account and event, so that a closed tab or an empty battery loses no scan.
import { get, post } from "../ask.js";

const MERGE_MAX = 200;

export class Notebook {
  constructor(account, event) {
    this.event = event;
    this.name = `aisle.door.${account}.${event}`;
    this.keys = this.read("keys", []);
    this.voided = new Set(this.read("voided", []));
    this.entered = new Set(this.read("entered", []));
    this.queue = this.read("queue", []);
  }

  read(part, otherwise) {
    return JSON.parse(localStorage.getItem(`${this.name}.${part}`) ?? "null") ?? otherwise;
  }

  write(part, value) {
    localStorage.setItem(`${this.name}.${part}`, JSON.stringify(value));
  }

  // Fresh keys and void codes, while there is a network.
  async refresh() {
    const { keys } = await get("/ticket-keys");
    const voided = [];
    let after = "";
    do {
      const page = await get(`/events/${this.event}/voided-codes?after=${after}`);
      voided.push(...page.items.map(({ place, seat, version }) => ticketKey({ place, seat, version })));
      after = page.next;
    } while (after);
    [this.keys, this.voided] = [keys, new Set(voided)];
    this.write("keys", keys);
    this.write("voided", voided);
  }

  // The outcome as far as this device can know it.
  judge(content) {
    if (content.refused) return content.refused;
    if (content.event !== this.event) return "other_event";
    if (this.voided.has(ticketKey(content))) return "voided";
    return this.entered.has(ticketKey(content)) ? "already_in" : "accepted";
  }

  enter(content) {
    this.entered.add(ticketKey(content));
    this.write("entered", [...this.entered]);
  }

  keep(scan) {
    this.queue.push(scan);
    this.write("queue", this.queue);
  }

  // Hands in what was scanned without a network. A scan keeps its id, so handing it in twice is handing it in once.
  async merge() {
    const results = [];
    while (this.queue.length) {
      const batch = this.queue.filter((scan) => scan.gate === this.queue[0].gate).slice(0, MERGE_MAX);
      const scans = batch.map(({ id, code, scanned_at }) => ({ id, code, scanned_at }));
      const { items } = await post("/check-ins/merge", { event_id: this.event, gate: batch[0].gate, scans });
      const done = new Set(scans.map(({ id }) => id));
      this.queue = this.queue.filter(({ id }) => !done.has(id));
      this.write("queue", this.queue);
      results.push(...items);
    }
    return results;
  }
}

function ticketKey({ place, seat, version }) {
  return `${place}-${seat}-${version}`;
}
