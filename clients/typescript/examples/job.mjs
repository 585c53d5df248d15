/**
 * A job of which at most two run at a time, on all machines together. Start it three times: the third says that it is refused.
 *
 *     LIMINA_URL=http://localhost:7070 node examples/job.mjs
 */
import { setTimeout as sleep } from "node:timers/promises";
import { Limina, Lost, Refused } from "limina";

const limina = new Limina(process.env.LIMINA_URL ?? "http://localhost:7070");
await limina.rules.put("reports", { group_by: ["job"], selection: { job: "report" }, limit: 2 });

try {
  const slot = await limina.lease({ job: "report" }, { ttl: "10s", owner: `process ${process.pid}` });
  try {
    console.log(`running, with the fencing token ${slot.fencingToken}`);
    for (let page = 1; page <= 3; page++) {
      // The signal ends the work at once if the slot is lost: another process may then have it.
      await sleep(Number(process.env.PAGE_MS ?? 1000), undefined, { signal: slot.signal });
      console.log(`page ${page} is done`);
    }
  } finally {
    await slot.leave();
  }
} catch (error) {
  if (error instanceof Refused) console.log("refused: two reports are running already");
  else if (error.cause instanceof Lost) console.log("stopped: the slot is lost");
  else throw error;
}
