// Elements from plain values. Words are always set as text: no name can become markup.

export const $ = (selector, inside = document) => inside.querySelector(selector);

export function make(tag, values = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(values)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "text") element.textContent = value;
    else if (name === "on") for (const [event, what] of Object.entries(value)) element.addEventListener(event, what);
    else if (name === "style") for (const [key, each] of Object.entries(value)) element.style.setProperty(key, each);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export const count = (number, one, many = `${one}s`) => `${number.toLocaleString("en")} ${number === 1 ? one : many}`;

// A picture that is missing leaves its place, and says why when it is pointed at.
export function picture(source, words = "", options = {}) {
  const image = make("img", { alt: words, draggable: "false", decoding: "async", ...options });
  image.addEventListener("error", () => image.classList.add("missing"));
  image.addEventListener("load", () => image.classList.remove("missing"));
  if (source) image.src = source;
  return image;
}
