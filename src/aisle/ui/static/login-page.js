// Log in or create an account. What is wrong is said next to the field, and what was typed stays.
import { post } from "./ask.js";
import { busy, byId } from "./elements.js";
import { explain, text } from "./words.js";

// Which field a problem belongs to; any other is said below the form.
const FIELD_OF = { invalid_email: "email", email_taken: "email", weak_password: "password" };
const CODE_OF = { email: "invalid_email", password: "weak_password" };

const form = byId("login") ?? byId("register");

form.addEventListener("submit", (event) => {
  event.preventDefault();
  busy(form.querySelector("button"), send);
});

async function send() {
  clear();
  const data = Object.fromEntries(new FormData(form));
  const missing = ["email", "password"].filter((name) => !data[name].trim());
  for (const name of missing) wrong(name, text("form.missing"));
  if (missing.length) return byId(missing[0]).focus();
  try {
    if (form.id === "register") await post("/users", data);
    await post("/sessions", { email: data.email, password: data.password });
    return location.assign(form.dataset.next);
  } catch (problem) {
    return show(problem);
  }
}

function show(problem) {
  // What does not even fit the schema names its field; it is wrong in the same way.
  const named = problem.body.errors?.map((error) => error.key).find((key) => key in CODE_OF);
  const code = named ? CODE_OF[named] : problem.code;
  const field = named ?? FIELD_OF[code];
  // The server's own sentence on a password says which rule it breaks.
  const detail = code === "weak_password" && !named ? ` (${problem.detail})` : "";
  const words = `${explain({ code, detail: problem.detail })}${detail}`;
  if (!field) return void (byId("form-wrong").textContent = words);
  wrong(field, words);
  return byId(field).focus();
}

function wrong(name, words) {
  byId(`${name}-wrong`).textContent = words;
  byId(name).setAttribute("aria-invalid", "true");
  byId(name).setAttribute("aria-describedby", `${name}-wrong`);
}

function clear() {
  for (const place of form.querySelectorAll(".wrong")) place.textContent = "";
  for (const input of form.querySelectorAll("[aria-invalid]")) input.removeAttribute("aria-invalid");
}
