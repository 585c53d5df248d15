//! Prints the API reference as the code describes it: what `cargo xtask openapi` writes to docs/openapi.json.

fn main() {
    print!("{}", limina_server::generated_openapi());
}
