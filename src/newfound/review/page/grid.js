// The grid: only the images in sight are in the page, however many a class has.

import { post, thumb } from "./api.js";
import { $, make, picture } from "./dom.js";
import { FAR, on, select, store, tell } from "./store.js";

const grid = $("#grid");
const canvas = $("#canvas");
const GAP = 6;
const tiles = new Map(); // index → element
const spare = []; // elements that went out of sight
const captions = new Map(); // row → words

let side = Number(localStorage.getItem("newfound-size")) || 112;
let edge = side; // a little more than asked, so that a line is filled
let columns = 1;
let anchor = 0; // where shift begins
let before = new Set(); // what was selected by then

export const size = () => side;

export function resize(to) {
  side = Math.max(56, Math.min(260, to));
  localStorage.setItem("newfound-size", side);
  $("#size").value = side;
  lay();
}

function lay() {
  const width = grid.clientWidth - 2 * GAP;
  columns = Math.max(1, Math.floor((width + GAP) / (side + GAP)));
  edge = Math.max(side, Math.floor((width + GAP) / columns) - GAP);
  canvas.style.height = `${Math.ceil(store.rows.length / columns) * (edge + GAP) + GAP}px`;
  for (const tile of tiles.values()) tile.remove();
  tiles.clear();
  draw();
}

function retire(index, tile) {
  tiles.delete(index);
  tile.hidden = true;
  tile.removeAttribute("id");
  spare.push(tile);
}

function span() {
  const first = Math.max(0, Math.floor((grid.scrollTop - edge) / (edge + GAP)) * columns);
  const rows = Math.ceil((grid.clientHeight + 2 * edge) / (edge + GAP)) + 1;
  return [first, Math.min(store.rows.length, first + rows * columns)];
}

let asked = 0;
const draw = () => {
  if (!asked) asked = requestAnimationFrame(redraw);
};

function redraw() {
  asked = 0;
  const [first, last] = span();
  for (const [index, tile] of tiles) if (index < first || index >= last) retire(index, tile);
  for (let index = first; index < last; index++) if (!tiles.has(index)) place(index);
  restyle();
  later();
}

function place(index) {
  let tile = spare.pop();
  if (!tile) {
    tile = make("div", { role: "option", class: "tile" }, picture(""), make("span", { class: "sure" }), make("span", { class: "mark" }), make("span", { class: "guess" }), make("span", { class: "open", "aria-hidden": "true", text: "⤢", title: "Open (Enter)" }));
    canvas.append(tile);
  }
  const row = store.rows[index];
  tile.hidden = false;
  tile.id = `tile-${index}`;
  tile.dataset.index = index;
  tile.style.transform = `translate(${GAP + (index % columns) * (edge + GAP)}px, ${GAP + Math.floor(index / columns) * (edge + GAP)}px)`;
  tile.style.width = tile.style.height = `${edge}px`;
  const [image, sure, mark, guess] = tile.children;
  const source = thumb(row, edge);
  if (image.getAttribute("src") !== source) {
    image.classList.remove("missing");
    image.src = source;
  }
  sure.textContent = store.marks[index] === "d" ? "" : `${store.confidence[index]} %`;
  mark.textContent = { d: "✓", o: "?", f: "?", u: "?" }[store.marks[index]] ?? "";
  tile.dataset.mark = store.marks[index];
  const line = thought(index);
  guess.textContent = line?.name ?? "";
  guess.style.setProperty("--colour", line?.colour ?? "transparent");
  tile.setAttribute("aria-posinset", index + 1);
  tile.setAttribute("aria-setsize", store.rows.length);
  name(tile, row, index);
  tiles.set(index, tile);
}

// The class that an image is thought to be of, where that is not the one that is shown.
const thought = (index) => (store.numbers[index] === store.current && store.title === null ? undefined : store.byNumber.get(store.numbers[index]));

function name(tile, row, index) {
  const said = { d: ", reviewed", o: ", outlier", f: `, unsure: ${FAR}`, u: ", unsure" }[store.marks[index]] ?? "";
  const words = captions.get(row) ?? `image ${row}`;
  const guess = thought(index)?.name;
  tile.setAttribute("aria-label", `${words}, ${store.confidence[index]} % sure${said}${guess ? `, guess: ${guess}` : ""}`);
  tile.title = [words, ...(guess ? [`guess: ${guess}`] : []), ...(store.marks[index] === "f" ? [`unsure: ${FAR}`] : [])].join("\n");
}

function restyle() {
  for (const [index, tile] of tiles) {
    tile.setAttribute("aria-selected", String(store.selection.has(store.rows[index])));
    tile.classList.toggle("focus", index === store.focus);
  }
  if (tiles.has(store.focus)) grid.setAttribute("aria-activedescendant", `tile-${store.focus}`);
  else grid.removeAttribute("aria-activedescendant");
}

// Names of the images in sight, once scrolling rests.
let timer;
function later() {
  clearTimeout(timer);
  timer = setTimeout(async () => {
    const rows = [...tiles.keys()].map((index) => store.rows[index]).filter((row) => row !== undefined && !captions.has(row));
    if (!rows.length) return;
    const words = await post("/api/captions", { rows }).catch(() => ({}));
    for (const [row, caption] of Object.entries(words)) captions.set(Number(row), caption);
    for (const [index, tile] of tiles) name(tile, store.rows[index], index);
  }, 150);
}

export function focus(index, { extend = false, add = false, keep = false } = {}) {
  if (!store.rows.length) return;
  store.focus = Math.max(0, Math.min(store.rows.length - 1, index));
  if (extend) range(anchor, store.focus, add);
  else if (!keep) start(store.focus);
  const top = GAP + Math.floor(store.focus / columns) * (edge + GAP);
  if (top < grid.scrollTop + GAP) grid.scrollTop = top - GAP;
  else if (top + edge > grid.scrollTop + grid.clientHeight - GAP) grid.scrollTop = top + edge + GAP - grid.clientHeight;
  draw();
  tell("focus");
}

// A range begins here. What was selected by then stays if it is added to that, with Ctrl.
function start(index) {
  anchor = index;
  before = new Set(store.selection);
}

function range(from, to, add) {
  const [first, last] = from < to ? [from, to] : [to, from];
  select([...(add ? before : []), ...store.rows.slice(first, last + 1)]);
}

export function toggle(index) {
  const row = store.rows[index];
  const chosen = new Set(store.selection);
  if (!chosen.delete(row)) chosen.add(row);
  select(chosen);
}

const step = { ArrowLeft: () => -1, ArrowRight: () => 1, ArrowUp: () => -columns, ArrowDown: () => columns, Home: () => -1e9, End: () => 1e9, PageDown: () => columns * Math.max(1, Math.floor(grid.clientHeight / (edge + GAP))), PageUp: () => -columns * Math.max(1, Math.floor(grid.clientHeight / (edge + GAP))) };

grid.addEventListener("keydown", (event) => {
  const ctrl = event.ctrlKey || event.metaKey;
  if (step[event.key] && (!ctrl || event.shiftKey) && !event.altKey) {
    event.preventDefault();
    focus(store.focus + step[event.key](), { extend: event.shiftKey, add: ctrl });
  } else if (event.key === " ") {
    event.preventDefault();
    if (store.rows.length) toggle(store.focus);
    start(store.focus);
  } else if (event.key === "Enter" && store.rows.length) {
    event.preventDefault();
    tell("look", store.rows[store.focus]);
  } else if (event.key.toLowerCase() === "a" && ctrl) {
    event.preventDefault();
    select(store.rows);
  }
});

// Press, or drag a box. Tiles are placed by arithmetic, so which are in a box is arithmetic too.
let press = null;
const frame = make("div", { class: "frame", hidden: true });
canvas.append(frame);

function at(event) {
  const box = canvas.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}

grid.addEventListener("pointerdown", (event) => {
  if (event.button || event.target === grid && event.offsetX > grid.clientWidth) return;
  press = { from: at(event), before: event.ctrlKey || event.metaKey ? new Set(store.selection) : new Set(), tile: event.target.closest(".tile"), moved: false, open: event.target.classList.contains("open") };
});

addEventListener("pointermove", (event) => {
  if (!press) return;
  const to = at(event);
  if (!press.moved && Math.hypot(to[0] - press.from[0], to[1] - press.from[1]) < 6) return;
  press.moved = true;
  const [left, right] = [press.from[0], to[0]].sort((a, b) => a - b);
  const [top, bottom] = [press.from[1], to[1]].sort((a, b) => a - b);
  frame.hidden = false;
  frame.style.transform = `translate(${left}px, ${top}px)`;
  frame.style.width = `${right - left}px`;
  frame.style.height = `${bottom - top}px`;
  select([...press.before, ...inside(left, top, right, bottom)]);
});

function inside(left, top, right, bottom) {
  const pitch = edge + GAP;
  const rows = [];
  const [firstLine, lastLine] = [Math.max(0, Math.floor((top - GAP - edge) / pitch) + 1), Math.floor((bottom - GAP) / pitch)];
  const [first, last] = [Math.max(0, Math.floor((left - GAP - edge) / pitch) + 1), Math.min(columns - 1, Math.floor((right - GAP) / pitch))];
  for (let line = firstLine; line <= lastLine; line++)
    for (let column = first; column <= last; column++) {
      const row = store.rows[line * columns + column];
      if (row !== undefined) rows.push(row);
    }
  return rows;
}

addEventListener("pointerup", (event) => {
  if (!press) return;
  const { moved, tile, open } = press;
  press = null;
  frame.hidden = true;
  if (moved) return;
  if (!tile) return select([]);
  const index = Number(tile.dataset.index);
  if (open) {
    focus(index, { keep: true });
    return tell("look", store.rows[index]);
  }
  const ctrl = event.ctrlKey || event.metaKey;
  if (event.shiftKey) return focus(index, { extend: true, add: ctrl });
  if (ctrl) toggle(index);
  else select([store.rows[index]]);
  focus(index);
});

grid.addEventListener("dblclick", (event) => {
  const tile = event.target.closest(".tile");
  if (tile) tell("look", store.rows[Number(tile.dataset.index)]);
});

grid.addEventListener("scroll", draw, { passive: true });
new ResizeObserver(lay).observe(grid);
$("#size").addEventListener("input", (event) => resize(Number(event.target.value)));
$("#size").value = side;

function why() {
  const here = store.byNumber.get(store.current);
  if (store.title !== null || !(store.current > 0)) return "No images are left here.";
  if (here.kind === "known") return `None of the images looks like ${here.name}.`;
  return "All images of this class were moved elsewhere. Undo (U) brings them back.";
}

on("images", () => {
  const none = store.rows.length === 0;
  grid.hidden = none;
  $("#nothing").hidden = !none;
  if (none) $("#nothing").textContent = why();
  lay();
});
on("selection", restyle);
on("top", () => {
  store.focus = 0;
  start(0);
  grid.scrollTop = 0;
});
