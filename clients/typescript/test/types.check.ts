/**
 * Holds the types of `src/types.ts` against the OpenAPI document. There is nothing to run: if they disagree, this file does not
 * compile. `npm run types` writes `build/openapi.d.ts` anew before every check, so it is always current.
 */
import type * as ours from "limina";
import type { components } from "../build/openapi.js";

type Schemas = components["schemas"];

/** `Ours` may be sent: every value of it is valid, and it has no field that the server does not know. */
type Sent<Ours, Theirs> = Ours extends Plain<Theirs> ? Verdict<Exclude<FieldsOf<Ours>, FieldsOf<Theirs>>> : { disagrees: Theirs };
type FieldsOf<T> = T extends unknown ? keyof T : never;
type Verdict<Unknown> = [Unknown] extends [never] ? true : { unknown: Unknown };

/** What the server answers has everything that `Ours` promises. */
type Received<Ours, Theirs> = Plain<Theirs> extends Ours ? true : { disagrees: Theirs };

/** A check of a schema that the document may not have yet. */
type Once<Name extends string, Check extends "sent" | "received", Ours> = Schemas extends Record<Name, infer Theirs>
  ? { sent: Sent<Ours, Theirs>; received: Received<Ours, Theirs> }[Check]
  : true;

/** A schema with the values that the server sends: the typed form of the original documents is only for requests. */
type Plain<T> = T extends object
  ? { [Field in keyof T]: Field extends "key_values" | "group" ? ours.KeyValues | Extract<T[Field], null> : PlainValue<T[Field]> }
  : T;
type PlainValue<T> = T extends { DataType: number } ? never : Plain<T>;

/** The document asks for at least one part; here, the checks. */
type WithChecks = ours.DecisionRequest & Required<Pick<ours.DecisionRequest, "checks">>;

/** Fields of the contract that the document does not have yet. */
type Check = Omit<ours.Check, "report">;

export type Checked = [
  ours.KeyValues extends Schemas["KeyValues"] ? true : { disagrees: Schemas["KeyValues"] },
  ours.Selection extends Schemas["Selection"] ? true : { disagrees: Schemas["Selection"] },
  Sent<ours.Query, Schemas["Query"]>,
  Sent<ours.RuleQuery, Schemas["RuleQuery"]>,
  Sent<Check, Schemas["Check"]>,
  Sent<ours.NewRule, Schemas["NewRule"]>,
  Sent<ours.NewRule & { name: string }, Schemas["CreateRule"]>,
  Sent<ours.RulePatch, Schemas["RulePatch"]>,
  Sent<ours.NewOverride, Schemas["NewOverride"]>,
  Sent<ours.NewOverride & { name: string }, Schemas["CreateOverride"]>,
  Sent<ours.WantedLock, Schemas["WantedLock"]>,
  Sent<ours.NewLimit, Schemas["NewLimit"]>,
  Sent<ours.Change, Schemas["Change"]>,
  Sent<ours.Hold, Schemas["Hold"]>,
  Sent<ours.Finalization, Schemas["Finalization"]>,
  Sent<ours.NewStream, Schemas["PutStream"]>,

  Received<ours.CheckReply, Schemas["CheckReply"]>,
  Received<ours.LimitStatus, Schemas["LimitStatus"]>,
  Received<ours.Rule, Schemas["Rule"]>,
  Received<ours.MatchedRule, Schemas["RuleMatch"]>,
  Received<ours.Override, Schemas["Override"]>,
  Received<ours.Group, Schemas["Group"]>,
  Received<ours.Counter, Schemas["Counter"]>,
  Received<ours.CounterReply, Schemas["CounterReply"]>,
  Received<ours.LeaseGrant, Schemas["LeaseReply"]>,
  Received<ours.Lease, Schemas["Lease"]>,
  Received<ours.LockGrant, Schemas["Granted"]>,
  Received<ours.Lock, Schemas["Lock"]>,
  Received<ours.Limit, Schemas["Limit"]>,
  Received<ours.HoldReply, Schemas["HoldReply"]>,
  Received<ours.FinalizationReply, Schemas["FinalizationReply"]>,
  Received<ours.ValuesReply, Schemas["ValuesReply"]>,
  Received<ours.Operation, Schemas["Operation"]>,
  Received<ours.Entry, Schemas["Entry"]>,
  Received<ours.Stream, Schemas["Stream"]>,
  Received<ours.Submitted, Schemas["Submitted"]>,
  Received<ours.Incubating, Schemas["Incubating"]>,
  Received<ours.Message, Schemas["Message"]>,
  Received<ours.Namespace, Schemas["Namespace"]>,
  Received<ours.Refusal, Schemas["RefusedRequest"]>,
  Received<ours.Problem, Schemas["Problem"]>,

  Once<"NewRuleSet", "sent", ours.NewRuleSet>,
  Once<"RuleSet", "received", ours.RuleSet>,
  Once<"RuleSetInfo", "received", ours.RuleSetInfo>,
  Once<"RuleSetChanges", "received", ours.RuleSetChanges>,
  Once<"NewDecision", "sent", WithChecks>,
  Once<"CommitDecision", "sent", ours.CommitRequest>,
  Once<"Decision", "received", ours.Decision>,
];

/** If this does not compile, its type says what disagrees. */
export const agreed: [Exclude<Checked[number], true>] extends [never] ? true : Exclude<Checked[number], true> = true;
