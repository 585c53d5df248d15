//! `limina token ls`: the tokens of a file.

use super::parse;
use crate::watch;
use limina_access::Token;
use limina_cli::{Exit, Options};
use serde_json::json;
use std::{error::Error, path::PathBuf};

/// The arguments of `token ls`.
#[derive(clap::Args, Debug)]
pub(crate) struct ListTokensArgs {
    /// The file of tokens, as the server has it
    #[arg(long, env = "LIMINA_TOKENS", value_name = "FILE")]
    tokens: PathBuf,
}

/// Prints the tokens by name. The file holds hashes only, so no token can be shown.
pub(crate) fn list_tokens(args: ListTokensArgs, options: &Options) -> Result<Exit, Box<dyn Error>> {
    let tokens = watch::read(&args.tokens, parse)?;
    let mut tokens: Vec<&Token> = tokens.iter().collect();
    tokens.sort_by_key(|token| (token.name.as_str().to_owned(), token.hash().to_string()));
    let items = tokens.into_iter().map(|token| {
        let rights: Vec<String> = token.rights().iter().map(ToString::to_string).collect();
        let item = json!({
            "name": token.name.as_str(),
            "allow": rights,
            "sha256": token.hash().to_string(),
            "not_before": token.not_before(),
            "expires": token.expires(),
            "record": token.may_record,
            "valid": token.is_valid(),
        });
        let instant = |at: Option<u64>| at.map_or("-".to_owned(), limina_cli::words::time);
        let row = [
            token.name.to_string(),
            if token.is_valid() { "yes" } else { "no" }.to_owned(),
            instant(token.not_before()),
            instant(token.expires()),
            token.hash().to_string().chars().take(12).collect(),
            rights.join(" "),
        ];
        (row, item)
    });
    let columns = ["NAME", "VALID", "NOT BEFORE", "EXPIRES", "SHA256", "ALLOWS"];
    Ok(limina_cli::print_list(options, &columns, items))
}
