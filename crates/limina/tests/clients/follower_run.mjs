// Runs the follower against a server whose port may change: prints the folded state after every change, one line each.
import { WebSocket } from "ws";
import { createInterface } from "node:readline";
import { follow } from "./follower.mjs";

Object.assign(globalThis, { WebSocket }); // Browsers have it; older versions of node do not.

const [first, topic] = process.argv.slice(2);
let url = first;
const print = (state, kind) =>
  console.log(JSON.stringify({ kind, clock: state.clock, missed: state.missed, incubating: Object.fromEntries(state.incubating) }));
const client = follow(url, topic, print, { webSocketFactory: () => new WebSocket(url, ["v12.stomp"]) });

// Each line is where the server is from now on; the end of input is the end.
const lines = createInterface({ input: process.stdin });
lines.on("line", (line) => { url = line; });
lines.on("close", async () => {
  await client.deactivate();
  console.log("bye");
});
