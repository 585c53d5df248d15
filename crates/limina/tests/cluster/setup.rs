//! Starting on a database: what a node accepts, and how it explains what it refuses.

use std::process::Command;

use tokio_postgres::NoTls;

use crate::cluster::{Cluster, LONG, flags, free_address, new_store};
use crate::harness::{Process, limina};

/// `limina serve` with these arguments must end with status 1 and say all of these words.
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

fn serve() -> Command {
    let mut command = limina();
    command.arg("serve");
    command
}

/// Runs statements in the database.
#[track_caller]
fn execute(store: &str, statements: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(store, NoTls).await.expect("the database");
        tokio::spawn(connection);
        client.batch_execute(statements).await.expect("the statements");
    });
}

#[test]
fn the_number_of_shards_is_the_databases() {
    let mut cluster = Cluster::of(1, LONG);
    let listen = free_address().to_string();
    let store = cluster.store().to_owned();
    refused(&["--listen", &listen, "--store", &store, "--shards", "16"], &["8 shards", "16"]);
    cluster.join_with(&["--store", &store, "--tenure", LONG]);
    cluster.settle(&[0, 1]);
}

/// Every table of the schema that says a version says one that is not known yet.
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
fn a_schema_of_somebody_else_is_refused() {
    let store = new_store();
    execute(&store, "create schema limina; create table limina.something_else (id int)");
    let listen = free_address().to_string();
    refused(&[&["--listen", &listen][..], &flags(&store, LONG)].concat(), &["schema", "limina"]);
}

#[test]
fn an_address_that_nobody_can_reach_must_be_replaced() {
    let store = new_store();
    refused(&["--listen", "0.0.0.0:0", "--store", &store], &["advertise"]);
}

#[test]
fn a_store_that_is_no_address_is_refused() {
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
