// Text from clients. It reaches the page as text nodes only, and characters that would change how other text looks are shown by
// their code: a right-to-left mark in a name must not make a rule look like another one.
import { Fragment } from "preact";
import { encode } from "./json";
import { printPair, type KeyValues } from "./keyvalues";

const INVISIBLE = /([\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff\ufff9-\ufffb])/u;

/** The same as a plain text, for titles and tooltips. */
export const visible = (text: string) => text.split(INVISIBLE).map((part, n) => (n % 2 === 0 ? part : `[${code(part)}]`)).join("");

const code = (character: string) => `U+${character.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0")}`;

export function T({ text }: { text: string }) {
  const parts = text.split(INVISIBLE);
  if (parts.length === 1) return <bdi>{text}</bdi>;
  return (
    <bdi>
      {parts.map((part, n) =>
        n % 2 === 0 ? (
          part
        ) : (
          <span key={n} class="mark" title="an invisible character">
            {code(part)}
          </span>
        ),
      )}
    </bdi>
  );
}

/** A name or an id of a client's: monospaced, and never wider than its place. */
export function Name({ text, href }: { text: string; href?: string }) {
  return href === undefined ? (
    <span class="name">
      <T text={text} />
    </span>
  ) : (
    <a class="name" href={href}>
      <T text={text} />
    </a>
  );
}

/** Key-values in the order in which the server has them. */
export function Pairs({ of, empty = "everything" }: { of: KeyValues; empty?: string }) {
  const pairs = Object.entries(of);
  if (pairs.length === 0) return <span class="quiet">{empty}</span>;
  return (
    <span class="pairs">
      {pairs.map(([key, value]) => (
        <span class="pair" key={key} title={visible(printPair(key, value))}>
          <span class="key">
            <T text={key} />
          </span>
          <span class="value" data-type={typeof value}>
            <T text={typeof value === "string" ? value : encode(value)} />
          </span>
        </span>
      ))}
    </span>
  );
}

/** The conditions of a selection in words. */
export function Selection({ of }: { of: Record<string, any> }) {
  const conditions = Object.entries(of);
  if (conditions.length === 0) return <span class="quiet">every request</span>;
  return (
    <span class="pairs">
      {conditions.map(([key, condition]) => (
        <span class="pair" key={key}>
          <span class="key">
            <T text={key} />
          </span>
          <span class="value">
            <T text={conditionWords(condition)} />
          </span>
        </span>
      ))}
    </span>
  );
}

const WORDS: Record<string, string> = { eq: "=", ne: "≠", lt: "<", lte: "≤", gt: ">", gte: "≥", in: "in", prefix: "begins with" };

function conditionWords(condition: any): string {
  if (typeof condition !== "object" || condition === null || "source" in condition) return `= ${plain(condition)}`;
  return Object.entries(condition)
    .map(([test, value]) => {
      if (test === "exists") return value ? "is present" : "is absent";
      return `${WORDS[test] ?? test} ${Array.isArray(value) ? value.map(plain).join(", ") : plain(value)}`;
    })
    .join(" and ");
}

const plain = (value: unknown) => (typeof value === "string" ? value : encode(value));

/** Text of several lines. */
export function Lines({ text }: { text: string }) {
  return (
    <>
      {text.split("\n").map((line, n) => (
        <Fragment key={n}>
          {n > 0 && "\n"}
          <T text={line} />
        </Fragment>
      ))}
    </>
  );
}

/** JSON, with an indent. */
export function Json({ of }: { of: unknown }) {
  return (
    <pre class="json">
      <Lines text={encode(of, "  ")} />
    </pre>
  );
}
