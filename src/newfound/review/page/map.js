// The map: a dot an image, drawn by plotly, which comes with newfound and is loaded once the page stands.

import { get } from "./api.js";
import { $, count } from "./dom.js";
import { on, select, store, tell } from "./store.js";

const map = $("#map");
const note = $("#map-note");
const modes = { lasso: $("#lasso"), select: $("#box"), pan: $("#pan") };
let rows = [];
let numbers = [];
let place = new Map(); // row → point
let drawn = false;
let mode = "lasso";

function load() {
  return new Promise((done, failed) => {
    const script = document.createElement("script");
    script.src = "/plotly.js";
    script.onload = done;
    script.onerror = failed;
    document.head.append(script);
  });
}

const dotSize = () => Math.min(9, Math.max(4, 200 / Math.sqrt(rows.length || 1)));

const colours = () => numbers.map((number) => store.byNumber.get(number)?.colour ?? "#8a8f96");

// Dots of the class at hand stand out; where some are selected, those do.
function opacity() {
  if (store.selection.size) return rows.map((row) => (store.selection.has(row) ? 1 : 0.18));
  if (store.title !== null) return rows.map((row) => (store.place.has(row) ? 1 : 0.18));
  if (store.current > 0) return numbers.map((number) => (number === store.current ? 1 : 0.28));
  return rows.map((row) => (store.place.has(row) ? 1 : 0.28));
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
  rows = shown;
  place = new Map(rows.map((row, point) => [row, point]));
  numbers = (await get("/api/map/classes")).numbers;
  const line = { width: 0.5, color: "rgba(128,128,128,.6)" };
  const trace = { type: "scatter", mode: "markers", x, y, hoverinfo: "none", marker: { color: colours(), opacity: opacity(), size: dotSize(), line } };
  const config = { responsive: true, displayModeBar: false, displaylogo: false, doubleClick: "reset", scrollZoom: true };
  map.replaceChildren();
  await Plotly.newPlot(map, [trace], layout(), config);
  drawn = true;
  map.on("plotly_selected", (event) => {
    if (!event?.points) return;
    const chosen = event.points.map((point) => rows[point.pointNumber]);
    Plotly.relayout(map, { selections: [] });
    Plotly.restyle(map, { selectedpoints: [null] });
    if (chosen.length) tell("lasso", chosen);
  });
  map.on("plotly_click", (event) => {
    const row = rows[event.points[0].pointNumber];
    if (event.event.ctrlKey || event.event.metaKey) select(store.selection.has(row) ? [...store.selection].filter((each) => each !== row) : [...store.selection, row]);
    else tell("look", row);
  });
  const part = rows.length < store.state.images ? `${count(rows.length, "image")} of ${store.state.images.toLocaleString("en")}` : "";
  note.textContent = ready ? part : "first sketch …";
  if (!ready) setTimeout(() => draw().catch(() => {}), 2500);
}

export async function recolour() {
  if (!drawn) return;
  numbers = (await get("/api/map/classes")).numbers;
  restyle();
}

let asked = 0;
function restyle() {
  if (!drawn || asked) return;
  asked = setTimeout(() => {
    asked = 0;
    Plotly.restyle(map, { "marker.color": [colours()], "marker.opacity": [opacity()] });
  }, 30);
}

export function setMode(to) {
  mode = to;
  for (const [name, button] of Object.entries(modes)) button.setAttribute("aria-pressed", String(name === to));
  if (drawn) Plotly.relayout(map, { dragmode: to });
}

for (const [name, button] of Object.entries(modes)) button.addEventListener("click", () => setMode(name));
on("selection", restyle);
on("images", restyle);
on("edited", () => recolour().catch(() => {}));

export async function begin() {
  try {
    await load();
    await draw();
  } catch {
    note.textContent = "The map could not be drawn.";
  }
}
