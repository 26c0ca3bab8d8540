// The cart on a page of its own.
import { Cart, showCart } from "./cart.js";
import { byId, say } from "./elements.js";
import { explain } from "./words.js";

const cart = new Cart();
showCart(byId("cart"), cart);
cart.load().catch((problem) => say(explain(problem)));
