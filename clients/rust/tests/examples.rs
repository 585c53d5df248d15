//! The examples run against the real server.

use crate::servers::{Server, spawn};
use limina_client::Limina;
use serde_json::json;
use std::process::Command;

/// An example, which cargo has built beside this test program.
fn example(name: &str, server: &Server) -> Command {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().and_then(|deps| deps.parent()).unwrap().join("examples").join(name);
    let mut command = Command::new(program);
    command.env("LIMINA_URL", &server.url);
    command
}

/// Runs an example to its end.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

#[tokio::test]
async fn the_web_api_limits_its_callers() {
    let Some(server) = Server::start() else { return };
    let mut command = example("web_api", &server);
    let (_process, line) = spawn(command.env("PORT", "0").env("TIMEOUT_MS", "30000"), "listening on ");
    let url = line.split_once("listening on ").unwrap().1;
    // However slow this machine is, a day is long enough.
    let client = Limina::new(&server.url).unwrap().with_namespace("web-api");
    let changes = json!({"limit": 3, "window": {"type": "sliding", "per": "1d"}});
    client.rules().patch("per-caller", &changes).await.unwrap();

    let http = reqwest::Client::new();
    let ask = async |caller: &str| http.get(url).header("x-api-key", caller).send().await.unwrap();
    for remaining in [2, 1, 0] {
        let answer = ask("ann").await;
        assert_eq!(answer.status(), 200);
        let state = answer.headers()["ratelimit"].to_str().unwrap().to_owned();
        assert!(state.starts_with(&format!("\"per-caller\";r={remaining}")), "{state}");
        assert_eq!(answer.text().await.unwrap(), "hello, world\n");
    }
    let refused = ask("ann").await;
    assert_eq!(refused.status(), 429);
    assert_eq!(refused.headers()["content-type"], "application/problem+json");
    assert!(refused.headers().contains_key("retry-after"));
    assert_eq!(ask("bob").await.status(), 200);
}

#[test]
fn the_job_runs_under_its_lock() {
    let Some(server) = Server::start() else { return };
    let output = run(&mut example("nightly_report", &server));
    assert!(output.starts_with("running with fencing token") && output.ends_with("done\n"), "{output}");
}

#[test]
fn the_benchmark_measures_something() {
    let Some(server) = Server::start() else { return };
    let output = run(example("bench", &server).arg("0.1"));
    assert!(output.contains("batching takes") && output.contains("batching is"), "{output}");
}
