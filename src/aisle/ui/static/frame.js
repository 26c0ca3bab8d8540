// What every page does: log out.
import { remove } from "./ask.js";
import { byId } from "./elements.js";

byId("log-out")?.addEventListener("click", async () => {
  try {
    await remove("/sessions/current");
  } finally {
    location.assign("/");
  }
});
