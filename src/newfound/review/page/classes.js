// The class list: one line a class, under what it is; classes may be marked, to be merged.

import { thumb } from "./api.js";
import { $, count, make, picture } from "./dom.js";
import { on, store, tell } from "./store.js";

const list = $("#class-list");
const filter = $("#filter");
const marked = $("#marked");
const TITLES = {
  known: "Known classes",
  new: "New classes",
  unsure: "Unsure",
  outlier: "Outliers",
  "set aside": "Set aside",
};

const lines = new Map(); // number → element, so that an edit changes what it must, and no more

export function about(line) {
  const said = [...(line.proposed ? ["proposed"] : []), count(line.size, "image")];
  if (line.kind === "known" || line.kind === "new") {
    if (line.confidence !== null) said.push(`${Math.round(100 * line.confidence)} %`);
    if (line.unsure) said.push(`${line.unsure} unsure`);
  }
  return said.join(" · ");
}

function fill(element, line) {
  const done = line.size ? line.reviewed / line.size : 0;
  element.style.setProperty("--colour", line.colour);
  element.style.setProperty("--done", `${100 * done}%`);
  element.classList.toggle("whole", line.size > 0 && done === 1);
  const [image, words] = element.children;
  const source = line.medoid === null ? "" : thumb(line.medoid, 48);
  if (image.getAttribute("src") !== source) {
    if (source) image.src = source;
    else image.removeAttribute("src");
  }
  const near = store.byNumber.get(line.known);
  words.children[0].textContent = line.name;
  words.children[1].textContent = about(line);
  words.children[2].textContent = near && line.kind === "new" ? `nearest known: ${near.name}` : "";
}

function create(line) {
  return make(
    "div",
    { role: "option", id: `class-${line.number}`, class: "class", "data-number": line.number },
    picture("", "", { loading: "lazy", width: 48, height: 48 }),
    make("div", { class: "words" }, make("b"), make("span"), make("span", { class: "near" })),
    make("i", { class: "done", "aria-hidden": "true" }),
  );
}

let laid = ""; // the lines in the page, in order
const AT_ONCE = 80; // lines made before the page is shown for the first time, and at each pause after

function show() {
  const wanted = filter.value.trim().toLowerCase();
  const groups = []; // kind and lines; nothing is moved in the page before it must be, for the list would jump
  let made = 0;
  for (const kind of store.state.kinds) {
    const theirs = [];
    for (const line of store.state.classes) {
      if (line.kind !== kind || !line.name.toLowerCase().includes(wanted) || !(line.size || line.number > 0)) continue;
      let element = lines.get(line.number);
      if (!element && ++made > AT_ONCE) continue;
      if (!element) lines.set(line.number, (element = create(line)));
      fill(element, line);
      theirs.push(element);
    }
    if (theirs.length) groups.push([kind, theirs]);
  }
  for (const number of [...lines.keys()]) if (!store.byNumber.has(number)) lines.delete(number);
  lay(groups);
  highlight();
  if (made > AT_ONCE) setTimeout(show, 20);
  else if (made) reveal();
}

function lay(groups) {
  const order = groups.map(([kind, theirs]) => `${kind}: ${theirs.map((element) => element.id)}`).join();
  if (order === laid) return;
  laid = order;
  const top = list.scrollTop;
  list.replaceChildren(
    ...groups.map(([kind, theirs]) => {
      const id = `kind-${kind.replace(" ", "-")}`;
      return make("div", { role: "group", "aria-labelledby": id }, make("h3", { id, role: "presentation", text: TITLES[kind] ?? kind }), ...theirs);
    }),
  );
  list.scrollTop = top;
}

function highlight() {
  for (const [number, element] of lines) {
    element.setAttribute("aria-selected", String(store.marked.has(number)));
    element.toggleAttribute("aria-current", number === store.current && store.title === null);
    if (number === store.current && store.title === null) element.setAttribute("aria-current", "true");
  }
  if (lines.get(store.current)?.isConnected) list.setAttribute("aria-activedescendant", `class-${store.current}`);
  else list.removeAttribute("aria-activedescendant");
  marked.hidden = store.marked.size === 0;
  marked.firstElementChild.textContent = `${store.marked.size} marked`;
}

export const order = () => [...list.querySelectorAll(".class")].map((element) => Number(element.dataset.number));

export function step(by) {
  const numbers = order();
  if (!numbers.length) return;
  const place = numbers.indexOf(store.current);
  const next = numbers[place < 0 ? 0 : Math.max(0, Math.min(numbers.length - 1, place + by))];
  tell("open", next);
}

export function reveal() {
  lines.get(store.current)?.scrollIntoView({ block: "nearest" });
}

export function mark(number) {
  if (number <= 0) return;
  if (!store.marked.delete(number)) store.marked.add(number);
  highlight();
}

on("state", show);
on("images", highlight);
on("marked", highlight);
filter.addEventListener("input", show);
filter.addEventListener("keydown", (event) => {
  if (event.key === "Enter" || event.key === "ArrowDown") {
    event.preventDefault();
    list.focus();
    const numbers = order();
    if (numbers.length && !numbers.includes(store.current)) tell("open", numbers[0]);
  }
});
list.addEventListener("click", (event) => {
  const number = Number(event.target.closest(".class")?.dataset.number);
  if (!number) return;
  if (event.ctrlKey || event.metaKey) {
    if (!store.marked.size && store.current > 0) store.marked.add(store.current);
    mark(number);
  } else {
    tell("open", number);
    $("#grid").focus({ preventScroll: true }); // keys now mean its images; J and K go on from class to class
  }
});
list.addEventListener("keydown", (event) => {
  const by = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8, Home: -1e9, End: 1e9 }[event.key];
  if (by) {
    event.preventDefault();
    step(by);
  } else if (event.key === " ") {
    event.preventDefault();
    mark(store.current);
  } else if (event.key === "Enter") {
    event.preventDefault();
    $("#grid").focus();
  }
});
