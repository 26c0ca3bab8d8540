// What every page does: log out.
import { remove } from "./ask.js";
import { byId } from "./elements.js";

byId("log-out")?.addEventListener("click", async () => {
  try {
    // What a door keeps of its page is for whoever is logged in.
    await globalThis.caches?.delete("aisle-door");
    await remove("/sessions/current");
  } finally {
    location.assign("/");
  }
});
