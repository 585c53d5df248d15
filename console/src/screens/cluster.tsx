// The screen of the cluster: nodes and shards, as one node sees them.

import { get } from "../api";
import { number } from "../format";
import { useData } from "../hooks";
import { namespace } from "../route";
import { Name, T, visible } from "../text";
import type { Cluster as Seen } from "../types";
import { Badge, Card, FailureNote, Loading, Screen } from "../ui";

export function Cluster() {
  const { data, failure } = useData("cluster", (signal) => get<Seen>("/v1/cluster", signal), 2000);
  const place = useData(`place ${namespace.value}`, (signal) => get<Seen>(`/v1/cluster?namespace=${encodeURIComponent(namespace.value)}`, signal), 5000);
  if (!data)
    return (
      <Screen title="Cluster">
        {failure ? <FailureNote of={failure} what="the cluster" /> : <Loading />}
      </Screen>
    );
  const order = data.nodes.map((node) => node.node);
  const home = place.data?.shards[0];
  const closed = data.shards.filter((shard) => !shard.open).length;
  return (
    <Screen title="Cluster" lead="Which node serves what, as the node that answers this page sees it.">
      {failure && <FailureNote of={failure} />}
      <div class="nodes">
        {data.nodes.map((node, n) => {
          const own = data.shards.filter((shard) => shard.owner === node.node).length;
          return (
            <section class="card node" key={node.node}>
              <h2>
                <span class={`shard-colour c${n % 8}`} />
                <Name text={node.node} />
              </h2>
              <p>
                {node.leaving ? <Badge tone="warn">leaving</Badge> : node.ready ? <Badge tone="good">ready</Badge> : <Badge tone="bad">not ready</Badge>} {node.node === data.node && <Badge>answers this page</Badge>}
              </p>
              <p class="quiet">
                {node.address ? <T text={node.address} /> : "on its own"} · {number(own)} of {number(data.shards.length)} shards
              </p>
            </section>
          );
        })}
      </div>
      <Card
        title="Shards"
        note={
          home ? (
            <>
              The namespace <b><T text={namespace.value} /></b> is in shard {home.shard}, on {home.owner ? <Name text={home.owner} /> : "no node"}.
            </>
          ) : (
            "Each namespace lives in one shard, each shard on one node."
          )
        }
        tools={closed > 0 ? <Badge tone="bad">{closed} not open</Badge> : <Badge tone="good">all open</Badge>}
      >
        <div class="shards" role="list">
          {data.shards.map((shard) => {
            const n = order.indexOf(shard.owner ?? "");
            const words = `Shard ${shard.shard}: ${shard.owner ? `on ${shard.owner}` : "on no node"}, ${shard.open ? "open" : "not open"}${shard.epoch != null ? `, epoch ${shard.epoch}` : ""}`;
            return (
              <span key={shard.shard} role="listitem" class={`shard ${n < 0 ? "none" : `c${n % 8}`} ${shard.open ? "" : "closed"} ${home?.shard === shard.shard ? "home" : ""}`} title={visible(words)} aria-label={visible(words)}>
                {shard.shard}
              </span>
            );
          })}
        </div>
      </Card>
    </Screen>
  );
}
