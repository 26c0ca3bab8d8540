// The event's bookings, a page at a time. The newest page comes with the figures; an older one is asked for again with
// each of them, so that no page shows a state that has passed.
import { get } from "../ask.js";
import { namesOf, placeOf } from "../cart.js";
import { byId, make, say } from "../elements.js";
import { explain, money, text } from "../words.js";

const ROWS = 12;

export class Recent {
  constructor({ event, currency, zone }) {
    this.path = `/events/${event}/sales/bookings`;
    this.currency = currency;
    this.clock = new Intl.DateTimeFormat("en-GB", {
      day: "numeric",
      month: "short",
      hour: "2-digit",
      minute: "2-digit",
      second: "2-digit",
      timeZone: zone,
    });
    // The last booking of the page before; null is the newest page.
    this.before = null;
    this.next = null;
    byId("older").addEventListener("click", () => this.turnTo(this.next));
    byId("newest").addEventListener("click", () => this.turnTo(null));
  }

  // With figures, which hold the newest bookings.
  refresh(newest) {
    if (this.before === null) this.show({ items: newest, next: newest.length === ROWS ? newest.at(-1).id : null });
    else this.load();
  }

  turnTo(before) {
    this.before = before;
    return this.load();
  }

  async load() {
    const { before } = this;
    const from = before ? `&before=${before}` : "";
    try {
      const page = await get(`${this.path}?limit=${ROWS}${from}`);
      if (before === this.before) this.show(page);
    } catch (problem) {
      say(explain(problem));
    }
  }

  show({ items, next }) {
    this.next = next;
    byId("recent").replaceChildren(...items.map((booking) => this.row(booking)));
    byId("recent-table").hidden = items.length === 0;
    byId("no-bookings").hidden = items.length > 0;
    byId("no-bookings").textContent = text(this.before ? "desk.no_older" : "desk.no_bookings");
    byId("older").disabled = !next;
    byId("newest").disabled = this.before === null;
    byId("pages").hidden = !next && this.before === null;
  }

  row(booking) {
    const seats = booking.seats.map((part) => `${placeOf(part)}: ${namesOf(part).join("; ")}`).join(" · ");
    return make(
      "tr",
      { "data-booking": booking.id },
      make("td", {}, make("time", { datetime: booking.placed_at }, this.clock.format(new Date(booking.placed_at)))),
      make("td", { class: "words" }, seats || text("desk.asked", { count: booking.quantity })),
      make("td", {}, make("span", { class: `state ${booking.state}` }, text(`booking.state.${booking.state}`))),
      make("td", {}, booking.total ? money(booking.total, this.currency) : "–"),
    );
  }
}
