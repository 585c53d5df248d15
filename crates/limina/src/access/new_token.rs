//! `limina token new`: makes a token.

use limina_access::{Right, Secret};
use limina_engine::Name;
use std::{error::Error, fmt::Write};

/// The arguments of `token new`.
#[derive(clap::Args, Debug)]
pub(crate) struct NewTokenArgs {
    /// Name of the token, which the audit shows; tokens may share a name, so that they can be rotated
    #[arg(long, value_name = "NAME")]
    name: String,
    /// A right: NAMESPACE/FAMILY:LEVEL, cluster:read or cluster:admin; * matches any characters of a namespace, or every family
    #[arg(long, value_name = "RIGHT", required = true, num_args = 1..)]
    allow: Vec<Right>,
}

/// Prints a new token, and the block for the file of tokens. Nothing stores the token.
pub(crate) fn new_token(args: NewTokenArgs) -> Result<(), Box<dyn Error>> {
    let name = Name::new(&args.name).map_err(|error| format!("--name {error}"))?;
    crate::progress::say("The token, which is shown only this once, and the block for the file of --tokens:");
    crate::print(&block(&Secret::draw()?, &name, &args.allow))
}

fn block(secret: &Secret, name: &Name, rights: &[Right]) -> String {
    let mut text = format!("{}\n\n[[token]]\n", secret.text());
    let rights: Vec<String> = rights.iter().map(|right| quoted(&right.to_string())).collect();
    writeln!(text, "name = {}", quoted(name.as_str())).expect("writing to a string succeeds");
    writeln!(text, "sha256 = \"{}\"", secret.hash()).expect("writing to a string succeeds");
    write!(text, "allow = [{}]", rights.join(", ")).expect("writing to a string succeeds");
    text
}

/// A TOML string.
fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use limina_access::{Access, Need, parse};

    #[test]
    fn the_printed_block_admits_the_token() {
        let secret = Secret::draw().unwrap();
        let name = Name::new("it's \"quoted\" \\ 🌮").unwrap();
        let rights = ["a\"b/limiter:use".parse().unwrap(), "cluster:read".parse().unwrap()];
        let text = block(&secret, &name, &rights);
        let (first, rest) = text.split_once("\n\n").unwrap();
        assert_eq!(first, secret.text());
        let token = Access::new(parse(rest).unwrap()).find(first.as_bytes()).unwrap();
        assert_eq!(token.name, name);
        assert!(token.allows(Need::ClusterRead) && token.sees("a\"b", limina_access::Level::Use));
    }
}
