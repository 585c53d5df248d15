//! Splits a URL that names several servers into one configuration for each.

use crate::StoreError;
use tokio_postgres::{Config, config::Host};

/// The same configuration for each host alone. With all hosts in one configuration, a host that accepts a connection
/// and then hangs would prevent the others from being tried.
pub(super) fn each(config: &Config) -> Result<Vec<Config>, StoreError> {
    let hosts = count(config);
    let lengths = [config.get_hosts().len(), config.get_hostaddrs().len()];
    let ports = config.get_ports().len();
    if hosts == 0 || lengths.iter().any(|&length| length != 0 && length != hosts) {
        return Err(StoreError::Unusable(
            "the URL must name the database's host, or all its hosts".to_string(),
        ));
    }
    if ports > 1 && ports != hosts {
        return Err(StoreError::Unusable(format!("the URL names {hosts} hosts and {ports} ports")));
    }
    Ok((0..hosts).map(|host| alone(config, host)).collect())
}

fn count(config: &Config) -> usize {
    config.get_hosts().len().max(config.get_hostaddrs().len())
}

fn port(config: &Config, host: usize) -> u16 {
    let ports = config.get_ports();
    ports.get(host).or(ports.first()).copied().unwrap_or(5432)
}

fn alone(config: &Config, host: usize) -> Config {
    let mut alone = Config::new();
    alone.port(port(config, host)).keepalives(config.get_keepalives());
    alone.ssl_mode(config.get_ssl_mode()).ssl_negotiation(config.get_ssl_negotiation());
    alone.channel_binding(config.get_channel_binding());
    match config.get_hosts().get(host) {
        Some(Host::Tcp(name)) => alone.host(name),
        Some(Host::Unix(path)) => alone.host_path(path),
        None => &mut alone,
    };
    if let Some(address) = config.get_hostaddrs().get(host) {
        alone.hostaddr(*address);
    }
    if let Some(user) = config.get_user() {
        alone.user(user);
    }
    if let Some(password) = config.get_password() {
        alone.password(password);
    }
    if let Some(database) = config.get_dbname() {
        alone.dbname(database);
    }
    if let Some(options) = config.get_options() {
        alone.options(options);
    }
    alone
}

/// The address of the database for messages, without the password.
pub(super) fn location(config: &Config) -> String {
    let location = |host: usize| match (config.get_hosts().get(host), config.get_hostaddrs().get(host)) {
        (Some(Host::Tcp(name)), _) => format!("{name}:{}", port(config, host)),
        (Some(Host::Unix(path)), _) => format!("{}:{}", path.display(), port(config, host)),
        (None, Some(address)) => format!("{address}:{}", port(config, host)),
        (None, None) => unreachable!("there are as many"),
    };
    let locations: Vec<String> = (0..count(config)).map(location).collect();
    let database = config.get_dbname().or(config.get_user()).unwrap_or("postgres");
    format!("PostgreSQL at {}, database {database}", locations.join(" and "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the addresses of all hosts together, and of each alone.
    #[track_caller]
    fn check(url: &str, all: &str, alone: &[&str]) {
        let config: Config = url.parse().expect("a URL");
        assert_eq!(location(&config), all);
        let each: Vec<String> = each(&config).expect("it names hosts").iter().map(location).collect();
        assert_eq!(each, alone);
    }

    #[track_caller]
    fn refused(url: &str, words: &str) {
        let error = each(&url.parse().expect("a URL")).expect_err("it cannot be used").to_string();
        assert!(error.contains(words), "{error:?} lacks {words:?}");
    }

    #[test]
    fn each_host_is_asked_alone() {
        let one = "PostgreSQL at db:5432, database limina";
        check("postgres://me@db/limina", one, &[one]);
        check(
            "postgres://me@a,b:5433/limina?target_session_attrs=read-write",
            "PostgreSQL at a:5432 and b:5433, database limina",
            &["PostgreSQL at a:5432, database limina", "PostgreSQL at b:5433, database limina"],
        );
        check(
            "host=a,/run user=me port=6000",
            "PostgreSQL at a:6000 and /run:6000, database me",
            &["PostgreSQL at a:6000, database me", "PostgreSQL at /run:6000, database me"],
        );
        check(
            "hostaddr=127.0.0.1,::1 dbname=limina",
            "PostgreSQL at 127.0.0.1:5432 and ::1:5432, database limina",
            &["PostgreSQL at 127.0.0.1:5432, database limina", "PostgreSQL at ::1:5432, database limina"],
        );
        refused("user=me", "must name");
        refused("host=a,b hostaddr=127.0.0.1", "must name");
        refused("host=a,b,c port=1,2", "3 hosts and 2 ports");
    }

    #[test]
    fn each_host_is_asked_alike() {
        let config: Config = "host=a,b user=me password=secret dbname=limina options=-cjit=off keepalives=0 \
                              sslmode=require channel_binding=require"
            .parse()
            .expect("a URL");
        for alone in each(&config).expect("it names hosts") {
            assert_eq!(alone.get_user(), config.get_user());
            assert_eq!(alone.get_password(), config.get_password());
            assert_eq!(alone.get_dbname(), config.get_dbname());
            assert_eq!(alone.get_options(), config.get_options());
            assert_eq!(alone.get_keepalives(), config.get_keepalives());
            assert_eq!(alone.get_ssl_mode(), config.get_ssl_mode());
            assert_eq!(alone.get_channel_binding(), config.get_channel_binding());
        }
    }
}
