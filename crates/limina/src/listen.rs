//! The address on which the server listens.

use serde::Deserialize;
use std::{
    fmt,
    io::{self, ErrorKind},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    str::FromStr,
};
use tokio::net::TcpListener;

/// `HOST:PORT`: an address, or a name that stands for one. Without a host, all addresses of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listen(String);

impl Default for Listen {
    fn default() -> Listen {
        Listen("127.0.0.1:7070".to_owned())
    }
}

impl FromStr for Listen {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Listen, &'static str> {
        let is_address = text.parse::<SocketAddr>().is_ok();
        let is_name = text.rsplit_once(':').is_some_and(|(host, port)| {
            port.parse::<u16>().is_ok()
                && !host.contains([':', '[', ']', '/'])
                && !host.contains(char::is_whitespace)
        });
        match is_address || is_name {
            true => Ok(Listen(text.to_owned())),
            false => Err("must be HOST:PORT, for example 127.0.0.1:7070, localhost:7070 or :7070"),
        }
    }
}

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Listen, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Listen {
    /// The same host, with another port.
    pub(crate) fn with_port(&self, port: u16) -> Listen {
        let host = self.0.rsplit_once(':').map_or("", |(host, _)| host);
        Listen(format!("{host}:{port}"))
    }

    /// Listens. A name may stand for several addresses: the first one that can be used is taken.
    pub(crate) async fn bind(&self) -> io::Result<TcpListener> {
        let Some(port) = self.0.strip_prefix(':').and_then(|port| port.parse::<u16>().ok()) else {
            return TcpListener::bind(&self.0).await;
        };
        // A socket for IPv6 also accepts IPv4. A machine without IPv6 has only the other one.
        match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
            Err(error) if error.kind() != ErrorKind::AddrInUse => {
                TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await
            }
            bound => bound,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_or_an_address_and_a_port() {
        #[track_caller]
        fn check(text: &str, expect: bool) {
            assert_eq!(text.parse::<Listen>().is_ok(), expect, "{text:?}");
        }
        check("127.0.0.1:7070", true);
        check("[::1]:7070", true);
        check("localhost:7070", true);
        check(":7070", true);
        check("7070", false);
        check("localhost", false);
        check("localhost:", false);
        check("localhost:70700", false);
        check("::1:7070", false);
        check("http://localhost:7070", false);
        check("two words:7070", false);
        check("", false);
    }

    #[test]
    fn another_port_keeps_the_host() {
        #[track_caller]
        fn check(text: &str, expect: &str) {
            assert_eq!(text.parse::<Listen>().unwrap().with_port(7071).to_string(), expect);
        }
        check("127.0.0.1:7070", "127.0.0.1:7071");
        check("[::1]:7070", "[::1]:7071");
        check("localhost:80", "localhost:7071");
        check(":7070", ":7071");
    }

    #[tokio::test]
    async fn names_and_bare_ports_can_be_bound() {
        let bound = async |text: &str| {
            let listener = text.parse::<Listen>().unwrap().bind().await.unwrap();
            listener.local_addr().unwrap().ip()
        };
        assert!(bound("localhost:0").await.is_loopback());
        assert!(bound(":0").await.is_unspecified());
    }
}
