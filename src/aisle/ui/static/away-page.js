// The page that says we will be right back: looks again by itself.
const seconds = Number(document.querySelector("[data-retry]").dataset.retry);

setTimeout(() => location.reload(), Math.max(3, seconds) * 1000);
