//! Which server, which namespace, which token: from flags, the environment and the contexts of a configuration file.

use crate::{Exit, Failed, Options, secret_file};
use limina_client::{Error, Limina};
use serde::Deserialize;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

const DEFAULT_URL: &str = "http://127.0.0.1:7070";

/// A server, and who asks it about which namespace.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Connection {
    pub(crate) url: String,
    pub(crate) namespace: String,
    pub(crate) token: Option<String>,
    pub(crate) tls: Tls,
}

/// The contents of the files for https.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tls {
    ca: Option<Vec<u8>>,
    /// The certificate of this client, and its key.
    identity: Option<(Vec<u8>, Vec<u8>)>,
}

/// The configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// The context that is used if nothing names another one.
    context: Option<String>,
    #[serde(default)]
    contexts: BTreeMap<String, Context>,
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Context {
    url: Option<String>,
    namespace: Option<String>,
    token: Option<String>,
    token_file: Option<PathBuf>,
    /// The authorities (PEM) that sign the server's certificate, instead of the system's.
    ca: Option<PathBuf>,
    /// The certificate of this client (PEM), for a server that asks for one.
    cert: Option<PathBuf>,
    /// Its key (PEM).
    key: Option<PathBuf>,
}

impl Options {
    /// The client, as flags, environment and configuration file say.
    pub(crate) fn client(&self) -> Result<(Limina, Connection), Failed> {
        let connection = self.resolve(&|name| std::env::var(name).ok().filter(|value| !value.is_empty()))?;
        let timeout = self.timeout.map_or(Duration::from_secs(5), |span| span.0);
        let mut builder = Limina::builder(&connection.url).namespace(&connection.namespace).timeout(timeout);
        if let Some(token) = &connection.token {
            builder = builder.token(token);
        }
        if let Some(ca) = &connection.tls.ca {
            builder = builder.root_certificates(ca.clone());
        }
        if let Some((cert, key)) = &connection.tls.identity {
            builder = builder.client_certificate(cert.clone(), key.clone());
        }
        let client = builder.build().map_err(|error| Failed::usage(error.to_string()))?;
        Ok((client, connection))
    }

    /// A flag comes before the environment, the environment before the default context of the file. `--context` is a flag, so the
    /// server and the token that it names come before the environment's.
    fn resolve(&self, env: &dyn Fn(&str) -> Option<String>) -> Result<Connection, Failed> {
        let named = self.context.clone();
        let by_flag = named.is_some();
        let (file, path) = File::read(env, by_flag)?;
        let name = named.or_else(|| env("LIMINA_CONTEXT")).or_else(|| file.context.clone());
        let context = match name {
            None => Context::default(),
            Some(name) => file.contexts.get(&name).cloned().ok_or_else(|| {
                let known: Vec<&str> = file.contexts.keys().map(String::as_str).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                Failed::usage(format!("{path} has no context {name:?}; it has: {known}"))
            })?,
        };
        let pick = |flag: &Option<String>, name: &str, of_context: &Option<String>| {
            let environment = || env(name);
            flag.clone().or_else(|| match by_flag {
                true => of_context.clone().or_else(environment),
                false => environment().or_else(|| of_context.clone()),
            })
        };
        let url = pick(&self.url, "LIMINA_URL", &context.url).unwrap_or_else(|| DEFAULT_URL.to_owned());
        let namespace = pick(&self.namespace, "LIMINA_NAMESPACE", &context.namespace);
        // The token and the certificate of a context are between it and its server. Another server must not see them.
        let (of_context, tls) = if context.url.as_ref().is_none_or(|own| *own == url) {
            (context.token(env)?, context.tls(env)?)
        } else {
            (None, Tls::default())
        };
        let token = pick(&None, "LIMINA_TOKEN", &of_context);
        Ok(Connection { url, namespace: namespace.unwrap_or_else(|| "default".to_owned()), token, tls })
    }
}

impl File {
    /// Reads the file, which need not exist unless something names it. Also returns its name for messages.
    fn read(env: &dyn Fn(&str) -> Option<String>, needed: bool) -> Result<(File, String), Failed> {
        let given = env("LIMINA_CLIENT_CONFIG").map(PathBuf::from);
        let needed = needed || given.is_some();
        let usual = || {
            let base = env("XDG_CONFIG_HOME").map(PathBuf::from);
            let base = base.or_else(|| env("HOME").map(|home| PathBuf::from(home).join(".config")))?;
            Some(base.join("limina/config.toml"))
        };
        let Some(path) = given.or_else(usual) else {
            return Ok((File::default(), "the configuration file".to_owned()));
        };
        let name = path.display().to_string();
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !needed => {
                return Ok((File::default(), name));
            }
            Err(error) => return Err(Failed::usage(format!("{name} cannot be read: {error}"))),
        };
        let file = secret_file::parse(&text)
            .map_err(|error| Failed::usage(format!("{name} is not valid: {error}")))?;
        Ok((file, name))
    }
}

impl Context {
    fn token(&self, env: &dyn Fn(&str) -> Option<String>) -> Result<Option<String>, Failed> {
        let Some(path) = &self.token_file else { return Ok(self.token.clone()) };
        let text = String::from_utf8(read(path, env)?)
            .map_err(|_| Failed::usage(format!("{} does not contain a token", path.display())))?;
        Ok(Some(text.trim().to_owned()))
    }

    fn tls(&self, env: &dyn Fn(&str) -> Option<String>) -> Result<Tls, Failed> {
        let ca = self.ca.as_ref().map(|path| read(path, env)).transpose()?;
        let identity = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => Some((read(cert, env)?, read(key, env)?)),
            (None, None) => None,
            _ => return Err(Failed::usage("a context has `cert` and `key`, or neither")),
        };
        Ok(Tls { ca, identity })
    }
}

/// Reads a file that a context names. `~` is the home directory.
fn read(path: &Path, env: &dyn Fn(&str) -> Option<String>) -> Result<Vec<u8>, Failed> {
    let path = match (path.strip_prefix("~"), env("HOME")) {
        (Ok(rest), Some(home)) => PathBuf::from(home).join(rest),
        _ => path.to_owned(),
    };
    std::fs::read(&path).map_err(|error| Failed::usage(format!("{} cannot be read: {error}", path.display())))
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        let exit = match &error {
            Error::Unauthorized(_) | Error::Forbidden(_) => Exit::Forbidden,
            Error::NotFound(_) => Exit::NotFound,
            Error::Refused(_) => Exit::No,
            Error::Unavailable { .. } => Exit::Unavailable,
            Error::Invalid(_) | Error::Conflict(_) => Exit::Error,
        };
        let document = match &error {
            Error::Refused(failure) => failure.problem.as_ref(),
            _ => None,
        };
        let document = document.and_then(|problem| serde_json::to_string(problem).ok());
        Failed { document, ..Failed::new(exit, error.to_string()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "context = \"local\"\n\
        [contexts.local]\nurl = \"http://local\"\nnamespace = \"mine\"\n\
        [contexts.prod]\nurl = \"https://prod\"\ntoken = \"secret\"\n";

    /// Resolves flags `[--url, -n, --context]` and variables, with the file above.
    #[track_caller]
    fn check(flags: [&str; 3], variables: &[(&str, &str)], expect: Result<(&str, &str, Option<&str>), &str>) {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("config.toml");
        std::fs::write(&path, FILE).unwrap();
        let [url, namespace, context] = flags.map(|flag| (!flag.is_empty()).then(|| flag.to_owned()));
        let options = Options { url, namespace, context, ..Options::default() };
        let env = |name: &str| match name {
            "LIMINA_CLIENT_CONFIG" => Some(path.display().to_string()),
            _ => variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()),
        };
        match (options.resolve(&env), expect) {
            (Ok(found), Ok((url, namespace, token))) => {
                assert_eq!((&*found.url, &*found.namespace, found.token.as_deref()), (url, namespace, token));
            }
            (Err(found), Err(expect)) => {
                assert!(found.to_string().contains(expect) && found.exit == crate::Exit::Usage, "{found}");
            }
            (found, _) => panic!("{found:?}"),
        }
    }

    #[test]
    fn a_flag_comes_before_the_environment_and_the_environment_before_the_file() {
        check(["", "", ""], &[], Ok(("http://local", "mine", None)));
        check(["", "", ""], &[("LIMINA_URL", "http://env")], Ok(("http://env", "mine", None)));
        check(["http://flag", "n", ""], &[("LIMINA_URL", "http://env")], Ok(("http://flag", "n", None)));
        check(["", "", ""], &[("LIMINA_CONTEXT", "prod")], Ok(("https://prod", "default", Some("secret"))));
        check(
            ["", "", "prod"],
            &[("LIMINA_URL", "http://env")],
            Ok(("https://prod", "default", Some("secret"))),
        );
        check(["", "", "staging"], &[], Err("no context \"staging\"; it has: local, prod"));
    }

    #[test]
    fn the_token_of_a_context_goes_to_no_other_server() {
        let prod = ("LIMINA_CONTEXT", "prod");
        check(["http://flag", "", "prod"], &[], Ok(("http://flag", "default", None)));
        check(["", "", ""], &[prod, ("LIMINA_URL", "http://env")], Ok(("http://env", "default", None)));
        let token = ("LIMINA_TOKEN", "mine");
        check(["http://flag", "", "prod"], &[token], Ok(("http://flag", "default", Some("mine"))));
        check(["", "", "prod"], &[token], Ok(("https://prod", "default", Some("secret"))));
    }
}
