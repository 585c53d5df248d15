/**
 * Prints what happens in a stream, across interruptions and restarts of the server.
 *
 *     LIMINA_URL=http://localhost:7070 node examples/follow.mjs orders
 */
import { Limina } from "limina";

const limina = new Limina(process.env.LIMINA_URL ?? "http://localhost:7070");
const stream = process.argv[2] ?? "orders";
await limina.events.put(stream, { mode: "only_once", duration: process.env.DURATION ?? "10s" });

for await (const message of limina.events.follow(stream)) {
  if (message.messageType === "KEY_FRAME") {
    console.log(`${message.clock}: ${message.snapshot.length} events are incubating`);
  } else {
    const what = message.messageType.replace("_EVENT", "").toLowerCase();
    console.log(`${message.clock}: ${message.eventTime.event} is ${what}`);
  }
}
