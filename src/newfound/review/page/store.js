// What the page knows. One object, changed in few places; who shows it is told.

export const store = {
  state: null, // what the server says of classes and edits
  byNumber: new Map(),
  current: null, // number of the class, or list, that is shown
  title: null, // of images that are shown and are no class: those of a lasso, more like some
  order: "typical",
  rows: [], // images in the grid, in order
  confidence: [],
  marks: "",
  numbers: [], // of the class that each is thought to be of, where the grid shows several
  place: new Map(), // row → index in the grid
  selection: new Set(), // rows, in the grid or not
  focus: 0, // index in the grid of the image that keys act on
  marked: new Set(), // classes marked for merging
};

// Why an image is unsure that is marked f, however sure its class would be.
export const FAR = "lies farther out than six in seven images of a class";

const listeners = {};

export const on = (event, what) => (listeners[event] ??= []).push(what);

export const tell = (event, ...values) => {
  for (const what of listeners[event] ?? []) what(...values);
};

export function takeState(state) {
  store.state = state;
  store.byNumber = new Map(state.classes.map((line) => [line.number, line]));
  for (const number of [...store.marked]) if (!store.byNumber.has(number)) store.marked.delete(number);
  tell("state");
}

export function takeImages({ rows, confidence, marks, numbers = [] }) {
  store.rows = rows;
  store.confidence = confidence;
  store.marks = marks;
  store.numbers = numbers;
  store.place = new Map(rows.map((row, index) => [row, index]));
  store.focus = Math.max(0, Math.min(store.focus, rows.length - 1));
  tell("images");
}

export function select(rows) {
  store.selection = new Set(rows);
  tell("selection");
}

export const line = () => store.byNumber.get(store.current);

export const isClass = () => store.title === null && store.current > 0 && store.byNumber.has(store.current);

// Whether the grid shows images of several classes, each with a guess.
export const isMixed = () => store.title !== null || store.current <= 0;

// Those of some images that have a guess: not those set aside.
export const guessed = (rows) => rows.filter((row) => store.numbers[store.place.get(row)] > 0);

export const labelledOf = (number) => store.state.labelled[number] ?? [];

// What no confidence makes acceptable: images that fit no class or lie too far out for one, and in a class those that are
// unsure of it. A list of unsure images is looked at to decide on these.
export const doubted = (index) => (isMixed() ? "of" : "ofu").includes(store.marks[index]);

// The rows that an action on images means: those selected, else the one in focus.
export const meant = () =>
  store.selection.size ? [...store.selection] : store.rows.length ? [store.rows[store.focus]] : [];
