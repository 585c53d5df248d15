//! The description in the repository is the one that the code gives.

#[test]
fn the_stored_description_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
    let stored = std::fs::read_to_string(path).expect("docs/openapi.json");
    let current = limina_server::openapi_json();
    assert!(stored.trim_end() == current.trim_end(), "docs/openapi.json is old: run `cargo xtask openapi`");
}
