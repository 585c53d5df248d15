/** What the server answers when it does not do what it was asked (RFC 9457). `code` is stable; other fields depend on it. */
export interface Problem {
  type: string;
  title: string;
  status: number;
  detail: string;
  code: string;
  request_id?: string;
  [field: string]: unknown;
}

/** The base of all errors of this client. Each kind of failure has a class of its own below. */
export class LiminaError extends Error {
  /** The problem document, if the server answered with one. */
  readonly problem: Problem | undefined;
  /** The HTTP status, if there was an answer. */
  readonly status: number | undefined;
  /** When the server says that a repetition makes sense, in milliseconds from the answer. */
  readonly retryAfterMs: number | undefined;

  constructor(message: string, answer: Partial<Reply> = {}, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
    this.problem = isProblem(answer.body) ? answer.body : undefined;
    this.status = answer.status;
    const ms = this.problem?.["retry_after_ms"];
    this.retryAfterMs = typeof ms === "number" ? ms : answer.retryAfterMs;
  }

  /** The stable word for what happened, such as `RuleNotFound`. */
  get code(): string | undefined {
    return this.problem?.code;
  }

  /** The id of the request, by which the server's log and audit name it. */
  get requestId(): string | undefined {
    return this.problem?.request_id;
  }
}

/** The request is wrong. `field` names the part of it. */
export class Invalid extends LiminaError {
  get field(): string | undefined {
    return this.problem?.["field"] as string | undefined;
  }
}

/** The server needs a token, or does not know this one. */
export class Unauthorized extends LiminaError {}

/** The token lacks a right. `needs` names the right. */
export class Forbidden extends LiminaError {
  get needs(): string | undefined {
    return this.problem?.["needs"] as string | undefined;
  }
}

/** What the request names does not exist, or no longer exists. */
export class NotFound extends LiminaError {}

/** The request contradicts what exists. */
export class Conflict extends LiminaError {}

/** The answer is no: a limit, a ceiling, a lock or an earlier event is in the way. It may be yes later. */
export class Refused extends Conflict {}

/**
 * The server could not be reached, could not answer, or did not answer in time.
 *
 * `done` is `"no"` if certainly nothing was done, and `"unknown"` if the request may have been executed.
 */
export class Unavailable extends LiminaError {
  readonly done: "no" | "unknown";

  constructor(done: "no" | "unknown", message: string, answer?: Partial<Reply>, options?: ErrorOptions) {
    super(message, answer, options);
    this.done = done;
  }
}

/** The reason of a guard's `signal`: the grant has ended at the server, or may have ended. */
export class Lost extends LiminaError {}

/** An HTTP answer, or one item of the answer to a batch. */
export interface Reply {
  status: number;
  body: unknown;
  retryAfterMs: number | undefined;
  /** When the attempt that was answered left, by `performance.now()`. */
  sentAt: number;
  /** Whether the body has no number that JavaScript may have rounded. Otherwise `exact` looks at every number. */
  isExact: boolean;
  /** `RateLimit-Policy`, `RateLimit` and `Retry-After`, as far as the answer has them. An item of a batch has none. */
  headers: Record<string, string>;
}

/** The error that an answer means, or `undefined` if it is a success. */
export function failure(reply: Reply): LiminaError | undefined {
  const { status, body } = reply;
  if (status < 400) return undefined;
  const message = isProblem(body) ? `${body.code}: ${body.detail ?? body.title}` : `the server answered with status ${status}`;
  const done = unavailability(reply);
  if (done !== undefined) return new Unavailable(done, message, reply);
  if (REFUSALS.has(codeOf(reply))) return new Refused(message, reply);
  const Kind = { 401: Unauthorized, 403: Forbidden, 404: NotFound, 409: Conflict }[status] ?? Invalid;
  return new Kind(message, reply);
}

/** The `done` of the `Unavailable` that an answer means, or `undefined` if the answer is the server's word on the request. */
export function unavailability(reply: Reply): "no" | "unknown" | undefined {
  const { status } = reply;
  const code = codeOf(reply);
  if (status < 400 || REFUSALS.has(code)) return undefined;
  if (code === "OutcomeUnknown" || code === "IdempotencyKeyInUse") return "unknown";
  if (code === "ClientHungUp" || status === 408 || status === 429 || status === 503) return "no";
  return status < 500 ? undefined : "unknown";
}

const REFUSALS = new Set([
  ...["LimitReached", "LimitExceeded", "LockHeld", "LockWaitTimeout"],
  ...["EventConflict", "Refused", "StreamFull", "QuotaExceeded"],
]);

/** The code of a problem document. Other bodies have none. */
export function codeOf({ body }: Reply): string {
  return isProblem(body) ? body.code : "";
}

function isProblem(body: unknown): body is Problem {
  return typeof body === "object" && body !== null && typeof (body as Problem).code === "string";
}
