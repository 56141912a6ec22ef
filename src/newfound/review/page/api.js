// Every request of the page. The token stands behind the # of the address, which browsers send to nobody.

export const token = new URLSearchParams(location.hash.slice(1)).get("token") ?? "";

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function ask(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, { ...options, headers: { "X-Newfound-Token": token, ...options.headers } });
  } catch {
    throw new Refused(0, "The server does not answer. Was the command stopped? What was confirmed is in the run's folder.");
  }
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refused(answer.status, body.detail ?? `The server refused (${answer.status}).`);
  return body;
}

export const get = (path) => ask(path);

export const post = (path, body) =>
  ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

export const thumb = (row, side) =>
  `/api/thumb/${row}?side=${Math.round(side * Math.min(devicePixelRatio, 2))}&token=${token}`;

export const labelled = (where) => `/api/labelled/${where}?token=${token}`;

export const original = (row) => `/api/image/${row}?token=${token}`;
