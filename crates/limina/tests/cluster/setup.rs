//! Starting on a database: what a node accepts, and how it explains what it refuses.

use std::process::Command;

use limina_pg_server::USER;
use tokio_postgres::NoTls;

use crate::cluster::{Cluster, LONG, SHORT, View, flags, free_address, metric, new_store};
use crate::harness::{Process, eventually, limina};

/// Requires that `limina serve` with these arguments ends with status 1, and that its message contains all of these
/// words.
#[track_caller]
fn refused(args: &[&str], words: &[&str]) {
    let mut process = Process::spawn(serve().args(args));
    let status = process.exit();
    let log = process.log();
    assert_eq!(status.code(), Some(1), "{args:?}:\n{log}");
    assert!(log.lines().any(|line| line.starts_with("limina: ")), "no line says why:\n{log}");
    for word in words {
        assert!(log.to_lowercase().contains(word), "{word:?} is not in:\n{log}");
    }
}

/// A node that listens for other nodes on any free port.
fn serve() -> Command {
    let mut command = limina();
    command.arg("serve").env("LIMINA_PEER_LISTEN", "127.0.0.1:0");
    command
}

/// Runs statements in the database.
#[track_caller]
pub(crate) fn execute(store: &str, statements: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(store, NoTls).await.expect("the database");
        tokio::spawn(connection);
        client.batch_execute(statements).await.expect("the statements");
    });
}

#[test]
fn the_database_fixes_the_number_of_shards() {
    let mut cluster = Cluster::of(1, LONG);
    let listen = free_address().to_string();
    let store = cluster.store().to_owned();
    refused(&["--listen", &listen, "--store", &store, "--shards", "16"], &["8 shards", "16"]);
    cluster.join_with(&["--store", &store, "--tenure", LONG]);
    cluster.settle(&[0, 1]);
}

/// Sets a version that this program does not know yet in every table of the schema that has one.
#[test]
fn a_newer_schema_is_refused() {
    let store = new_store();
    let mut cluster = Cluster::on(store.clone(), 1, LONG);
    cluster.node(0).stop();
    let raise = "do $$ declare found record; begin
        for found in select table_name, column_name from information_schema.columns
            where table_schema = 'limina' and column_name like '%version%'
        loop
            execute format('update limina.%I set %I = %I + 1000', found.table_name, found.column_name, found.column_name);
        end loop;
    end $$";
    execute(&store, raise);
    let listen = free_address().to_string();
    refused(&[&["--listen", &listen][..], &flags(&store, LONG)].concat(), &["schema", "version"]);
}

#[test]
fn a_foreign_schema_is_refused() {
    let store = new_store();
    execute(&store, "create schema limina; create table limina.something_else (id int)");
    let listen = free_address().to_string();
    refused(&[&["--listen", &listen][..], &flags(&store, LONG)].concat(), &["schema", "limina"]);
}

/// An error that retrying cannot cure ends the start, and the message names it.
#[test]
fn permanent_database_errors_end_the_start() {
    let store = new_store();
    let listen = free_address().to_string();
    let refused_at = |store: &str, words: &[&str]| refused(&["--listen", &listen, "--store", store], words);
    let (server, database) = store.rsplit_once('/').expect("a database");
    refused_at(&format!("{server}/missing"), &["missing", "does not exist"]);
    refused_at(&store.replace(&format!("{USER}@"), "nobody@"), &["nobody", "role"]);
    refused_at(&format!("{store}?sslmode=require"), &["tls"]);
    execute(
        &store,
        "do $$ begin create role powerless login; exception when duplicate_object then null; end $$",
    );
    let powerless = store.replace(&format!("{USER}@"), "powerless@");
    refused_at(&powerless, &["permission denied", database]);
}

/// The second node ends, and names the first node. The first one never notices.
#[test]
fn two_nodes_cannot_have_one_address() {
    let cluster = Cluster::of(1, SHORT);
    let before = View::of(&cluster[0]).expect("a view").epochs;
    let (listen, address) = (free_address().to_string(), cluster[0].peer_address().to_string());
    let me = cluster[0].get("/v1/cluster").ok().body["node"].as_str().expect("a name").to_owned();
    let args = ["--listen", &listen, "--advertise", &address];
    let args = [&args[..], &flags(cluster.store(), SHORT)].concat();
    refused(&args, &[&address, &me, "--advertise"]);
    assert_eq!(View::of(&cluster[0]).expect("a view").epochs, before, "its tenure was disturbed");
    assert_eq!(metric(&cluster[0], "limina_cluster_renewal_failures_total"), 0.0);
}

/// Both the node itself and the other nodes log the warning.
#[test]
fn unreachable_addresses_are_logged() {
    let mut cluster = Cluster::of(1, LONG);
    let nowhere = free_address().to_string();
    let store = cluster.store().to_owned();
    let second = cluster.join_with(&[&flags(&store, LONG)[..], &["--advertise", &nowhere]].concat());
    for (node, words) in [(0, "another node cannot be reached"), (second, "this node cannot reach itself")] {
        let said = eventually(|| {
            let log = cluster[node].log();
            log.lines().any(|line| line.contains(words) && line.contains(&nowhere)).then_some(())
        });
        assert!(said.is_some(), "{words:?} is not in:\n{}", cluster[node].log());
    }
}

#[test]
fn an_unspecified_address_must_be_replaced() {
    let store = new_store();
    let listen = ["--listen", "127.0.0.1:0", "--peer-listen", "0.0.0.0:0"];
    refused(&[&listen[..], &["--store", &store]].concat(), &["advertise"]);
    refused(&["--listen", "0.0.0.0:0", "--store", &store], &["--tokens", "--insecure-no-auth"]);
}

#[test]
fn an_invalid_store_url_is_refused() {
    refused(&["--listen", "127.0.0.1:0", "--store", "mysql://somewhere/limina"], &["postgresql url"]);
}

#[test]
fn a_store_without_a_host_is_refused() {
    refused(&["--listen", "127.0.0.1:0", "--store", "postgres://"], &["host"]);
}

#[test]
fn a_tenure_has_bounds() {
    let store = new_store();
    for tenure in ["1ms", "61s"] {
        let mut process = Process::spawn(serve().args(["--store", &store, "--tenure", tenure]));
        let status = process.exit();
        assert!(matches!(status.code(), Some(1 | 2)), "{tenure}: {status}\n{}", process.log());
        assert!(process.log().contains("tenure"), "{}", process.log());
    }
}
