// The map: a dot an image, drawn by plotly, which comes with newfound and is loaded once the page stands.

import { get } from "./api.js";
import { $ } from "./dom.js";
import { on, select, store, tell } from "./store.js";

const map = $("#map");
const note = $("#map-note");
const modes = { lasso: $("#lasso"), select: $("#box"), pan: $("#pan") };
let rows = [];
let numbers = [];
let drawn = false;
let mode = "lasso";
let dots = []; // the elements of the dots, in the order of rows
let dressed = []; // what each was dressed in last: a change touches those that change, and no more

function load() {
  return new Promise((done, failed) => {
    const script = document.createElement("script");
    script.src = "/plotly.js";
    script.onload = done;
    script.onerror = failed;
    document.head.append(script);
  });
}

const LINE = { width: 0.5, color: "rgba(128,128,128,.6)" };

const dotSize = () => Math.min(9, Math.max(4, 200 / Math.sqrt(rows.length || 1)));

// While somebody draws, the map under their hand stays as it is: what comes meanwhile waits.
const LATER = 300; // milliseconds: plotly tells a little later what was drawn around, and would not after a new plot
let held = false;
let postponed = new Set();
let release = 0;

function whenFree(what) {
  if (held) postponed.add(what);
  else what();
}

map.addEventListener(
  "pointerdown",
  () => {
    clearTimeout(release);
    held = true;
  },
  true,
);
for (const event of ["pointerup", "pointercancel"])
  addEventListener(event, () => {
    if (!held) return;
    release = setTimeout(() => {
      held = false;
      const waiting = postponed;
      postponed = new Set();
      for (const what of waiting) what();
    }, LATER);
  });

// Dots of the class at hand stand out; where some are selected, those do.
function standsOut() {
  if (store.selection.size) return (point) => store.selection.has(rows[point]);
  if (store.title === null && store.current > 0) return (point) => numbers[point] === store.current;
  return (point) => store.place.has(rows[point]);
}

// Plotly's own way takes a tenth of a second for thousands of dots, at every step from class to class.
function dress(anew = false) {
  if (!drawn) return;
  if (anew || dots.length !== rows.length || !dots[0]?.isConnected) {
    dots = [...map.querySelectorAll(".scatterlayer .point")];
    dressed = [];
  }
  const out = standsOut();
  const chosen = store.selection.size > 0; // few, often: they get a ring
  for (let point = 0; point < dots.length; point++) {
    const colour = store.byNumber.get(numbers[point])?.colour ?? "#8a8f96";
    const clothes = `${colour} ${out(point)} ${chosen}`;
    if (dressed[point] === clothes) continue;
    dressed[point] = clothes;
    dots[point].style.fill = colour;
    dots[point].style.opacity = out(point) ? 1 : 0.2;
    dots[point].style.stroke = out(point) && chosen ? "var(--ink)" : LINE.color;
    dots[point].style.strokeWidth = `${out(point) && chosen ? 2 : LINE.width}px`;
  }
}

const layout = () => ({
  margin: { l: 4, r: 4, t: 4, b: 4 },
  xaxis: { visible: false },
  yaxis: { visible: false, scaleanchor: "x" },
  paper_bgcolor: "transparent",
  plot_bgcolor: "transparent",
  hovermode: "closest",
  dragmode: mode,
  showlegend: false,
  font: { family: getComputedStyle(map).fontFamily, size: 12 },
  uirevision: "same",
});

async function draw() {
  const { ready, rows: shown, x, y } = await get("/api/map");
  const classes = await get("/api/map/classes");
  await new Promise(whenFree);
  rows = shown;
  numbers = classes.numbers;
  const marker = { color: "#8a8f96", size: dotSize(), line: LINE };
  const trace = { type: "scatter", mode: "markers", x, y, hoverinfo: "none", marker };
  const config = { responsive: true, displayModeBar: false, displaylogo: false, doubleClick: "reset", scrollZoom: true };
  await Plotly.newPlot(map, [trace], layout(), config);
  drawn = true;
  dress(true);
  const part = rows.length < store.state.images ? `${rows.length.toLocaleString("en")} of ${store.state.images.toLocaleString("en")}` : "";
  note.textContent = ready ? part : "first sketch …";
  note.dataset.ready = ready ? "yes" : "no";
  map.on("plotly_afterplot", () => dress(true));
  map.on("plotly_selected", (event) => event?.points && choose(event.points.map((point) => rows[point.pointNumber])));
  map.on("plotly_click", (event) => {
    const row = rows[event.points[0].pointNumber];
    if (event.event.ctrlKey || event.event.metaKey) select(store.selection.has(row) ? [...store.selection].filter((each) => each !== row) : [...store.selection, row]);
    else tell("look", row);
  });
  if (!ready) again();
}

async function choose(chosen) {
  if (chosen.length) tell("lasso", chosen);
  await Plotly.relayout(map, { selections: [] });
  await Plotly.restyle(map, { selectedpoints: [null] });
  dress(true);
}

// Better places, once the server has them.
function again() {
  setTimeout(async () => {
    const better = await get("/api/map").catch(() => null);
    if (!better?.ready) return again();
    return draw().catch(() => {});
  }, 2500);
}

export async function recolour() {
  if (!drawn) return;
  numbers = (await get("/api/map/classes")).numbers;
  whenFree(dress);
}

let asked = 0;
function later() {
  if (!asked)
    asked = requestAnimationFrame(() => {
      asked = 0;
      whenFree(dress);
    });
}

export function setMode(to) {
  mode = to;
  for (const [name, button] of Object.entries(modes)) button.setAttribute("aria-pressed", String(name === to));
  if (drawn) Plotly.relayout(map, { dragmode: to });
}

for (const [name, button] of Object.entries(modes)) button.addEventListener("click", () => setMode(name));
on("selection", later);
on("images", later);
on("edited", () => recolour().catch(() => {}));

// Drawing it takes a part of a second: it waits until nobody scrolls or types.
let moved = 0;
for (const event of ["scroll", "keydown", "pointerdown", "wheel"])
  addEventListener(event, () => (moved = performance.now()), { capture: true, passive: true });

const rest = () => new Promise((done) => {
  const look = () => (performance.now() - moved > 400 ? (window.requestIdleCallback ?? setTimeout)(done) : setTimeout(look, 200));
  look();
});

export async function begin() {
  note.textContent = "drawing …";
  try {
    await rest();
    await load();
    await rest();
    await draw();
  } catch {
    note.textContent = "The map could not be drawn.";
  }
}
