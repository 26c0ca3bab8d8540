// My account: all my data as a file, and the end of the account, asked for twice and with the password.
import { get, post } from "./ask.js";
import { askTwice, byId } from "./elements.js";
import { explain, text } from "./words.js";

const form = byId("erase");
const password = byId("password");

async function erase() {
  byId("password-wrong").textContent = "";
  if (!password.value) return wrong(text("form.missing"));
  try {
    await post("/me/erase", { password: password.value });
    return location.assign("/");
  } catch (problem) {
    return wrong(problem.code === "wrong_credentials" ? text("account.wrong_password") : explain(problem));
  }
}

function wrong(words) {
  byId("password-wrong").textContent = words;
  password.setAttribute("aria-invalid", "true");
  password.setAttribute("aria-describedby", "password-wrong");
  password.focus();
}

form.addEventListener("submit", (event) => event.preventDefault());
byId("really").append(
  askTwice(
    {
      key: "erase",
      words: text("account.erase_button"),
      really: text("account.really"),
      yes: text("account.yes"),
      no: text("account.no"),
    },
    erase,
  ),
);

try {
  byId("email").textContent = (await get("/me")).email;
} catch (problem) {
  byId("email").textContent = explain(problem);
}
