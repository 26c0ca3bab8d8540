// Texts, amounts and moments in the words of people. The same words as the templates use.
import { TEXTS } from "./texts.js";

export function text(key, values = {}) {
  if (!(key in TEXTS)) throw new Error(`there is no text ${key}`);
  return TEXTS[key].replace(/\{(\w+)\}/g, (all, name) => (name in values ? String(values[name]) : all));
}

export function knows(key) {
  return key in TEXTS;
}

const formats = new Map();

export function money(minor, currency) {
  if (!formats.has(currency)) formats.set(currency, new Intl.NumberFormat("en", { style: "currency", currency }));
  const format = formats.get(currency);
  const digits = format.resolvedOptions().maximumFractionDigits;
  return format.format(minor / 10 ** digits).replace(/\.0+$/, "");
}

export function moment(iso, timeZone) {
  const options = {
    weekday: "long",
    day: "numeric",
    month: "long",
    year: "numeric",
    hour: "2-digit",
    minute: "2-digit",
  };
  return new Intl.DateTimeFormat("en-GB", { ...options, timeZone }).format(new Date(iso));
}

// 9:05
export function clock(ms) {
  const seconds = Math.max(0, Math.ceil(ms / 1000));
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
}

// "5-10" is row 5, seat 10.
export function seatName(name) {
  const [row, seat] = name.split("-");
  return text("seat.name", { row, seat });
}

// Seats of one block, row by row: "Row 6, seats 7, 8".
export function seatNames(names) {
  const rows = new Map();
  for (const name of names) {
    const [row, seat] = name.split("-");
    rows.set(row, [...(rows.get(row) ?? []), seat]);
  }
  return [...rows].map(([row, seats]) =>
    seats.length === 1
      ? text("seat.name", { row, seat: seats[0] })
      : text("seat.names", { row, seats: seats.join(", ") }),
  );
}

// What a problem of the API means to the person in front of the page.
export function explain(problem) {
  const key = `problem.${problem.code}`;
  return knows(key) ? text(key) : text("problem.other", { detail: problem.detail });
}
