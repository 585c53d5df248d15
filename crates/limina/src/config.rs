//! Settings. A flag comes before the environment, the environment before the configuration file, and the file before the
//! default.

use crate::{listen::Listen, quotas::Quotas};
use limina_cli::secret_file;
use limina_engine::QuotaTable;
use limina_envoy::CountRefused;
use limina_server::{InvalidOrigin, Origin, TlsFiles};
use serde::Deserialize;
use std::{collections::BTreeMap, path::PathBuf, str::FromStr, time::Duration};

/// The port for other nodes.
const PEER_PORT: u16 = 7071;

/// The arguments of `serve`.
#[derive(clap::Args, Debug, Default)]
pub(crate) struct ServeArgs {
    /// Address to listen on; without a host, all addresses of the machine [default: 127.0.0.1:7070]
    #[arg(long, env = "LIMINA_LISTEN", value_name = "HOST:PORT")]
    listen: Option<Listen>,
    /// Certificate of the server (PEM, with the certificates that lead to its authority): clients then need TLS
    #[arg(long, env = "LIMINA_TLS_CERT", value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM)
    #[arg(long, env = "LIMINA_TLS_KEY", value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Authorities (PEM) of which every client must show a certificate
    #[arg(long, env = "LIMINA_TLS_CLIENT_CA", value_name = "FILE")]
    tls_client_ca: Option<PathBuf>,
    /// Directory for the data [default: ./limina-data]
    #[arg(long, env = "LIMINA_DATA", value_name = "DIR")]
    data: Option<PathBuf>,
    /// Shared store for several nodes, instead of the directory: the URL of a PostgreSQL database
    #[arg(long, env = "LIMINA_STORE", value_name = "URL", hide_env_values = true)]
    store: Option<String>,
    /// With a shared store: address to listen on for other nodes [default: the host of --listen, port 7071]
    #[arg(long, env = "LIMINA_PEER_LISTEN", value_name = "HOST:PORT")]
    peer_listen: Option<Listen>,
    /// With a shared store: where other nodes reach this one [default: the address of --peer-listen]
    #[arg(long, env = "LIMINA_ADVERTISE", value_name = "HOST:PORT")]
    advertise: Option<String>,
    /// Shared store: time without a renewal after which other nodes take over this node's shards [default: 5s]
    #[arg(long, env = "LIMINA_TENURE", value_name = "DURATION")]
    tenure: Option<Tenure>,
    /// Configuration file (TOML); its keys are the long names of these flags, with underscores
    #[arg(long, env = "LIMINA_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Log format: text or json
    #[arg(long, env = "LIMINA_LOG_FORMAT", value_name = "FORMAT")]
    log_format: Option<LogFormat>,
    /// What is logged: a level, or directives such as `info,limina_node=debug` [default: info]
    #[arg(long, env = "LIMINA_LOG", value_name = "FILTER")]
    log: Option<String>,
    /// Number of shards of a new data directory; it cannot be changed later [default: 64]
    #[arg(long, env = "LIMINA_SHARDS", value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    shards: Option<u16>,
    /// Size of a journal segment [default: 64]
    #[arg(long, env = "LIMINA_JOURNAL_SEGMENT_MIB", value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1024))]
    journal_segment_mib: Option<u64>,
    /// Journal size that triggers a checkpoint [default: 1024]
    #[arg(long, env = "LIMINA_JOURNAL_MIB", value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1_048_576))]
    journal_mib: Option<u64>,
    /// Memory of one shard's new records that triggers a checkpoint [default: 64]
    #[arg(long, env = "LIMINA_CHECKPOINT_MIB", value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=65_536))]
    checkpoint_mib: Option<u64>,
    /// Memory budget of the process [default: 60 % of what the machine, the cgroup and RLIMIT_AS allow]
    #[arg(long, env = "LIMINA_MEMORY_MIB", value_name = "MIB", value_parser = clap::value_parser!(u64).range(64..=16_777_216))]
    memory_mib: Option<u64>,
    /// Free disk space below which writes are rejected (StorageFull) [default: two segments, at least 64]
    #[arg(long, env = "LIMINA_STORAGE_RESERVE_MIB", value_name = "MIB", value_parser = clap::value_parser!(u64).range(0..=1_048_576))]
    storage_reserve_mib: Option<u64>,
    /// Longest time that a request may wait for its shard; what would wait longer is refused (Overloaded) [default: 250]
    #[arg(long, env = "LIMINA_MAX_WAIT_MS", value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=60_000))]
    max_wait_ms: Option<u64>,
    /// File of limiter rules (TOML): applied at start, and again when it changes
    #[arg(long, env = "LIMINA_RULES", value_name = "FILE")]
    rules: Option<PathBuf>,
    /// Envoy's rate limits: a YAML file of envoyproxy/ratelimit, or a directory of them; followed as it changes
    #[arg(long, env = "LIMINA_ENVOY_CONFIG", value_name = "FILE|DIR")]
    envoy_config: Option<PathBuf>,
    /// Address on which only Envoy's rate limit service is served, besides the common port
    #[arg(long, env = "LIMINA_ENVOY_LISTEN", value_name = "HOST:PORT")]
    envoy_listen: Option<Listen>,
    /// File of tokens (TOML), by which clients are let in: followed as it changes [default: loopback addresses only, no tokens]
    #[arg(long, env = "LIMINA_TOKENS", value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// How long the audit is kept [default: 400]
    #[arg(long, env = "LIMINA_AUDIT_DAYS", value_name = "DAYS", value_parser = clap::value_parser!(u64).range(1..=36_500))]
    audit_days: Option<u64>,
    /// Without tokens: listen on any address, and let everybody in
    #[arg(
        long,
        env = "LIMINA_INSECURE_NO_AUTH",
        value_name = "true|false",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        hide_possible_values = true
    )]
    insecure_no_auth: Option<bool>,
    /// Origins of other sites whose pages may call the server from a browser, such as `https://console.example.com`
    #[arg(long, env = "LIMINA_ALLOW_ORIGIN", value_name = "ORIGIN", value_delimiter = ',')]
    allow_origin: Vec<Origin>,
}

/// How long a node counts as alive after a renewal: from one second to one minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tenure(pub(crate) Duration);

impl FromStr for Tenure {
    type Err = String;

    fn from_str(text: &str) -> Result<Tenure, String> {
        let span = text.parse::<limina_wire::duration::Duration>().map_err(|error| error.to_string())?;
        match span.millis {
            1_000..=60_000 => Ok(Tenure(Duration::from_millis(span.millis))),
            _ => Err("must be between 1s and 60s".to_owned()),
        }
    }
}

impl<'de> Deserialize<'de> for Tenure {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Tenure, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Log format: text or json.
#[derive(clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// For people to read.
    Text,
    /// One JSON object in each line.
    Json,
}

/// The configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    listen: Option<Listen>,
    tls_cert: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    tls_client_ca: Option<PathBuf>,
    data: Option<PathBuf>,
    store: Option<String>,
    peer_listen: Option<Listen>,
    advertise: Option<String>,
    tenure: Option<Tenure>,
    log_format: Option<LogFormat>,
    log: Option<String>,
    shards: Option<u16>,
    journal_segment_mib: Option<u64>,
    journal_mib: Option<u64>,
    checkpoint_mib: Option<u64>,
    memory_mib: Option<u64>,
    storage_reserve_mib: Option<u64>,
    max_wait_ms: Option<u64>,
    rules: Option<PathBuf>,
    envoy_config: Option<PathBuf>,
    envoy_listen: Option<Listen>,
    /// Settings of single domains of Envoy.
    #[serde(default)]
    envoy: BTreeMap<String, EnvoyDomain>,
    tokens: Option<PathBuf>,
    audit_days: Option<u64>,
    insecure_no_auth: Option<bool>,
    #[serde(default)]
    allow_origin: Vec<String>,
    #[serde(default)]
    quotas: Quotas,
}

/// The settings of one domain of Envoy.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EnvoyDomain {
    count_refused: CountRefusedWord,
}

/// Which refused hits count: see [`CountRefused`].
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum CountRefusedWord {
    Explicit,
    Always,
    Never,
}

impl From<CountRefusedWord> for CountRefused {
    fn from(word: CountRefusedWord) -> CountRefused {
        match word {
            CountRefusedWord::Explicit => CountRefused::Explicit,
            CountRefusedWord::Always => CountRefused::Always,
            CountRefusedWord::Never => CountRefused::Never,
        }
    }
}

/// The settings in effect.
#[derive(PartialEq)]
#[cfg_attr(test, derive(Debug))]
pub(crate) struct Config {
    pub(crate) listen: Listen,
    /// The files of TLS for clients; `None` means no TLS.
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) data: PathBuf,
    /// The URL of a shared store; `None` means the directory `data`.
    pub(crate) store: Option<String>,
    /// Where other nodes connect; `None` without a shared store.
    pub(crate) peer_listen: Option<Listen>,
    pub(crate) advertise: Option<String>,
    pub(crate) tenure: Duration,
    pub(crate) log_format: LogFormat,
    pub(crate) log: String,
    pub(crate) shards: Option<u16>,
    pub(crate) journal_segment_mib: u64,
    pub(crate) journal_mib: u64,
    pub(crate) checkpoint_mib: u64,
    /// The memory budget; `None` means a part of what the system allows.
    pub(crate) memory_mib: Option<u64>,
    pub(crate) storage_reserve_mib: Option<u64>,
    pub(crate) max_wait: Duration,
    pub(crate) rules: Option<PathBuf>,
    pub(crate) envoy_config: Option<PathBuf>,
    pub(crate) envoy_listen: Option<Listen>,
    /// Which refused hits count, for the domains that say so.
    pub(crate) envoy_count_refused: BTreeMap<String, CountRefused>,
    pub(crate) tokens: Option<PathBuf>,
    /// How long the audit is kept.
    pub(crate) audit_kept: Duration,
    /// Whether a server without tokens may listen on any address.
    pub(crate) insecure_no_auth: bool,
    pub(crate) allow_origin: Vec<Origin>,
    pub(crate) quotas: QuotaTable,
}

/// Why the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("reading the configuration file {path}")]
    Read {
        path: String,
        #[source]
        source: std::io::Error,
    },
    #[error("the configuration file {path} is not valid: {detail}")]
    Parse { path: String, detail: String },
    #[error("the configuration file {path}: {key} must be between {min} and {max}")]
    Range { path: String, key: &'static str, min: u64, max: u64 },
    #[error(
        "--data and --store exclude each other: a node keeps its data in a directory, or in a shared store"
    )]
    DataAndStore,
    #[error("{flag} needs --store: it is for nodes that share a store")]
    WithoutStore { flag: &'static str },
    #[error("--tls-cert and --tls-key need each other: a certificate is of no use without its key")]
    CertOrKeyMissing,
    #[error("--tls-client-ca needs --tls-cert and --tls-key: without TLS no client shows a certificate")]
    ClientCaWithoutTls,
    #[error("--insecure-no-auth and --tokens exclude each other: clients need a token, or they do not")]
    TokensAndInsecure,
    #[error("--envoy-listen needs --envoy-config: without limits there is nothing to serve there")]
    EnvoyListenWithoutConfig,
    #[error("allow_origin")]
    Origin(#[from] InvalidOrigin),
}

impl ServeArgs {
    /// Combines flags and environment with the file and the defaults.
    pub(crate) fn resolve(self) -> Result<Config, ConfigError> {
        let file = match &self.config {
            Some(path) => File::read(path)?,
            None => File::default(),
        };
        let (data, store) = (self.data.or(file.data), self.store.or(file.store));
        let advertise = self.advertise.or(file.advertise);
        if data.is_some() && store.is_some() {
            return Err(ConfigError::DataAndStore);
        }
        let peer_listen = self.peer_listen.or(file.peer_listen);
        let tenure = self.tenure.or(file.tenure);
        for (flag, is_given) in [
            ("--advertise", advertise.is_some()),
            ("--peer-listen", peer_listen.is_some()),
            ("--tenure", tenure.is_some()),
        ] {
            if is_given && store.is_none() {
                return Err(ConfigError::WithoutStore { flag });
            }
        }
        let listen = self.listen.or(file.listen).unwrap_or_default();
        let peer_listen = peer_listen.or_else(|| Some(listen.with_port(PEER_PORT)));
        let tls = tls_files(
            self.tls_cert.or(file.tls_cert),
            self.tls_key.or(file.tls_key),
            self.tls_client_ca.or(file.tls_client_ca),
        )?;
        let tokens = self.tokens.or(file.tokens);
        let insecure_no_auth = self.insecure_no_auth.or(file.insecure_no_auth).unwrap_or(false);
        if tokens.is_some() && insecure_no_auth {
            return Err(ConfigError::TokensAndInsecure);
        }
        let envoy_config = self.envoy_config.or(file.envoy_config);
        let envoy_listen = self.envoy_listen.or(file.envoy_listen);
        if envoy_listen.is_some() && envoy_config.is_none() {
            return Err(ConfigError::EnvoyListenWithoutConfig);
        }
        let envoy_count_refused =
            file.envoy.into_iter().map(|(domain, envoy)| (domain, envoy.count_refused.into())).collect();
        let allow_origin = match self.allow_origin.is_empty() {
            true => file.allow_origin.iter().map(|text| text.parse()).collect::<Result<_, _>>()?,
            false => self.allow_origin,
        };
        Ok(Config {
            listen,
            tls,
            peer_listen: peer_listen.filter(|_| store.is_some()),
            data: data.unwrap_or_else(|| PathBuf::from("./limina-data")),
            store,
            advertise,
            tenure: tenure.map_or(Duration::from_secs(5), |tenure| tenure.0),
            log_format: self.log_format.or(file.log_format).unwrap_or(LogFormat::Text),
            log: self.log.or(file.log).unwrap_or_else(|| "info".into()),
            shards: self.shards.or(file.shards),
            journal_segment_mib: self.journal_segment_mib.or(file.journal_segment_mib).unwrap_or(64),
            journal_mib: self.journal_mib.or(file.journal_mib).unwrap_or(1024),
            checkpoint_mib: self.checkpoint_mib.or(file.checkpoint_mib).unwrap_or(64),
            memory_mib: self.memory_mib.or(file.memory_mib),
            storage_reserve_mib: self.storage_reserve_mib.or(file.storage_reserve_mib),
            max_wait: Duration::from_millis(self.max_wait_ms.or(file.max_wait_ms).unwrap_or(250)),
            rules: self.rules.or(file.rules),
            envoy_config,
            envoy_listen,
            envoy_count_refused,
            tokens,
            audit_kept: Duration::from_secs(self.audit_days.or(file.audit_days).unwrap_or(400) * 86_400),
            insecure_no_auth,
            allow_origin,
            quotas: file.quotas.into_table(),
        })
    }
}

fn tls_files(
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    client_ca: Option<PathBuf>,
) -> Result<Option<TlsFiles>, ConfigError> {
    match (cert, key) {
        (Some(cert), Some(key)) => Ok(Some(TlsFiles { cert, key, client_ca })),
        (None, None) if client_ca.is_some() => Err(ConfigError::ClientCaWithoutTls),
        (None, None) => Ok(None),
        _ => Err(ConfigError::CertOrKeyMissing),
    }
}

impl File {
    fn read(path: &std::path::Path) -> Result<File, ConfigError> {
        let name = || path.display().to_string();
        let text =
            std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: name(), source })?;
        let file: File =
            secret_file::parse(&text).map_err(|detail| ConfigError::Parse { path: name(), detail })?;
        let check = |key, value: Option<u64>, min, max| match value {
            Some(value) if !(min..=max).contains(&value) => {
                Err(ConfigError::Range { path: name(), key, min, max })
            }
            _ => Ok(()),
        };
        check("shards", file.shards.map(u64::from), 1, 4096)?;
        check("journal_segment_mib", file.journal_segment_mib, 1, 1024)?;
        check("journal_mib", file.journal_mib, 1, 1_048_576)?;
        check("checkpoint_mib", file.checkpoint_mib, 1, 65_536)?;
        check("audit_days", file.audit_days, 1, 36_500)?;
        check("max_wait_ms", file.max_wait_ms, 1, 60_000)?;
        check("memory_mib", file.memory_mib, 64, 16_777_216)?;
        check("storage_reserve_mib", file.storage_reserve_mib, 0, 1_048_576)?;
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_come_before_the_file_and_the_file_before_defaults() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("limina.toml");
        std::fs::write(&path, "listen = \"127.0.0.1:1\"\ndata = \"/from/file\"\nlog_format = \"json\"")
            .unwrap();
        let args = ServeArgs {
            listen: Some("127.0.0.1:2".parse().unwrap()),
            config: Some(path),
            ..ServeArgs::default()
        };
        let config = args.resolve().unwrap();
        assert_eq!(config.listen, "127.0.0.1:2".parse().unwrap());
        assert_eq!(config.data, PathBuf::from("/from/file"));
        assert_eq!((config.log_format, config.journal_segment_mib), (LogFormat::Json, 64));
    }

    #[test]
    fn settings_that_exclude_each_other_are_refused() {
        #[track_caller]
        fn check(data: bool, store: bool, advertise: bool, expect: Option<&str>) {
            let args = ServeArgs {
                data: data.then(|| "somewhere".into()),
                store: store.then(|| "postgres://somewhere".into()),
                advertise: advertise.then(|| "somewhere:7070".into()),
                ..ServeArgs::default()
            };
            let refused = args.resolve().err().map(|error| error.to_string());
            assert_eq!(refused.is_some(), expect.is_some(), "{refused:?}");
            assert!(refused.unwrap_or_default().starts_with(expect.unwrap_or_default()));
        }
        check(true, false, false, None);
        check(false, true, true, None);
        check(true, true, false, Some("--data and --store exclude each other"));
        check(false, false, true, Some("--advertise needs --store"));
        check(true, false, true, Some("--advertise needs --store"));
    }

    #[test]
    fn other_nodes_have_a_port_of_their_own() {
        #[track_caller]
        fn check(store: bool, peer_listen: Option<&str>, expect: Result<Option<&str>, &str>) {
            let args = ServeArgs {
                listen: Some("10.0.0.1:80".parse().unwrap()),
                store: store.then(|| "postgres://somewhere".into()),
                peer_listen: peer_listen.map(|text| text.parse().unwrap()),
                ..ServeArgs::default()
            };
            let found = args.resolve().map(|config| config.peer_listen.map(|listen| listen.to_string()));
            let found = found.map_err(|error| error.to_string());
            match (&found, expect) {
                (Ok(found), Ok(expect)) => assert_eq!(found.as_deref(), expect),
                (Err(found), Err(expect)) => assert!(found.starts_with(expect), "{found}"),
                _ => panic!("{found:?}"),
            }
        }
        check(false, None, Ok(None));
        check(true, None, Ok(Some("10.0.0.1:7071")));
        check(true, Some(":9"), Ok(Some(":9")));
        check(false, Some(":9"), Err("--peer-listen needs --store"));
    }

    /// A flag or the environment comes before the file, and what is neither `true` nor `false` is refused.
    #[test]
    fn everybody_is_let_in_only_if_that_is_said() {
        #[derive(clap::Parser)]
        struct Serve {
            #[command(flatten)]
            args: ServeArgs,
        }
        fn check(flag: Option<&str>, file: &str, expect: Option<bool>) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("limina.toml");
            std::fs::write(&path, file).unwrap();
            let args = ["serve", "--config", path.to_str().unwrap()].into_iter().chain(flag);
            let found = <Serve as clap::Parser>::try_parse_from(args)
                .ok()
                .map(|serve| serve.args.resolve().unwrap().insecure_no_auth);
            assert_eq!(found, expect, "{flag:?} and {file:?}");
        }
        check(None, "", Some(false));
        check(None, "insecure_no_auth = true", Some(true));
        check(Some("--insecure-no-auth"), "", Some(true));
        check(Some("--insecure-no-auth=true"), "insecure_no_auth = false", Some(true));
        check(Some("--insecure-no-auth=false"), "insecure_no_auth = true", Some(false));
        for typo in ["never", "disabled", "nein", " false", "", "1"] {
            check(Some(&format!("--insecure-no-auth={typo}")), "", None);
        }
    }

    #[test]
    fn a_certificate_needs_its_key() {
        #[track_caller]
        fn check(cert: bool, key: bool, client_ca: bool, expect: Option<&str>) {
            let args = ServeArgs {
                tls_cert: cert.then(|| "cert.pem".into()),
                tls_key: key.then(|| "key.pem".into()),
                tls_client_ca: client_ca.then(|| "ca.pem".into()),
                ..ServeArgs::default()
            };
            let refused = args.resolve().err().map(|error| error.to_string());
            assert_eq!(refused.is_some(), expect.is_some(), "{refused:?}");
            assert!(refused.unwrap_or_default().starts_with(expect.unwrap_or_default()));
        }
        check(true, true, false, None);
        check(true, true, true, None);
        check(true, false, false, Some("--tls-cert and --tls-key need each other"));
        check(false, true, true, Some("--tls-cert and --tls-key need each other"));
        check(false, false, true, Some("--tls-client-ca needs --tls-cert"));
    }

    #[test]
    fn a_typo_in_the_file_is_an_error() {
        #[track_caller]
        fn check(text: &str, expect: &str) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("limina.toml");
            std::fs::write(&path, text).unwrap();
            let error = ServeArgs { config: Some(path), ..ServeArgs::default() }.resolve().unwrap_err();
            let text = crate::chain(&error);
            assert!(text.contains(expect), "{text}");
        }
        check("lisen = \"127.0.0.1:1\"", "lisen");
        check("listen = \"nowhere\"", "must be HOST:PORT");
        check("journal_segment_mib = 0", "journal_segment_mib must be between 1 and 1024");
        check("[quotas]\nlimits = 1", "unknown quota `limits`");
        check("[quotas.\"shop-*\"]\nrules = -1", "a whole number from 0 on, or \"unlimited\"");
        check("[envoy.edge]\ncount_refused = \"sometimes\"", "unknown variant `sometimes`");
        check("envoy_listen = \":8081\"", "--envoy-listen needs --envoy-config");
        check("max_wait_ms = 60001", "max_wait_ms must be between 1 and 60000");
        check("tokens = \"t\"\ninsecure_no_auth = true", "exclude each other");
        check("allow_origin = [\"example.com\"]", "\"example.com\" is not an origin");
        check("memory_mib = 63", "memory_mib must be between 64 and 16777216");
        check("storage_reserve_mib = 1048577", "storage_reserve_mib must be between 0 and 1048576");
    }
}
