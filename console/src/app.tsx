// The console: a window on the server for the person who is asked "why was I refused?".
import { render } from "preact";
import { namespace, screen } from "./route";
import { Audit } from "./screens/audit";
import { Cluster } from "./screens/cluster";
import { Decisions } from "./screens/decisions";
import { Ledger } from "./screens/ledger";
import { Locks } from "./screens/locks";
import { Now } from "./screens/now";
import { Refusals } from "./screens/refusals";
import { Rules } from "./screens/rules";
import { Streams } from "./screens/streams";
import { Try } from "./screens/try";
import { Shell } from "./shell";
import "./style.css";
import { Empty, Screen } from "./ui";

const SCREEN = {
  now: Now,
  refusals: Refusals,
  try: Try,
  rules: Rules,
  locks: Locks,
  ledger: Ledger,
  decisions: Decisions,
  streams: Streams,
  cluster: Cluster,
  audit: Audit,
} as Record<string, () => preact.JSX.Element>;

function App() {
  const Chosen = Object.hasOwn(SCREEN, screen.value) ? SCREEN[screen.value] : Unknown;
  return (
    <Shell>
      <Chosen key={`${screen.value} ${namespace.value}`} />
    </Shell>
  );
}

function Unknown() {
  return (
    <Screen title="No such screen">
      <Empty title="This address leads nowhere">Choose a screen from the menu.</Empty>
    </Screen>
  );
}

render(<App />, document.getElementById("app")!);
