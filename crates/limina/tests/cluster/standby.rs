//! PostgreSQL with a synchronous standby: clients send requests while one of the two servers is lost and the standby is
//! promoted. No acknowledged write may be missing, and nodes must recover automatically.
//!
//! Every test run plays one round. `cargo xtask standby` plays every kind of loss.

use std::net::SocketAddr;
use std::time::Instant;

use limina_pg_server::{PgServer, USER};
use serde_json::{Value, json};

use crate::chaos;
use crate::chaos::client::{Client, Round};
use crate::cluster::{Cluster, SHARDS, SHORT, SOON, free_address, namespace_in};
use crate::ledger::hold;

const NODES: usize = 3;

/// What happens to the primary before its standby is promoted.
#[derive(Debug, Clone, Copy)]
enum Loss {
    /// It is killed, and its data are lost.
    Kill,
    /// It hangs, and continues after the standby was promoted.
    Freeze,
    /// It continues to run, and does not know that it was replaced.
    Isolate,
}

/// What the service does while there is no standby.
#[derive(Debug, Clone, Copy)]
enum Operator {
    WaitsForStandby,
    GoesOnWithout,
}

#[test]
fn nothing_acknowledged_is_lost_with_either_database_server() {
    let rounds = std::env::var("STANDBY_ROUNDS").map_or(1, |text| text.parse().expect("a number"));
    let losses = [Loss::Kill, Loss::Freeze, Loss::Isolate].into_iter().cycle();
    let operators = [Operator::WaitsForStandby, Operator::GoesOnWithout].into_iter().cycle();
    let mut pair = Pair::start();
    let mut cluster = Cluster::on(pair.url.clone(), NODES, SHORT);
    let mut probe = Probe::new(&cluster);
    for (round, (loss, operator)) in (0..rounds).zip(losses.zip(operators)) {
        eprintln!("standby: round {round}: {operator:?}, {loss:?}");
        pair = disturbed(&mut cluster, round, |_| {
            let pair = pair.lose_standby(operator, &mut probe);
            pair.lose_primary(loss, &mut probe)
        });
    }
}

/// Plays one round of all clients. `disturb` replaces the pair of database servers.
fn disturbed(cluster: &mut Cluster, round: u64, disturb: impl FnOnce(&mut Cluster) -> Pair) -> Pair {
    let mut pair = None;
    chaos::run(cluster, &format!("round-{round}"), round, |cluster| pair = Some(disturb(cluster)));
    pair.expect("the round is over")
}

/// Two database servers, one of which is the primary.
struct Pair {
    primary: PgServer,
    standby: PgServer,
    /// The URL that names both servers.
    url: String,
}

impl Pair {
    #[track_caller]
    fn start() -> Pair {
        let [first, second] = [free_address(), free_address()];
        let primary = PgServer::start_at(first.port()).expect("a primary");
        let database = primary.new_database().expect("a database");
        let standby = primary.start_standby(second.port()).expect("a standby");
        let url = format!("postgres://{USER}@{first},{second}/{database}?target_session_attrs=read-write");
        Pair { primary, standby, url }
    }

    /// Checks that nothing is acknowledged until there is another standby, unless the operator says that none is
    /// needed.
    #[track_caller]
    fn lose_standby(self, operator: Operator, probe: &mut Probe) -> Pair {
        let Pair { primary, standby, url } = self;
        let port = standby.port();
        standby.kill().expect("the standby dies");
        probe.nothing_is_told();
        if let Operator::GoesOnWithout = operator {
            primary.wait_for_standby(false).expect("a setting");
            probe.goes_on("without a standby");
        }
        let standby = primary.start_standby(port).expect("a new standby");
        probe.goes_on("with a new standby");
        Pair { primary, standby, url }
    }

    /// Loses the primary in this way, promotes its standby, and starts a new standby on the port of the former primary.
    #[track_caller]
    fn lose_primary(self, loss: Loss, probe: &mut Probe) -> Pair {
        let Pair { primary: old, standby: new, url } = self;
        let port = old.port();
        match loss {
            Loss::Kill => {
                old.kill().expect("the primary dies");
                new.promote().expect("a new primary");
                probe.goes_on("after a promotion");
            }
            Loss::Freeze => {
                old.freeze().expect("the primary hangs");
                probe.nothing_is_told();
                new.promote().expect("a new primary");
                probe.goes_on("while the old primary hangs");
                old.thaw().expect("the old primary goes on");
                probe.goes_on("beside an old primary that hung");
                old.kill().expect("the old primary dies");
            }
            Loss::Isolate => {
                new.promote().expect("a new primary");
                probe.goes_on("beside an old primary");
                old.kill().expect("the old primary dies");
            }
        }
        let standby = new.start_standby(port).expect("a new standby");
        probe.goes_on("with the next standby");
        Pair { primary: new, standby, url }
    }
}

/// A client that adds one unit after another in every shard, and knows what the totals must be.
struct Probe {
    nodes: Vec<SocketAddr>,
    /// One namespace in each shard.
    namespaces: Vec<String>,
    added: i64,
}

impl Probe {
    #[track_caller]
    fn new(cluster: &Cluster) -> Probe {
        let namespaces: Vec<String> = (0..SHARDS).map(|shard| namespace_in(&cluster[0], shard)).collect();
        for namespace in &namespaces {
            cluster[0].ledger_of(namespace).create("probe");
        }
        Probe { nodes: (0..NODES).map(|node| cluster[node].address()).collect(), namespaces, added: 0 }
    }

    /// The next operation. It may be requested repeatedly until it is acknowledged, and is executed once.
    fn next(&self) -> Value {
        hold(&format!("{}", self.added + 1), &[("probe", 1)])
    }

    /// Checks that neither writes nor reads are answered, in any shard.
    #[track_caller]
    fn nothing_is_told(&self) {
        self.in_every_shard(|mut client| {
            let written = client.once("POST", "/ledger/hold", &self.next());
            assert!(written.is_none(), "acknowledged, and nowhere but here: {written:?}");
            let read = client.once("POST", "/ledger/values", &json!({"limit_names": ["probe"]}));
            assert!(read.is_none(), "nobody knows whether this is so: {read:?}");
        });
    }

    /// Waits until one more unit is added in every shard, on top of all earlier ones.
    #[track_caller]
    fn goes_on(&mut self, when: &str) {
        let start = Instant::now();
        self.in_every_shard(|mut client| {
            let held = client.retry("POST", "/ledger/hold", &self.next()).reply;
            // A request from the time when nothing was acknowledged may have been executed since.
            let reply = match held.status {
                409 => {
                    assert_eq!(held.code(), "DuplicateOperation", "{}", held.text);
                    client.retry("POST", "/ledger/values", &json!({"limit_names": ["probe"]})).reply
                }
                _ => held,
            };
            reply.ok().value("probe", 0, self.added + 1);
        });
        self.added += 1;
        let elapsed = start.elapsed();
        eprintln!("standby: {when}, all went on within {} ms", elapsed.as_millis());
        assert!(elapsed < SOON, "{when}, it took {elapsed:?}");
    }

    #[track_caller]
    fn in_every_shard(&self, ask: impl Fn(Client<'_>) + Sync) {
        let (round, ask) = (Round::new(self.nodes.clone()), &ask);
        std::thread::scope(|scope| {
            for (namespace, number) in self.namespaces.iter().zip(1..) {
                let name = format!("probe {}", self.added);
                let client = Client::new(&round, namespace, &name, number);
                scope.spawn(move || ask(client));
            }
        });
    }
}
