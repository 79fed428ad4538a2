// Requests to this page's own origin.

export class ApiError extends Error {
  constructor(status, body) {
    super(body.error ?? `the fabric answered ${status}`);
    this.status = status;
    this.field = body.field;
    this.next = body.next;
  }
}

async function request(method, path, body) {
  let r;
  try {
    r = await fetch(`/api/v1/${path}`, {
      method,
      headers: body ? { "Content-Type": "application/json" } : {},
      body: body && JSON.stringify(body),
    });
  } catch {
    throw new ApiError(0, { error: "the fabric's daemon does not answer", next: "is “softib up” still running?" });
  }
  const answer = await r.json().catch(() => ({}));
  if (!r.ok) throw new ApiError(r.status, answer);
  return answer;
}

export const get = path => request("GET", path);
export const post = (path, body) => request("POST", path, body);
export const put = (path, body) => request("PUT", path, body);
export const del = path => request("DELETE", path);
export const q = encodeURIComponent;
