//! Plays the conformance scripts that all clients share. With `LIMINA_TEST=smoke`, only those that are marked so.

use crate::{
    script::{Script, play},
    servers::{Proxy, Server, conformance},
};
use futures_util::{StreamExt, stream};
use std::sync::Mutex;

/// Most scripts mostly wait, so several are played at a time, each through a proxy of its own.
const LANES: usize = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_follows_the_scripts() {
    let Some(server) = Server::start() else { return };
    let smoke = std::env::var("LIMINA_TEST").is_ok_and(|kind| kind == "smoke");
    let proxies = Mutex::new((0..LANES).map(|_| Proxy::start(&server.url)).collect::<Vec<_>>());
    let scripts = scripts();
    let wanted = scripts.iter().filter(|(_, script)| !smoke || script.tags.iter().any(|tag| tag == "smoke"));
    let results = stream::iter(wanted).map(|(file, script)| {
        let (server, proxies) = (&server.url, &proxies);
        async move {
            let proxy = proxies.lock().unwrap().pop().unwrap();
            let result = play(script, server, &proxy).await;
            proxies.lock().unwrap().push(proxy);
            result.map_err(|why| format!("{file}: {}\n  {why}", script.name))
        }
    });
    let results: Vec<_> = results.buffer_unordered(LANES).collect().await;
    let played = results.len();
    let failures: Vec<_> = results.into_iter().filter_map(Result::err).collect();
    println!("{played} scripts played");
    assert!(played > 0);
    assert!(failures.is_empty(), "{} of {played} scripts failed:\n{}", failures.len(), failures.join("\n\n"));
}

fn scripts() -> Vec<(String, Script)> {
    let files = std::fs::read_dir(conformance().join("scripts")).unwrap();
    let mut scripts = Vec::new();
    for file in files.map(|file| file.unwrap().path()) {
        let text = std::fs::read_to_string(&file).unwrap();
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let list: Vec<Script> = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        scripts.extend(list.into_iter().map(|script| (name.clone(), script)));
    }
    scripts
}
