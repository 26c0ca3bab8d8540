// The colours of the map, read from colors.css, again when the system changes between light and dark.

export function readColours() {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  return {
    ground: colour("sunken"),
    block: colour("surface"),
    line: colour("line-strong"),
    ink: colour("ink"),
    soft: colour("soft"),
    surface: colour("surface"),
    gone: colour("gone"),
    goneLine: colour("gone-line"),
    mine: colour("mine"),
    mineInk: colour("mine-ink"),
    accent: colour("accent"),
    tiers: [1, 2, 3, 4, 5].map((n) => colour(`tier-${n}`)),
  };
}

export function onSchemeChange(listener) {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", listener);
}
