// The page: it looks, says what people do to the server, and shows what follows.

import { get, labelled, post, thumb } from "./api.js";
import { about, order, reveal, step } from "./classes.js";
import * as dialogs from "./dialogs.js";
import { $, count, make, picture } from "./dom.js";
import * as grid from "./grid.js";
import * as map from "./map.js";
import { guessed, isClass, isMixed, labelledOf, line, meant, on, select, store, takeImages, takeState, tell } from "./store.js";

const toast = $("#toast");
let toastTimer;

function say(words, bad = false) {
  toast.textContent = words;
  toast.classList.toggle("bad", bad);
  toast.classList.add("shown");
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => toast.classList.remove("shown"), bad ? 9000 : 4000);
}

// One thing at a time: keys that come quickly act in their order.
let queue = Promise.resolve();
let waiting = 0;
const wait = (more) => $("#grid").setAttribute("aria-busy", String((waiting += more) > 0));
const inTurn = (what) => {
  wait(1);
  queue = queue.then(what).catch((error) => say(error.message, true)).finally(() => wait(-1));
  return queue;
};

// Say something; it counts once the server has it on the disk.
async function tellServer(body, words) {
  try {
    const answer = await post("/api/edits", { ...body, seen: store.state.length });
    takeState(answer);
    $("#hint").hidden = true; // who has done something needs it no more
    if (words) say(typeof words === "function" ? words(answer) : words);
    tell("edited");
    return answer;
  } catch (error) {
    say(error.message, true);
    if (error.status === 409) await refresh();
    return null;
  }
}

async function refresh() {
  takeState(await get("/api/state"));
  tell("edited");
  await showImages();
}

// Show a class or a list, or stay at what is shown after it changed.
async function showImages(number = store.current, { keep = true } = {}) {
  if (!store.byNumber.has(number)) number = store.state.classes.find((each) => each.size)?.number ?? store.state.classes[0]?.number;
  const same = keep && number === store.current;
  if (store.title !== null && same) return takeImages(await post("/api/pick", { rows: store.rows }));
  store.title = null;
  store.current = number;
  const images = await get(`/api/images?number=${number}&order=${store.order}`);
  if (number !== store.current) return null;
  if (!same) tell("top");
  takeImages(images);
  if (!same) reveal();
  return beside();
}

async function showRows(title, images) {
  store.title = title;
  tell("top");
  takeImages(images);
}

const copies = (number) => labelledOf(number).map((where) => picture(labelled(where), "", { width: 56, height: 56 }));

// What stands beside a class: labelled images of it, or of the nearest known one, and similar classes.
async function beside() {
  const here = line();
  const own = labelledOf(here?.number);
  $("#labelled").hidden = !own.length;
  $("#labelled .strip").replaceChildren(...copies(here?.number));
  const known = $("#known");
  const near = store.byNumber.get(here?.known);
  known.hidden = !(near && here.kind === "new");
  if (!known.hidden) {
    known.querySelector(".line").replaceWith(lineButton(near));
    const strip = known.querySelector(".strip");
    strip.replaceChildren(...copies(near.number));
    known.querySelector(".hint").textContent = strip.children.length ? "Labelled images of it:" : "";
    if (!strip.children.length && near.medoid !== null) {
      const { rows } = await get(`/api/images?number=${near.number}&order=typical`);
      strip.replaceChildren(...rows.slice(0, 6).map((row) => picture(thumb(row, 56), "", { width: 56, height: 56 })));
    }
    if (!strip.children.length) known.querySelector(".hint").textContent = "No image of it is in this run.";
  }
  const similar = $("#similar");
  similar.hidden = !(here?.number > 0);
  if (similar.hidden) return;
  const { numbers } = await get(`/api/similar/${here.number}`);
  similar.querySelector(".lines").replaceChildren(...numbers.filter((number) => store.byNumber.has(number)).map((number) => lineButton(store.byNumber.get(number))));
}

function lineButton(each) {
  return make("button", { type: "button", class: "line class", style: { "--colour": each.colour }, on: { click: () => tell("open", each.number) } }, picture(each.medoid === null ? "" : thumb(each.medoid, 40), "", { width: 40, height: 40 }), make("span", { class: "words" }, make("b", { text: each.name }), make("span", { text: `${each.kind} · ${count(each.size, "image")}` })));
}

function header() {
  const here = line();
  const shown = store.title !== null ? store.title : here?.name ?? "";
  const colour = store.title === null ? here?.colour : null;
  $("#title").textContent = shown;
  $("#title").style.setProperty("--colour", colour ?? "transparent");
  $("#title").title = isClass() ? `${shown} (number ${here.number})` : shown;
  $("#about").textContent = tellAbout(here);
  $("#title").classList.toggle("long", shown.length > 18);
  $("#rename").hidden = !isClass();
  $("#hint span").hidden = isMixed(); // what can be done with a class cannot be done with images of none
  $("#hint span + span").hidden = !isMixed();
  $("#grid").setAttribute("aria-label", `Images of ${shown}`);
  document.title = `${shown} – newfound review`;
  offer(here);
  $("#order option").textContent = isMixed() ? "surest first" : "most typical first";
  $("#order").disabled = store.title !== null;
  $("#selection").hidden = !store.selection.size;
  $("#view").hidden = !$("#selection").hidden;
  const inGrid = [...store.selection].filter((row) => store.place.has(row)).length;
  const away = store.selection.size - inGrid;
  $("#selected").textContent = `${store.selection.size.toLocaleString("en")} selected${away ? ` (${away} elsewhere)` : ""}`;
  $("#selection [data-action=cut]").disabled = !store.rows.length || store.title !== null || (isMixed() && !guessed(store.rows).length);
}

// What is likely to be done with a class or a list, the likeliest first. Images that are picked, on the map or as more like
// some, have guesses as unsure ones have.
const LIKELY = {
  known: ["accept", "acceptAbove", "split", "merge"],
  new: ["accept", "acceptAbove", "merge", "split"],
  unsure: ["accept", "acceptAbove"],
  outlier: ["newClass", "more", "setAside", "accept"],
  "set aside": [],
};

// Show the buttons for what is likely here, in that order; what stands there need not stand beside the selection too.
function offer(here) {
  const tools = $("#class-tools");
  const kind = store.title !== null ? "unsure" : here?.kind ?? "set aside";
  if (tools.dataset.kind !== kind) {
    tools.dataset.kind = kind; // only then: a button that is put in again loses the focus
    tools.prepend(...LIKELY[kind].map((name) => $(`#class-tools [data-action=${name}]`)));
  }
  const guesses = store.numbers.some((number) => number > 0);
  for (const [place, button] of [...tools.children].entries()) {
    const name = button.dataset.action;
    button.hidden = !LIKELY[kind].includes(name) || (isMixed() && name.startsWith("accept") && !guesses);
    button.disabled = !store.rows.length;
    button.classList.toggle("main", place === 0);
  }
  for (const button of $("#selection").querySelectorAll("[data-action]")) button.hidden = LIKELY[kind].includes(button.dataset.action);
  const some = store.selection.size;
  $("#class-tools [data-action=accept]").textContent = isMixed() ? "Accept as guessed" : some ? "Accept selected" : "Accept all";
  $("#class-tools [data-action=newClass]").textContent = `New class from ${some > 1 ? "these" : "this"}`;
  $("#class-tools [data-action=more]").textContent = `More like ${some > 1 ? "these" : "this"}`;
}

const WORDS = {
  unsure: ", each with a guess",
  outlier: " like none of the classes",
  "set aside": " in no class",
};

function tellAbout(here) {
  if (store.title !== null) return count(store.rows.length, "image");
  if (!here) return "";
  if (!(here.number > 0)) return `${count(here.size, "image")}${WORDS[here.kind] ?? ""}`;
  const sure = here.confidence === null ? "" : ` · ${Math.round(100 * here.confidence)} % sure`;
  const unsure = here.unsure ? ` · ${here.unsure.toLocaleString("en")} unsure` : "";
  const reviewed = here.reviewed ? ` · ${here.reviewed === here.size ? "all" : here.reviewed.toLocaleString("en")} reviewed` : "";
  return `${here.kind} · ${count(here.size, "image")}${sure}${unsure}${reviewed}`;
}

function progress() {
  const { images, reviewed, undo, redo } = store.state;
  const bar = $("#progress .bar");
  bar.setAttribute("aria-valuemax", images);
  bar.setAttribute("aria-valuenow", reviewed);
  bar.firstElementChild.style.width = `${(100 * reviewed) / images}%`;
  $("#progress-words").textContent = reviewed === images ? `All ${count(images, "image")} reviewed` : `${reviewed.toLocaleString("en")} of ${count(images, "image")} reviewed`;
  $("[data-action=undo]").disabled = !undo;
  $("[data-action=redo]").disabled = !redo;
}

const named = (rows) => count(rows.length, "image");

// What a person can do. Each has a button, a key, and a line in the help.
const actions = {
  async undo() {
    if (await tellServer({ action: "undo" }, (answer) => (answer.done ? "Undone." : "There is nothing to undo."))) await showImages();
  },
  async redo() {
    if (await tellServer({ action: "redo" }, (answer) => (answer.done ? "Done again." : "There is nothing to do again."))) await showImages();
  },
  async accept() {
    if (isMixed()) return acceptGuessed(guessed([...store.selection].filter((row) => store.place.has(row))));
    const rows = [...store.selection].filter((row) => store.place.has(row));
    const body = { action: "accept", number: store.current, ...(rows.length ? { rows } : {}) };
    const words = `${rows.length ? named(rows) : "All images"} of ${line().name} accepted.`;
    if (!(await tellServer(body, words))) return null;
    select([]);
    await showImages();
    return rows.length ? null : goOn();
  },
  async acceptAbove() {
    if (!store.rows.length || (isMixed() && !guessed(store.rows).length)) return;
    const rows = await dialogs.askAbove(isMixed() ? "Accept the surest as guessed" : `Accept the surest of “${line().name}”`);
    if (rows && isMixed()) await acceptGuessed(rows);
    else if (rows && (await tellServer({ action: "accept", number: store.current, rows }, `${named(rows)} accepted.`))) await showImages();
  },
  async cut() {
    if (!store.rows.length || store.title !== null) return;
    const doubtful = store.order === "doubtful"; // the sure side of the cut is then the end
    const rows = doubtful ? store.rows.slice(store.focus) : store.rows.slice(0, store.focus + 1);
    if (isMixed()) return void (await acceptGuessed(guessed(rows)));
    if (await tellServer({ action: "accept", number: store.current, rows }, `The ${doubtful ? "last" : "first"} ${named(rows)} accepted.`)) await showImages();
  },
  async rename() {
    if (!isClass()) return;
    const { number, name } = line();
    const said = await dialogs.askName(`Rename “${name}”`, name, store.state.names);
    if (said === null || said === name) return;
    const other = [...store.byNumber.values()].find((each) => each.number > 0 && each.name === said);
    if (other) await merge([number, other.number]);
    else if (await tellServer({ action: "rename", number, name: said }, `“${name}” is now “${said}”.`)) await showImages();
  },
  async merge() {
    const marked = [...store.marked];
    if (marked.length > 1) return merge(marked);
    if (!isClass()) return null;
    const { number, name } = line();
    const near = (await get(`/api/similar/${number}`)).numbers;
    const other = await dialogs.pick(`Merge “${name}” with`, { near, without: [number] });
    return other && merge([number, other.number]);
  },
  async split() {
    if (!isClass() || line().size < 2) return;
    const { number, name } = line();
    const parts = await dialogs.askSplit(line());
    if (parts && (await tellServer({ action: "split", number, parts }, `“${name}” is now ${parts.length} classes.`))) await showImages();
  },
  async move() {
    const rows = meant();
    if (!rows.length) return;
    const near = store.current > 0 ? [store.current, ...(await get(`/api/similar/${store.current}`)).numbers] : likely(rows);
    const to = await dialogs.pick(`Move ${named(rows)} to`, { near, without: isClass() ? [store.current] : [], fresh: true });
    if (!to) return;
    const body = to.number ? { action: "move", rows, to: to.number } : { action: "new class", rows, name: to.name };
    if (await tellServer(body, `${named(rows)} moved to “${to.name}”.`)) await gone(rows);
  },
  async newClass() {
    const rows = meant();
    if (!rows.length) return;
    const name = await dialogs.askName(`New class of ${named(rows)}`, "", store.state.names);
    if (name === null) return;
    const other = [...store.byNumber.values()].find((each) => each.number > 0 && each.name === name);
    const body = other ? { action: "move", rows, to: other.number } : { action: "new class", rows, name };
    if (await tellServer(body, `${named(rows)} are now “${name}”.`)) await gone(rows);
  },
  async setAside() {
    const rows = meant();
    if (rows.length && (await tellServer({ action: "set aside", rows }, `${named(rows)} set aside.`))) await gone(rows);
  },
  async more() {
    const rows = meant();
    if (!rows.length) return;
    const images = await post("/api/more", { rows });
    if (!images.rows.length) return say("No image is unsure: there is nothing to propose.");
    select([]);
    await showRows(`More like ${named(rows)}`, images);
    $("#grid").focus();
  },
  async export() {
    const asked = await dialogs.askExport();
    if (!asked) return;
    const { place } = await post("/api/export", asked);
    await dialogs.tellPlace(place);
  },
  next: () => step(1),
  previous: () => step(-1),
  filter: () => $("#filter").focus(),
  mark() {
    if (store.current > 0) (store.marked.delete(store.current) || store.marked.add(store.current)) && tell("marked");
  },
  unmark() {
    store.marked.clear();
    tell("marked");
  },
  clear() {
    if (store.selection.size) select([]);
    else if (store.title !== null) return showImages(store.current, { keep: false });
    return null;
  },
  order() {
    $("#order").value = store.order === "typical" ? "doubtful" : "typical";
    return reorder();
  },
  larger: () => grid.resize(grid.size() + 20),
  smaller: () => grid.resize(grid.size() - 20),
  focusGrid: () => $("#grid").focus(),
  theme() {
    const dark = document.documentElement.dataset.theme
      ? document.documentElement.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    dress(dark ? "light" : "dark");
  },
  help: () => dialogs.showHelp(HELP, keysOn, setKeys),
};

async function acceptGuessed(rows) {
  if (!rows.length) return;
  if (!(await tellServer({ action: "accept as guessed", rows }, `${named(rows)} accepted as guessed.`))) return;
  select([]);
  await showImages();
}

// The classes that some images are thought to be of, the commonest first.
function likely(rows) {
  const votes = new Map();
  for (const row of rows) votes.set(store.numbers[store.place.get(row)], (votes.get(store.numbers[store.place.get(row)]) ?? 0) + 1);
  return [...votes.keys()].sort((a, b) => votes.get(b) - votes.get(a));
}

// After a class is done: the next one that is not, then what is unsure.
function goOn() {
  const numbers = order();
  const after = [...numbers.slice(numbers.indexOf(store.current) + 1), ...numbers];
  const left = after.find((number) => number > 0 && store.byNumber.get(number).reviewed < store.byNumber.get(number).size) ?? after.find((number) => number <= 0 && store.byNumber.get(number).kind !== "set aside" && store.byNumber.get(number).size);
  if (left === undefined) return say("All images are reviewed. Export (E) writes folders or a table.");
  return showImages(left, { keep: false });
}

async function merge(numbers) {
  const known = numbers.map((number) => store.byNumber.get(number)).filter((each) => each?.kind === "known");
  const force = known.length > 1;
  if (force && !(await dialogs.confirm("Merge known classes?", `${known.map((each) => `“${each.name}”`).join(" and ")} are known: your labelled images tell them apart. Merge them if that difference does not matter to you. It can be undone.`, "Merge them"))) return;
  const names = numbers.map((number) => store.byNumber.get(number)?.name).join("”, “");
  const answer = await tellServer({ action: "merge", numbers, force }, `“${names}” are one class.`);
  if (!answer) return;
  store.marked.clear();
  await showImages(answer.result, { keep: store.current === answer.result });
}

// After images have left the grid: the next ones move up, and the focus stays where it was.
async function gone(rows) {
  const left = new Set(rows);
  select([]);
  if (store.title !== null) store.rows = store.rows.filter((row) => !left.has(row));
  await showImages(store.current, { keep: store.title === null || store.rows.length > 0 });
}

async function reorder() {
  store.order = $("#order").value;
  tell("top");
  if (store.title === null) await showImages();
}

function dress(theme) {
  document.documentElement.dataset.theme = theme;
  localStorage.setItem("newfound-theme", theme);
}

// Key → action. Letters act without Ctrl, unless they are switched off.
const KEYS = {
  j: "next", k: "previous", a: "accept", A: "acceptAbove", c: "cut", r: "rename", m: "merge", s: "split", t: "move",
  n: "newClass", x: "setAside", l: "more", u: "undo", U: "redo", o: "order", "+": "larger", "=": "larger", "-": "smaller",
  e: "export", "/": "filter", v: "mark", g: "focusGrid", d: "theme", "?": "help",
}; // prettier-ignore
const HELP = [
  ["Classes", [["J or K", "next, previous class"], ["/", "find a class"], ["R", "rename"], ["A", "accept all, or what is selected; unsure ones as guessed"], ["Shift A", "accept above a confidence"], ["C", "cut here: accept from the surest to the outlined image"], ["M", "merge with another, or all that are marked"], ["V", "mark for merging"], ["S", "split, with a preview"]]],
  ["Images", [["G", "go to the grid"], ["Arrows", "go from image to image"], ["Space", "select"], ["Shift Arrows", "select a range; with Ctrl, one more"], ["Ctrl A", "select all"], ["Enter", "open at full size"], ["T", "move to a class"], ["N", "new class"], ["X", "set aside"], ["L", "more like these"], ["Escape", "clear the selection, then go back to the class"]]],
  ["Page", [["U or Ctrl Z", "undo"], ["Shift U or Ctrl Y", "redo"], ["O", "most typical or least sure first"], ["+ or -", "larger, smaller images"], ["E", "export"], ["D", "light or dark"], ["?", "this help"]]],
]; // prettier-ignore
let keysOn = localStorage.getItem("newfound-keys") !== "off";

function setKeys(on) {
  keysOn = on;
  localStorage.setItem("newfound-keys", on ? "on" : "off");
}

function wanted(event) {
  const ctrl = event.ctrlKey || event.metaKey;
  if (ctrl && event.key.toLowerCase() === "z") return event.shiftKey ? "redo" : "undo";
  if (ctrl && event.key.toLowerCase() === "y") return "redo";
  if (event.key === "Escape") return "clear";
  if (ctrl || event.altKey || !keysOn) return null;
  return KEYS[event.key] ?? KEYS[event.shiftKey ? event.key : event.key.toLowerCase()] ?? null;
}

// While a dialog is about to open, what is typed is meant for it, wherever the focus still is.
addEventListener(
  "keydown",
  (event) => {
    if (dialogs.busy() || !dialogs.expecting()) return;
    event.preventDefault();
    event.stopPropagation();
    if (event.key.length === 1 && !event.ctrlKey) dialogs.typeAhead(event.key);
    else if (event.key === "Enter") dialogs.typeAhead("\n");
  },
  true,
);

addEventListener("keydown", (event) => {
  if (dialogs.busy() || event.defaultPrevented) return;
  const typing = event.target.matches?.("input:not([type=range]), textarea");
  if (typing) {
    if (event.key === "Escape") {
      event.target.value = "";
      event.target.dispatchEvent(new Event("input"));
      $("#grid").focus();
    }
    return;
  }
  if (event.target.matches?.("select") && event.key.length === 1 && !event.ctrlKey) return;
  const name = wanted(event);
  if (!name) return;
  event.preventDefault();
  act(name);
});

// Some ask first: what is typed before they do is meant for them, and is no command.
const ASKING = new Set(["acceptAbove", "rename", "merge", "split", "move", "newClass", "export", "help"]);

function act(name) {
  if (name === "accept" && isMixed() && !store.selection.size) name = "acceptAbove"; // of unsure images not all at once
  if (!ASKING.has(name)) return inTurn(actions[name]);
  const who = dialogs.expect();
  return inTurn(async () => {
    try {
      await actions[name]();
    } finally {
      dialogs.unexpect(who);
    }
  });
}

document.addEventListener("click", (event) => {
  const name = event.target.closest("[data-action]")?.dataset.action;
  if (name && actions[name]) act(name);
});

on("open", (number) => {
  select([]);
  inTurn(() => showImages(number, { keep: false }));
});
on("look", (row) => {
  const move = (here, by) => {
    const place = store.place.get(here);
    const next = place === undefined ? undefined : store.rows[place + by];
    if (next !== undefined) grid.focus(place + by, { keep: true });
    return next;
  };
  const actOn = (name, each) => {
    select([each]);
    act(name);
  };
  dialogs.look(row, { step: move, act: actOn });
});
on("lasso", (rows) =>
  inTurn(async () => {
    await showRows(`${named(rows)} on the map`, await post("/api/pick", { rows }));
    select(rows);
    $("#grid").focus({ preventScroll: true });
  }),
);
for (const event of ["state", "images", "selection", "focus"]) on(event, () => store.state && header());
on("state", progress);
$("#order").addEventListener("input", () => inTurn(reorder));

// What others say meanwhile, in another tab or from Python, is seen here too.
let watching = false;
async function watch() {
  watching = false;
  if (document.hidden || dialogs.busy()) return;
  const { length } = await get("/api/length");
  if (length === store.state.length) return;
  await refresh();
  const last = store.state.last;
  say(`${last?.by || "Somebody"} has edited: ${last?.action ?? "undo"}.`);
}

// A few words for those who see the page for the first time.
function greet() {
  const hint = $("#hint");
  hint.hidden = localStorage.getItem("newfound-hint") === "off" || store.state.length > 0;
  hint.querySelector("button").addEventListener("click", () => {
    hint.hidden = true;
    localStorage.setItem("newfound-hint", "off");
    $("#grid").focus();
  });
}

async function begin() {
  const theme = localStorage.getItem("newfound-theme");
  if (theme) dress(theme);
  try {
    takeState(await get("/api/state"));
  } catch (error) {
    const stop = $("#stop");
    stop.hidden = false;
    stop.textContent = error.status === 401 ? "This address lacks its token. Open the address that newfound review printed, as a whole." : error.message;
    return;
  }
  greet();
  const first = store.state.classes.find((each) => each.kind === "new" && each.size && each.reviewed < each.size);
  await showImages(first?.number ?? store.state.classes.find((each) => each.size)?.number, { keep: false });
  $("#grid").focus({ preventScroll: true });
  document.documentElement.dataset.ready = "yes";
  setInterval(() => {
    if (watching) return; // it waits in the queue
    watching = true;
    inTurn(watch);
  }, 2000);
  (window.requestIdleCallback ?? setTimeout)(() => map.begin());
}

begin();
