//! Transcripts under `tests/cmd`, played against one server. `TRYCMD=overwrite` writes what the commands print into them.
//!
//! Each file has namespaces of its own, because files are played at the same time. The commands of one file run in order.

use crate::harness::{LIMINA, Server, limina};
use tempfile::TempDir;

#[test]
fn transcripts() {
    let home = TempDir::new().unwrap();
    let path = |name: &str| home.path().join(name).to_str().unwrap().to_owned();
    // A second server needs a token. The context `shop` has one, which may use one family of one namespace.
    let new =
        limina().args(["token", "new", "--name", "shop", "--allow", "shop/limiter:use"]).output().unwrap();
    let printed = String::from_utf8(new.stdout).unwrap();
    let (token, block) = printed.split_once("\n\n").unwrap();
    std::fs::write(path("tokens.toml"), block).unwrap();
    let server = Server::fresh();
    let guarded = Server::start_with(path("data"), &["--tokens", &path("tokens.toml")]);
    let (url, guarded_url) = (server.url(""), guarded.url(""));
    let contexts = format!(
        "[contexts.stranger]\nurl = \"{guarded_url}\"\n\
         [contexts.shop]\nurl = \"{guarded_url}\"\nnamespace = \"shop\"\ntoken = \"{token}\"\n"
    );
    std::fs::write(path("config.toml"), contexts).unwrap();
    // `limina lock … -- limina …` finds the second `limina` through PATH.
    let folder = std::path::Path::new(LIMINA).parent().unwrap().to_str().unwrap();
    let search_path = format!("{folder}:{}", std::env::var("PATH").unwrap_or_default());
    let cases = trycmd::TestCases::new();
    cases.register_bin("limina", std::path::Path::new(LIMINA));
    cases
        .env("LIMINA_URL", &url)
        .env("LIMINA_CLIENT_CONFIG", path("config.toml"))
        .env("LIMINA_TOKENS", path("tokens.toml"))
        .env("PATH", search_path)
        .env("NO_COLOR", "1")
        .case("tests/cmd/*.trycmd");
    cases.insert_var("[URL]", url).unwrap();
    cases.run();
}
