// Drives @stomp/stompjs by commands, one JSON object a line; prints what the library calls back with, one line each.
import { Client, Versions } from "@stomp/stompjs";
import { WebSocket } from "ws";
import { createInterface } from "node:readline";

Object.assign(globalThis, { WebSocket });

const print = (what) => console.log(JSON.stringify(what));
const [url, options] = process.argv.slice(2);
const { versions, ...rest } = JSON.parse(options);
const subscriptions = new Map();
const client = new Client({
  brokerURL: url,
  reconnectDelay: 0,
  ...(versions && { stompVersions: new Versions(versions) }),
  ...rest,
  onConnect: (frame) => print({ called: "connected", version: client.connectedVersion, headers: frame.headers }),
  onStompError: (frame) => print({ called: "error", headers: frame.headers, body: frame.body }),
  onWebSocketClose: (event) => print({ called: "closed", code: event.code }),
});
client.onUnhandledReceipt = (frame) => print({ called: "receipt", headers: frame.headers });

const commands = {
  subscribe: ({ id, destination, headers = {}, acknowledge }) => {
    const onMessage = (message) => {
      print({ called: "message", id, headers: message.headers, body: message.body });
      if (acknowledge) message[acknowledge]();
    };
    subscriptions.set(id, client.subscribe(destination, onMessage, { id, ...headers }));
  },
  unsubscribe: ({ id, headers }) => subscriptions.get(id).unsubscribe(headers),
  send: ({ destination, headers, body }) => client.publish({ destination, headers, body }),
  deactivate: async () => { await client.deactivate(); print({ called: "deactivated" }); },
};
const lines = createInterface({ input: process.stdin });
lines.on("line", (line) => {
  const { command, ...rest } = JSON.parse(line);
  commands[command](rest);
});
lines.on("close", () => client.deactivate({ force: true }));
client.activate();
