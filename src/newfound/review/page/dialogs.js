// What is asked in between. Native dialogs: Escape closes them, and the keyboard stays inside.

import { get, labelled, original, thumb } from "./api.js";
import { about } from "./classes.js";
import { $, count, make, picture } from "./dom.js";
import { doubted, FAR, isMixed, labelledOf, store } from "./store.js";

let open = null;
let ahead = null; // what was typed between the key that asks for a dialog and its opening

export const busy = () => open?.open ?? false; // its close is told a moment after it is closed

export const expecting = () => ahead !== null;

let asked = 0; // who expects a dialog last

export function expect() {
  ahead = "";
  return ++asked;
}

export function unexpect(who) {
  if (who === asked) ahead = null;
}

export const typeAhead = (letter) => (ahead += letter);

// A dialog; `done` is called once, with its answer, or with null where it was closed.
function ask(title, body, { wide = false, buttons = [] } = {}) {
  open?.close();
  return new Promise((resolve) => {
    const before = document.activeElement;
    let answer = null;
    const dialog = make(
      "dialog",
      { "aria-labelledby": "dialog-title", class: wide ? "wide" : null },
      make("form", { method: "dialog" }, make("div", { class: "dialog-head" }, make("h2", { id: "dialog-title", text: title }), make("button", { type: "button", class: "close", "aria-label": "Close", text: "✕", on: { click: () => dialog.close() } })), body, make("div", { class: "buttons" }, ...buttons)),
    );
    dialog.finish = (value) => {
      answer = value;
      dialog.close();
    };
    dialog.addEventListener("close", () => {
      dialog.remove();
      if (open === dialog) open = null;
      if (before?.isConnected && before !== document.body) before.focus();
      else $("#grid").focus();
      resolve(answer);
    });
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
    document.body.append(dialog);
    open = dialog;
    dialog.showModal();
    const first = dialog.querySelector("[autofocus]") ?? dialog.querySelector("input, .main, button");
    first?.focus();
    queueMicrotask(() => type(first)); // once whoever asks has filled it
  });
}

function type(input) {
  const typed = ahead;
  ahead = null;
  if (!typed || !input?.matches("input")) return;
  if (typed.trimEnd()) {
    input.value = typed.trimEnd();
    input.dispatchEvent(new Event("input"));
  }
  if (typed.endsWith("\n")) input.form.requestSubmit();
}

const button = (text, click, main = false, type = "button") => make("button", { type, text, class: main ? "main" : null, on: click ? { click } : undefined });

const enter = (form, what) =>
  form.closest("form").addEventListener("submit", (event) => {
    event.preventDefault();
    what();
  });

export function askName(title, value, names) {
  const input = make("input", { type: "text", id: "name", maxlength: 200, list: "names", autocomplete: "off", spellcheck: "false", autofocus: true });
  input.value = value;
  const taken = make("p", { class: "hint", role: "status" });
  const body = make("div", {}, make("label", { for: "name", text: "Name" }), input, make("datalist", { id: "names" }, ...names.map((name) => make("option", { value: name }))), taken);
  const go = button("Save", null, true, "submit");
  const look = () => {
    const other = [...store.byNumber.values()].find((line) => line.number > 0 && line.name === input.value.trim() && line.name !== value);
    taken.textContent = other ? "Another class is called so: the two will be merged." : "";
    go.textContent = other ? "Merge" : "Save";
    go.disabled = !input.value.trim();
  };
  input.addEventListener("input", look);
  const answer = ask(title, body, { buttons: [go] });
  if (input.value === value) input.select();
  enter(input, () => input.value.trim() && open.finish(input.value.trim()));
  look();
  return answer;
}

// Pick a class: what is typed narrows the list; where `fresh`, it may be the name of a new one.
export function pick(title, { near = [], without = [], fresh = false } = {}) {
  const input = make("input", { type: "text", id: "pick", role: "combobox", "aria-expanded": "true", "aria-controls": "picks", "aria-autocomplete": "list", autocomplete: "off", spellcheck: "false", autofocus: true, maxlength: 200 });
  const list = make("div", { id: "picks", role: "listbox", "aria-label": "Classes", class: "picks" });
  let lines = [];
  let place = 0;
  const rank = (line) => (near.includes(line.number) ? near.indexOf(line.number) : 1000);
  const show = () => {
    const wanted = input.value.trim();
    const low = wanted.toLowerCase();
    lines = [...store.byNumber.values()]
      .filter((line) => line.number > 0 && !without.includes(line.number) && line.name.toLowerCase().includes(low))
      .sort((a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name))
      .slice(0, 100);
    if (fresh && wanted && !lines.some((line) => line.name.toLowerCase() === low)) lines.push({ number: 0, name: wanted });
    place = Math.max(0, Math.min(place, lines.length - 1));
    list.replaceChildren(
      ...lines.map((line, index) =>
        make(
          "div",
          { role: "option", id: `pick-${index}`, class: "class", "aria-selected": String(index === place), style: { "--colour": line.colour ?? "transparent" }, on: { click: () => open.finish(line) } },
          line.number ? picture(line.medoid === null ? "" : thumb(line.medoid, 40), "", { width: 40, height: 40, loading: "lazy" }) : null,
          make("div", { class: "words" }, make("b", { text: line.number ? line.name : `New class “${line.name}”` }), make("span", { text: line.number ? about(line) : "" })),
        ),
      ),
    );
    if (lines.length) input.setAttribute("aria-activedescendant", `pick-${place}`);
    else input.removeAttribute("aria-activedescendant");
    list.children[place]?.scrollIntoView({ block: "nearest" });
  };
  input.addEventListener("input", () => {
    place = 0;
    show();
  });
  input.addEventListener("keydown", (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    place = Math.max(0, Math.min(lines.length - 1, place + by));
    show();
  });
  const answer = ask(title, make("div", {}, make("label", { for: "pick", text: fresh ? "Class, or the name of a new one" : "Class" }), input, list));
  enter(input, () => lines[place] && open.finish(lines[place]));
  show();
  return answer;
}

const strip = (rows, side, most = 12) => make("div", { class: "strip" }, ...rows.slice(0, most).map((row) => picture(thumb(row, side), "", { width: side, height: side, loading: "lazy" })));

export function askSplit(line) {
  const input = make("input", { type: "number", id: "parts", min: 2, max: Math.min(20, line.size), value: 2, autofocus: true });
  const parts = make("div", { class: "parts", "aria-live": "polite" });
  const go = button("Split", null, true, "submit");
  let shown = null;
  let turn = 0;
  const show = async () => {
    const mine = ++turn;
    shown = null;
    go.disabled = true;
    const into = Number(input.value);
    if (!(into >= 2)) return;
    parts.replaceChildren(make("p", { class: "hint", text: "Looking …" }));
    try {
      const answer = await get(`/api/split/${line.number}?into=${into}`);
      if (mine !== turn) return;
      shown = answer.parts.map((part) => part.rows);
      parts.replaceChildren(...answer.parts.map((part, index) => make("section", {}, make("h3", { text: `${index ? "New class" : `Stays “${line.name}”`}: ${count(part.rows.length, "image")}` }), strip(part.rows, 64, 18))));
      go.disabled = false;
    } catch (error) {
      if (mine === turn) parts.replaceChildren(make("p", { class: "hint", text: error.message }));
    }
  };
  input.addEventListener("input", show);
  const answer = ask(`Split “${line.name}”`, make("div", {}, make("label", { for: "parts", text: "Parts" }), input, make("p", { class: "hint", text: "Nothing changes until you press Split." }), parts), { wide: true, buttons: [go] });
  enter(input, () => shown && open.finish(shown));
  show();
  return answer;
}

// Ask something that needs a second thought.
export function confirm(title, words, yes) {
  const go = button(yes, null, true, "submit");
  const answer = ask(title, make("div", {}, make("p", { text: words })), { buttons: [button("Cancel", () => open.close()), go] });
  enter(go, () => open.finish(true));
  return answer;
}

// Which images of the grid are sure enough; those that are doubted whatever their confidence are none. Where they are of
// several classes, all may be unsure: the cut begins at the middle.
export function askAbove(title) {
  const all = store.rows.map((row, index) => ({ row, sure: store.confidence[index], out: doubted(index) })).filter((_, index) => !isMixed() || store.numbers[index] > 0);
  const there = all.filter((each) => !each.out).sort((a, b) => b.sure - a.sure);
  const middle = there[Math.floor(there.length / 2)]?.sure ?? 50;
  const input = make("input", { type: "range", id: "above", min: 0, max: 100, value: isMixed() ? middle : 90, autofocus: true, "aria-describedby": "above-words" });
  const words = make("p", { id: "above-words", class: "hint", role: "status" });
  const last = make("div", { class: "strip" });
  const chosen = () => there.filter((each) => each.sure >= Number(input.value)).map((each) => each.row);
  const go = button("Accept", null, true, "submit");
  const look = () => {
    const some = chosen();
    const out = all.filter((each) => each.out && each.sure >= Number(input.value)).length;
    const left = out ? ` ${count(out, "image")} that ${out === 1 ? "is" : "are"} ${isMixed() ? "far out" : "unsure or far out"} ${out === 1 ? "is" : "are"} left out.` : "";
    go.textContent = some.length ? `Accept ${count(some.length, "image")}` : "Accept";
    words.textContent = `At least ${input.value} % sure: ${count(some.length, "image")} of ${store.rows.length.toLocaleString("en")}.${left}${some.length ? " The least sure of them:" : ""}`;
    last.replaceChildren(...some.slice(-12).reverse().map((row) => picture(thumb(row, 64), "", { width: 64, height: 64 })));
    go.disabled = some.length === 0;
  };
  input.addEventListener("input", look);
  const answer = ask(title, make("div", {}, make("label", { for: "above", text: "Confidence" }), input, words, last), { buttons: [go] });
  enter(input, () => chosen().length && open.finish(chosen()));
  look();
  return answer;
}

const FORMATS = { csv: "CSV, a table", parquet: "Parquet, a table with types", folders: "Folders of images", coco: "COCO (JSON)", fathomnet: "FathomNet (CSV)", "darwin-core": "Darwin Core (CSV)" };

export async function askExport() {
  const { folders, formats } = await get("/api/export");
  const choice = make("select", { id: "format", autofocus: true }, ...formats.map((format) => make("option", { value: format, text: FORMATS[format] ?? format })));
  const link = make("input", { type: "checkbox", id: "link" });
  const plan = make("table", { class: "plan" }, make("tbody", {}, ...Object.entries(folders).sort(([a], [b]) => a.localeCompare(b)).map(([name, size]) => make("tr", {}, make("td", { text: name }), make("td", { text: size.toLocaleString("en") })))));
  const details = make("div", { class: "details" }, make("label", {}, link, " links instead of copies"), make("p", { class: "hint", text: "One folder for each class:" }), make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Folders that would be written" }, plan));
  const look = () => (details.hidden = choice.value !== "folders");
  choice.addEventListener("input", look);
  choice.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault(); // a list would open
    choice.form.requestSubmit();
  });
  const go = button("Write", null, true, "submit");
  const answer = ask("Export", make("div", {}, make("label", { for: "format", text: "Format" }), choice, details, make("p", { class: "hint", text: "It goes to the folder “exports” of the run; nothing there is overwritten." })), { buttons: [go] });
  enter(choice, () => open.finish({ to: choice.value, link: choice.value === "folders" && link.checked }));
  look();
  return answer;
}

export function showHelp(groups, keysOn, setKeys) {
  const box = make("input", { type: "checkbox", id: "keys-on" });
  box.checked = keysOn;
  box.addEventListener("input", () => setKeys(box.checked));
  const tables = groups.map(([title, keys]) => make("section", {}, make("h3", { text: title }), make("dl", { class: "keys" }, ...keys.flatMap(([key, words]) => [make("dt", {}, ...key.split(" or ").flatMap((each, index) => [index ? " or " : "", make("kbd", { text: each })])), make("dd", { text: words })]))));
  return ask("Keys", make("div", {}, make("div", { class: "help" }, ...tables), make("label", {}, box, " single keys act (switch off where your screen reader needs them)"), make("p", { class: "hint", text: "Everything here has a button too. What you do is written down at once, and can be undone without end." })), { wide: true });
}

export function tellPlace(place) {
  return ask("Exported", make("div", {}, make("p", { text: "Written to" }), make("p", {}, make("code", { text: place }))), { buttons: [button("Close", () => open.close(), true)] });
}

// An image at full size, what lies beside it, and what its class looks like.
export function look(row, { step, act }) {
  const stage = make("div", { class: "stage" });
  const facts = make("div", { class: "facts" });
  let here = row;
  let told = 0;
  const strips = (title, rows) => (rows.length ? make("section", {}, make("h3", { text: title }), make("div", { class: "strip" }, ...rows.map((each) => make("button", { type: "button", "aria-label": `Open image ${each}`, on: { click: () => show(each) } }, picture(thumb(each, 56), "", { width: 56, height: 56 }))))) : null);
  const copies = (title, number) => (labelledOf(number).length ? make("section", {}, make("h3", { text: title }), make("div", { class: "strip" }, ...labelledOf(number).map((where) => picture(labelled(where), "", { width: 56, height: 56 })))) : null);
  const show = async (next) => {
    const mine = ++told;
    here = next;
    const image = picture(original(here), "", { class: "full" });
    image.addEventListener("click", () => stage.classList.toggle("large"));
    stage.replaceChildren(image);
    const it = await get(`/api/describe/${here}`).catch((error) => ({ error }));
    if (mine !== told) return;
    if (it.error) return facts.replaceChildren(make("p", { text: it.error.message }));
    image.alt = it.caption;
    if (it.box) frame(image, it.box);
    const line = store.byNumber.get(it.number);
    const answer = store.byNumber.get(it.answer);
    const near = it.known && store.byNumber.get(it.known.number);
    const words = [
      ["Class", answer === line ? line?.name : `${answer?.name}; would be ${line?.name}`],
      ["Confidence", it.decided ? "decided" : `${Math.floor(100 * it.confidence)} %`],
      ["Unsure", it.far ? FAR : ""],
      ["Identified by", it.by],
      ["Group", it.group],
      ["Nearly equals", it.duplicate === null ? "" : `image ${it.duplicate}`],
    ];
    facts.replaceChildren(
      ...[
        make("p", { class: "caption", text: it.caption }),
        make("dl", {}, ...words.filter(([, said]) => said).flatMap(([name, said]) => [make("dt", { text: name }), make("dd", { text: said })])),
        strips("Neighbours", it.neighbours),
        copies(`Labelled ${line?.name}`, it.number),
        strips(`Typical of ${line?.name}`, it.references),
        near ? copies(`Nearest known class: ${near.name}, labelled`, near.number) ?? strips(`Nearest known class: ${near.name}`, it.known.rows) : null,
      ].filter(Boolean),
    );
  };
  const frame = (image, [x, y, width, height]) => {
    const place = () => {
      const box = make("i", { class: "box" });
      const scale = image.clientWidth / image.naturalWidth || 0;
      box.style.cssText = `left:${image.offsetLeft + x * scale}px;top:${image.offsetTop + y * scale}px;width:${width * scale}px;height:${height * scale}px`;
      stage.querySelector(".box")?.remove();
      stage.append(box);
    };
    if (image.complete) place();
    else image.addEventListener("load", place);
  };
  const go = (by) => {
    const next = step(here, by);
    if (next !== undefined) show(next);
  };
  const buttons = [
    button("◀ Previous", () => go(-1)),
    button("Next ▶", () => go(1)),
    ...Object.entries({ move: "Move to …", setAside: "Set aside" }).map(([name, words]) =>
      button(words, () => {
        const row = here;
        open.close();
        act(name, row);
      }),
    ),
  ];
  const answer = ask("Image", make("div", { class: "look" }, stage, facts), { wide: true, buttons });
  open.addEventListener("keydown", (event) => {
    if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      event.preventDefault();
      go(event.key === "ArrowLeft" ? -1 : 1);
    } else if (event.key.toLowerCase() === "x" || event.key.toLowerCase() === "t") {
      const row = here;
      event.preventDefault();
      open.close();
      act(event.key.toLowerCase() === "x" ? "setAside" : "move", row);
    }
  });
  show(row);
  return answer;
}
