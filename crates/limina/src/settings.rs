//! What an operator can set: once for the flags, the environment and the configuration file.

use crate::{listen::Listen, quotas::Quotas};
use limina_cli::secret_file;
use limina_envoy::CountRefused;
use limina_server::Origin;
use serde::{Deserialize, Deserializer, de::Error};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

/// Each setting is a flag, a variable of the environment, and a key of the configuration file.
macro_rules! settings {
    ($($(#[$attribute:meta])* $name:ident: $kind:ty,)*) => {
        /// The settings of `serve`. What is `None` is not set.
        #[derive(clap::Args, Deserialize, Debug, Default)]
        #[serde(default, deny_unknown_fields)]
        pub(crate) struct Settings {
            $($(#[$attribute])* pub(crate) $name: Option<$kind>,)*
        }

        impl Settings {
            /// These, and where one is not set, that of `others`.
            pub(crate) fn or(self, others: Settings) -> Settings {
                Settings { $($name: self.$name.or(others.$name),)* }
            }
        }
    };
}

settings! {
    /// Address to listen on; without a host, all addresses of the machine [default: 127.0.0.1:7070]
    #[arg(long, env = "LIMINA_LISTEN", value_name = "HOST:PORT")]
    listen: Listen,
    /// Certificate of the server (PEM, with the certificates that lead to its authority): clients then need TLS
    #[arg(long, env = "LIMINA_TLS_CERT", value_name = "FILE")]
    tls_cert: PathBuf,
    /// Private key of the certificate (PEM)
    #[arg(long, env = "LIMINA_TLS_KEY", value_name = "FILE")]
    tls_key: PathBuf,
    /// Authorities (PEM) of which every client must show a certificate
    #[arg(long, env = "LIMINA_TLS_CLIENT_CA", value_name = "FILE")]
    tls_client_ca: PathBuf,
    /// Directory for the data [default: ./limina-data]
    #[arg(long, env = "LIMINA_DATA", value_name = "DIR")]
    data: PathBuf,
    /// Shared store for several nodes, instead of the directory: the URL of a PostgreSQL database
    #[arg(long, env = "LIMINA_STORE", value_name = "URL", hide_env_values = true)]
    store: String,
    /// With a shared store: address to listen on for other nodes [default: the host of --listen, port 7071]
    #[arg(long, env = "LIMINA_PEER_LISTEN", value_name = "HOST:PORT")]
    peer_listen: Listen,
    /// With a shared store: where other nodes reach this one [default: the address of --peer-listen]
    #[arg(long, env = "LIMINA_ADVERTISE", value_name = "HOST:PORT")]
    advertise: String,
    /// Shared store: time without a renewal after which other nodes take over this node's shards [default: 5s]
    #[arg(long, env = "LIMINA_TENURE", value_name = "DURATION")]
    tenure: Tenure,
    /// Configuration file (TOML); its keys are the long names of these flags, with underscores
    #[arg(long, env = "LIMINA_CONFIG", value_name = "FILE")]
    #[serde(skip)]
    config: PathBuf,
    /// Log format: text or json
    #[arg(long, env = "LIMINA_LOG_FORMAT", value_name = "FORMAT")]
    log_format: LogFormat,
    /// What is logged: a level, or directives such as `info,limina_node=debug` [default: info]
    #[arg(long, env = "LIMINA_LOG", value_name = "FILTER")]
    log: String,
    /// Number of shards of a new data directory; it cannot be changed later [default: 64]
    #[arg(long, env = "LIMINA_SHARDS", value_name = "N")]
    shards: BoundedInteger<1, 4096>,
    /// Size of a journal segment [default: 64]
    #[arg(long, env = "LIMINA_JOURNAL_SEGMENT_MIB", value_name = "MIB")]
    journal_segment_mib: BoundedInteger<1, 1024>,
    /// Journal size that triggers a checkpoint [default: 1024]
    #[arg(long, env = "LIMINA_JOURNAL_MIB", value_name = "MIB")]
    journal_mib: BoundedInteger<1, 1_048_576>,
    /// Memory of one shard's new records that triggers a checkpoint [default: 64]
    #[arg(long, env = "LIMINA_CHECKPOINT_MIB", value_name = "MIB")]
    checkpoint_mib: BoundedInteger<1, 65_536>,
    /// Memory budget of the process [default: 60 % of what the machine, the cgroup and RLIMIT_AS allow]
    #[arg(long, env = "LIMINA_MEMORY_MIB", value_name = "MIB")]
    memory_mib: BoundedInteger<64, 16_777_216>,
    /// Free disk space below which writes are rejected (StorageFull) [default: two segments, at least 64]
    #[arg(long, env = "LIMINA_STORAGE_RESERVE_MIB", value_name = "MIB")]
    storage_reserve_mib: BoundedInteger<0, 1_048_576>,
    /// Longest time that a request may wait for its shard; what would wait longer is refused (Overloaded) [default: 250]
    #[arg(long, env = "LIMINA_MAX_WAIT_MS", value_name = "MS")]
    max_wait_ms: BoundedInteger<1, 60_000>,
    /// File of limiter rules (TOML): applied at start, and again when it changes
    #[arg(long, env = "LIMINA_RULES", value_name = "FILE")]
    rules: PathBuf,
    /// Envoy's rate limits: a YAML file of envoyproxy/ratelimit, or a directory of them; followed as it changes
    #[arg(long, env = "LIMINA_ENVOY_CONFIG", value_name = "FILE|DIR")]
    envoy_config: PathBuf,
    /// Address on which only Envoy's rate limit service is served, besides the common port
    #[arg(long, env = "LIMINA_ENVOY_LISTEN", value_name = "HOST:PORT")]
    envoy_listen: Listen,
    /// File of tokens (TOML), by which clients are let in: followed as it changes [default: loopback addresses only, no tokens]
    #[arg(long, env = "LIMINA_TOKENS", value_name = "FILE")]
    tokens: PathBuf,
    /// How long the audit is kept [default: 400]
    #[arg(long, env = "LIMINA_AUDIT_DAYS", value_name = "DAYS")]
    audit_days: BoundedInteger<1, 36_500>,
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
    insecure_no_auth: bool,
    /// Origins of other sites whose pages may call the server from a browser, such as `https://console.example.com`
    #[arg(long, env = "LIMINA_ALLOW_ORIGIN", value_name = "ORIGIN", value_delimiter = ',')]
    allow_origin: Vec<Origin>,
    /// Settings of single domains of Envoy.
    #[arg(skip)]
    envoy: BTreeMap<String, EnvoyDomain>,
    #[arg(skip)]
    quotas: Quotas,
}

/// Why the configuration file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    #[error("reading the configuration file {path}")]
    Read {
        path: String,
        #[source]
        source: std::io::Error,
    },
    #[error("the configuration file {path} is not valid: {detail}")]
    Parse { path: String, detail: String },
}

impl Settings {
    /// The settings of a configuration file.
    pub(crate) fn read(path: &Path) -> Result<Settings, FileError> {
        let name = || path.display().to_string();
        let text =
            std::fs::read_to_string(path).map_err(|source| FileError::Read { path: name(), source })?;
        secret_file::parse(&text).map_err(|detail| FileError::Parse { path: name(), detail })
    }
}

/// A whole number from `MIN` to `MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BoundedInteger<const MIN: u64, const MAX: u64>(u64);

impl<const MIN: u64, const MAX: u64> BoundedInteger<MIN, MAX> {
    pub(crate) fn get(self) -> u64 {
        self.0
    }
}

impl<const MIN: u64, const MAX: u64> TryFrom<u64> for BoundedInteger<MIN, MAX> {
    type Error = String;

    fn try_from(number: u64) -> Result<Self, String> {
        match (MIN..=MAX).contains(&number) {
            true => Ok(BoundedInteger(number)),
            false => Err(format!("must be between {MIN} and {MAX}")),
        }
    }
}

impl<const MIN: u64, const MAX: u64> FromStr for BoundedInteger<MIN, MAX> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number: u64 =
            text.parse().map_err(|_| format!("must be a whole number between {MIN} and {MAX}"))?;
        number.try_into()
    }
}

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for BoundedInteger<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        u64::deserialize(deserializer)?.try_into().map_err(Error::custom)
    }
}

/// How long a node counts as alive after a renewal: from one second to one minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tenure(pub(crate) Duration);

impl FromStr for Tenure {
    type Err = String;

    fn from_str(text: &str) -> Result<Tenure, String> {
        let span = text.parse::<limina_api::duration::Duration>().map_err(|error| error.to_string())?;
        match span.millis {
            1_000..=60_000 => Ok(Tenure(Duration::from_millis(span.millis))),
            _ => Err("must be between 1s and 60s".to_owned()),
        }
    }
}

impl<'de> Deserialize<'de> for Tenure {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Tenure, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(Error::custom)
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

/// The settings of one domain of Envoy.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EnvoyDomain {
    pub(crate) count_refused: CountRefusedWord,
}

/// Which refused hits count: see [`CountRefused`].
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CountRefusedWord {
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
