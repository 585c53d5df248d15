//! The settings in effect. A flag comes before the environment, the environment before the configuration file, and the file before the
//! default.

use crate::{
    listen::Listen,
    settings::{BoundedInteger, FileError, LogFormat, Settings},
};
use limina_engine::QuotaTable;
use limina_envoy::CountRefused;
use limina_server::{Origin, TlsFiles};
use std::{collections::BTreeMap, path::PathBuf, time::Duration};

/// The port for other nodes.
const PEER_PORT: u16 = 7071;

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
    pub(crate) shards: Option<u64>,
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
    #[error(transparent)]
    File(#[from] FileError),
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
}

impl Config {
    /// Combines flags and environment with the file and the defaults.
    pub(crate) fn new(flags: Settings) -> Result<Config, ConfigError> {
        let settings = match &flags.config {
            Some(path) => {
                let file = Settings::read(path)?;
                flags.or(file)
            }
            None => flags,
        };
        settings.check()?;
        let listen = settings.listen.unwrap_or_default();
        let peer_listen = settings.peer_listen.unwrap_or_else(|| listen.with_port(PEER_PORT));
        let envoy = settings.envoy.unwrap_or_default().into_iter();
        Ok(Config {
            listen,
            tls: tls_files(settings.tls_cert, settings.tls_key, settings.tls_client_ca)?,
            peer_listen: settings.store.is_some().then_some(peer_listen),
            data: settings.data.unwrap_or_else(|| PathBuf::from("./limina-data")),
            store: settings.store,
            advertise: settings.advertise,
            tenure: settings.tenure.map_or(Duration::from_secs(5), |tenure| tenure.0),
            log_format: settings.log_format.unwrap_or(LogFormat::Text),
            log: settings.log.unwrap_or_else(|| "info".into()),
            shards: settings.shards.map(BoundedInteger::get),
            journal_segment_mib: settings.journal_segment_mib.map_or(64, BoundedInteger::get),
            journal_mib: settings.journal_mib.map_or(1024, BoundedInteger::get),
            checkpoint_mib: settings.checkpoint_mib.map_or(64, BoundedInteger::get),
            memory_mib: settings.memory_mib.map(BoundedInteger::get),
            storage_reserve_mib: settings.storage_reserve_mib.map(BoundedInteger::get),
            max_wait: Duration::from_millis(settings.max_wait_ms.map_or(250, BoundedInteger::get)),
            rules: settings.rules,
            envoy_config: settings.envoy_config,
            envoy_listen: settings.envoy_listen,
            envoy_count_refused: envoy.map(|(domain, envoy)| (domain, envoy.count_refused.into())).collect(),
            tokens: settings.tokens,
            audit_kept: Duration::from_secs(settings.audit_days.map_or(400, BoundedInteger::get) * 86_400),
            insecure_no_auth: settings.insecure_no_auth.unwrap_or(false),
            allow_origin: settings.allow_origin.unwrap_or_default(),
            quotas: settings.quotas.unwrap_or_default().into_table(),
        })
    }
}

impl Settings {
    /// Refuses settings that exclude or need each other.
    fn check(&self) -> Result<(), ConfigError> {
        if self.data.is_some() && self.store.is_some() {
            return Err(ConfigError::DataAndStore);
        }
        for (flag, is_given) in [
            ("--advertise", self.advertise.is_some()),
            ("--peer-listen", self.peer_listen.is_some()),
            ("--tenure", self.tenure.is_some()),
        ] {
            if is_given && self.store.is_none() {
                return Err(ConfigError::WithoutStore { flag });
            }
        }
        if self.tokens.is_some() && self.insecure_no_auth == Some(true) {
            return Err(ConfigError::TokensAndInsecure);
        }
        if self.envoy_listen.is_some() && self.envoy_config.is_none() {
            return Err(ConfigError::EnvoyListenWithoutConfig);
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_override_the_file_and_the_file_overrides_defaults() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("limina.toml");
        std::fs::write(&path, "listen = \"127.0.0.1:1\"\ndata = \"/from/file\"\nlog_format = \"json\"")
            .unwrap();
        let args = Settings {
            listen: Some("127.0.0.1:2".parse().unwrap()),
            config: Some(path),
            ..Settings::default()
        };
        let config = Config::new(args).unwrap();
        assert_eq!(config.listen, "127.0.0.1:2".parse().unwrap());
        assert_eq!(config.data, PathBuf::from("/from/file"));
        assert_eq!((config.log_format, config.journal_segment_mib), (LogFormat::Json, 64));
    }

    #[test]
    fn settings_that_exclude_each_other_are_refused() {
        #[track_caller]
        fn check(data: bool, store: bool, advertise: bool, expect: Option<&str>) {
            let args = Settings {
                data: data.then(|| "somewhere".into()),
                store: store.then(|| "postgres://somewhere".into()),
                advertise: advertise.then(|| "somewhere:7070".into()),
                ..Settings::default()
            };
            let refused = Config::new(args).err().map(|error| error.to_string());
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
    fn peers_have_their_own_port() {
        #[track_caller]
        fn check(store: bool, peer_listen: Option<&str>, expect: Result<Option<&str>, &str>) {
            let args = Settings {
                listen: Some("10.0.0.1:80".parse().unwrap()),
                store: store.then(|| "postgres://somewhere".into()),
                peer_listen: peer_listen.map(|text| text.parse().unwrap()),
                ..Settings::default()
            };
            let found = Config::new(args).map(|config| config.peer_listen.map(|listen| listen.to_string()));
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

    /// A flag or the environment overrides the file. A value other than `true` and `false` is refused.
    #[test]
    fn serving_without_tokens_must_be_explicit() {
        #[derive(clap::Parser)]
        struct Serve {
            #[command(flatten)]
            args: Settings,
        }
        fn check(flag: Option<&str>, file: &str, expect: Option<bool>) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("limina.toml");
            std::fs::write(&path, file).unwrap();
            let args = ["serve", "--config", path.to_str().unwrap()].into_iter().chain(flag);
            let found = <Serve as clap::Parser>::try_parse_from(args)
                .ok()
                .map(|serve| Config::new(serve.args).unwrap().insecure_no_auth);
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
            let args = Settings {
                tls_cert: cert.then(|| "cert.pem".into()),
                tls_key: key.then(|| "key.pem".into()),
                tls_client_ca: client_ca.then(|| "ca.pem".into()),
                ..Settings::default()
            };
            let refused = Config::new(args).err().map(|error| error.to_string());
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
            let error = Config::new(Settings { config: Some(path), ..Settings::default() }).unwrap_err();
            let text = crate::chain(&error);
            assert!(text.contains(expect), "{text}");
        }
        check("lisen = \"127.0.0.1:1\"", "lisen");
        check("listen = \"nowhere\"", "must be HOST:PORT");
        check("journal_segment_mib = 0", "journal_segment_mib: must be between 1 and 1024");
        check("[quotas]\nlimits = 1", "unknown quota `limits`");
        check("[quotas.\"shop-*\"]\nrules = -1", "a whole number from 0 on, or \"unlimited\"");
        check("[envoy.edge]\ncount_refused = \"sometimes\"", "unknown variant `sometimes`");
        check("envoy_listen = \":8081\"", "--envoy-listen needs --envoy-config");
        check("max_wait_ms = 60001", "max_wait_ms: must be between 1 and 60000");
        check("tokens = \"t\"\ninsecure_no_auth = true", "exclude each other");
        check("allow_origin = [\"example.com\"]", "\"example.com\" is not an origin");
        check("memory_mib = 63", "memory_mib: must be between 64 and 16777216");
        check("storage_reserve_mib = 1048577", "storage_reserve_mib: must be between 0 and 1048576");
    }
}
