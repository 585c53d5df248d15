//! The client: one object for a server and a namespace.

use crate::{
    Breaker, Call, Check, Counters, Decide, Decisions, Events, Lease, Leases, Ledger, Lock, Locks, Overrides,
    Pages, Refusals, RuleSets, Rules, Server, Wait,
    batch::Queues,
    breaker::Circuit,
    error::{Error, Result},
    transport::{Budget, FOREVER, Scope, Transport},
    types::{AuditRecord, Keys, Namespace},
};
use reqwest::{Method, header::HeaderValue};
use std::{sync::Arc, time::Duration};

/// A client of one server and one namespace. Clones are cheap, and share connections, batches and the budget of retries.
#[derive(Clone)]
pub struct Limina {
    scope: Scope,
}

/// The settings of a [`Limina`].
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder {
    url: String,
    token: Option<String>,
    namespace: String,
    timeout: Duration,
    retries: u32,
    breaker: Option<Breaker>,
    http: Option<reqwest::Client>,
    #[cfg(feature = "tls")]
    tls: crate::tls::Settings,
}

impl Builder {
    /// The token, if the server has tokens. White space around it is removed, and a blank token is none.
    pub fn token(mut self, token: impl Into<String>) -> Builder {
        self.token = Some(token.into());
        self
    }

    /// The namespace. Default: `default`.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Builder {
        self.namespace = namespace.into();
        self
    }

    /// How long one attempt may take. A request that waits at the server has this much more than its wait. Default: 2 s.
    pub fn timeout(mut self, timeout: Duration) -> Builder {
        self.timeout = timeout.min(FOREVER);
        self
    }

    /// How often a failed request is repeated, where that is safe. Default: 2.
    pub fn retries(mut self, retries: u32) -> Builder {
        self.retries = retries;
        self
    }

    /// For checks: if they get no answer, the client stops asking for a second, and fails them at once. `None` switches this off.
    pub fn breaker(mut self, breaker: impl Into<Option<Breaker>>) -> Builder {
        self.breaker = breaker.into();
        self
    }

    /// Trusts the authorities of these certificates (PEM), and no others. Default: the system's certificates, or those of the
    /// file that the variable `SSL_CERT_FILE` names.
    #[cfg(feature = "tls")]
    pub fn root_certificates(mut self, pem: impl Into<Vec<u8>>) -> Builder {
        self.tls.roots = pem.into();
        self
    }

    /// The certificate of this client with its chain, and its key (both PEM): for a server that asks for client certificates.
    #[cfg(feature = "tls")]
    pub fn client_certificate(mut self, chain: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Builder {
        self.tls.identity = Some((chain.into(), key.into()));
        self
    }

    /// An HTTP client of your own: for a proxy, say. It must not repeat requests and not follow redirections.
    pub fn http(mut self, http: reqwest::Client) -> Builder {
        self.http = Some(http);
        self
    }

    /// Makes the client. Nothing is sent yet.
    pub fn build(self) -> Result<Limina> {
        let url = reqwest::Url::parse(&self.url)
            .map_err(|error| Error::invalid(format!("the URL is not valid: {error}")))?;
        if !["http", "https"].contains(&url.scheme()) {
            return Err(Error::invalid("the URL must begin with http:// or https://"));
        }
        // Limina has tokens and no passwords.
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Error::invalid("the URL must not contain a user or a password"));
        }
        let token = self.token.as_deref().map(str::trim).filter(|token| !token.is_empty()).map(|token| {
            // `to_str` fails for characters beyond ASCII, which not every client could send.
            let mut header = HeaderValue::try_from(format!("Bearer {token}"))
                .ok()
                .filter(|header| header.to_str().is_ok())
                .ok_or_else(|| Error::invalid("the token contains characters that a header cannot have"))?;
            header.set_sensitive(true);
            Ok(header)
        });
        let https = url.scheme() == "https";
        if https && cfg!(not(feature = "tls")) && self.http.is_none() {
            return Err(Error::invalid("https needs the feature `tls` of limina-client"));
        }
        let http = match self.http {
            Some(http) => http,
            None => {
                let builder = reqwest::Client::builder()
                    .retry(reqwest::retry::never())
                    .redirect(reqwest::redirect::Policy::none())
                    .connect_timeout(self.timeout)
                    .tcp_nodelay(true);
                #[cfg(feature = "tls")]
                let builder = builder.tls_backend_preconfigured(self.tls.config(https)?);
                builder.build().map_err(|error| Error::invalid(error.to_string()))?
            }
        };
        let transport = Transport {
            http,
            url: url.as_str().trim_end_matches('/').to_owned(),
            token: token.transpose()?,
            budget: Budget::full(),
            queues: Queues::default(),
            circuit: Circuit::new(self.breaker),
            #[cfg(feature = "tower")]
            undecided: crate::Undecided::default(),
        };
        Ok(Limina {
            scope: Scope {
                transport: Arc::new(transport),
                namespace: self.namespace.into(),
                timeout: self.timeout,
                retries: self.retries,
            },
        })
    }
}

impl Limina {
    /// A client with the default settings: the namespace `default`, no token, 2 s for an attempt, 2 retries.
    pub fn new(url: impl Into<String>) -> Result<Limina> {
        Limina::builder(url).build()
    }

    /// A client with other settings.
    ///
    /// ```no_run
    /// # use {limina_client::Limina, std::time::Duration};
    /// # fn example(token: String) -> Result<Limina, limina_client::Error> {
    /// let timeout = Duration::from_millis(500);
    /// Limina::builder("http://localhost:7070").token(token).namespace("shop").timeout(timeout).build()
    /// # }
    /// ```
    pub fn builder(url: impl Into<String>) -> Builder {
        Builder {
            url: url.into(),
            token: None,
            namespace: "default".to_owned(),
            timeout: Duration::from_secs(2),
            retries: 2,
            breaker: Some(Breaker::default()),
            http: None,
            #[cfg(feature = "tls")]
            tls: crate::tls::Settings::default(),
        }
    }

    /// How many requests the tower layers of this client passed or refused without a decision.
    #[cfg(feature = "tower")]
    pub fn undecided(&self) -> &crate::Undecided {
        &self.scope.transport.undecided
    }

    /// The same client in another namespace.
    pub fn with_namespace(&self, namespace: &str) -> Limina {
        Limina { scope: Scope { namespace: namespace.into(), ..self.scope.clone() } }
    }

    /// The same client with another timeout for an attempt.
    pub fn with_timeout(&self, timeout: Duration) -> Limina {
        Limina { scope: Scope { timeout: timeout.min(FOREVER), ..self.scope.clone() } }
    }

    /// The same client with another number of retries.
    pub fn with_retries(&self, retries: u32) -> Limina {
        Limina { scope: Scope { retries, ..self.scope.clone() } }
    }

    /// Takes from every limit that applies, or from none. A refusal is a value, not an error.
    pub fn check(&self, key_values: impl Into<Keys>) -> Check {
        Check::new(&self.scope, key_values)
    }

    /// Repeats a check until it is allowed, or until that cannot happen in time any more.
    pub fn wait(&self, key_values: impl Into<Keys>, at_most: Duration) -> Wait {
        Wait::new(self.check(key_values), at_most)
    }

    /// Takes from every limit that applies, and holds it until the guard is released. Fails with [`Error::Refused`].
    pub fn lease(&self, key_values: impl Into<Keys>, ttl: Duration) -> Lease {
        Lease::new(&self.scope, key_values, ttl)
    }

    /// Takes a lock. Fails with [`Error::Refused`] if somebody else has it, or asked for it earlier.
    pub fn lock(&self, key_values: impl Into<Keys>, ttl: Duration) -> Lock {
        Lock::new(&self.scope, key_values, ttl)
    }

    /// Decides over limits, holds, locks and an event at once: all of it, or nothing. Fails with [`Error::Refused`].
    pub fn decide(&self) -> Decide {
        Decide::new(&self.scope)
    }

    /// Rules of the limiter, and their overrides.
    pub fn rules(&self) -> Rules<'_> {
        Rules { scope: &self.scope }
    }

    /// The overrides of a rule.
    pub fn overrides(&self, rule: &str) -> Overrides<'_> {
        Overrides::new(&self.scope, rule)
    }

    /// Named sets of rules, each replaced whole or not at all.
    pub fn rule_sets(&self) -> RuleSets<'_> {
        RuleSets { scope: &self.scope }
    }

    /// What is in use, for exact key-values.
    pub fn counters(&self) -> Counters<'_> {
        Counters { scope: &self.scope }
    }

    /// Who holds slots of the limiter.
    pub fn leases(&self) -> Leases<'_> {
        Leases { scope: &self.scope }
    }

    /// Who holds which lock.
    pub fn locks(&self) -> Locks<'_> {
        Locks { scope: &self.scope }
    }

    /// Reserve an amount, then commit it or give it back.
    pub fn ledger(&self) -> Ledger<'_> {
        Ledger { scope: &self.scope }
    }

    /// Decisions by their id, without a guard.
    pub fn decisions(&self) -> Decisions<'_> {
        Decisions { scope: &self.scope }
    }

    /// Streams of events.
    pub fn events(&self) -> Events<'_> {
        Events { scope: &self.scope }
    }

    /// What is being refused in the namespace, as it happens: best effort, from a little before now on.
    pub fn refusals(&self) -> Refusals {
        Refusals::new(&self.scope, "/refusals/stream")
    }

    /// The management actions in the namespace, by time.
    pub fn audit(&self) -> Pages<AuditRecord> {
        Pages::get(&self.scope, "/audit")
    }

    /// What concerns the whole server: its nodes, its metrics, and lists over all namespaces.
    pub fn server(&self) -> Server<'_> {
        Server { scope: &self.scope }
    }

    /// The namespaces that the token may read.
    pub fn namespaces(&self) -> Pages<Namespace> {
        self.server().namespaces()
    }

    /// The name of the namespace of this client.
    pub fn namespace(&self) -> &str {
        &self.scope.namespace
    }

    /// Removes the namespace of this client, with all that it holds.
    pub async fn delete_namespace(&self) -> Result<()> {
        self.scope.delete("").await
    }

    /// A request that this client has no method for. The path of a family, such as `/limiter/check`, is below the namespace;
    /// paths that begin with `/v1` are whole.
    pub fn call(&self, method: Method, path: impl Into<String>) -> Call {
        self.scope.call(method, path)
    }
}
