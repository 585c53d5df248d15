export type { BreakerOptions } from "./breaker.js";
export { Limina, type Options } from "./client.js";
export type { Duration } from "./duration.js";
export {
  Conflict,
  Forbidden,
  Invalid,
  LiminaError,
  Lost,
  NotFound,
  Refused,
  Unauthorized,
  Unavailable,
  type Problem,
} from "./errors.js";
export type { Guard } from "./guard.js";
export type { CheckOptions, CheckResult, LeaseOptions, WaitOptions } from "./limiter.js";
export type { LockOptions, LockTarget } from "./locks.js";
export type { Actual, DecideOptions, DecisionGuard, OpenDecision } from "./decisions.js";
export type { FollowOptions } from "./events.js";
export type * from "./types.js";
export type { Undecided } from "./undecided.js";
