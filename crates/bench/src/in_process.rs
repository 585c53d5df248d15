//! Limina without a front end: engine, shard, journal and table.

use crate::{Failed, load::Contender};
use limina_engine::{Command, KeyValues, Name, Outcome, Request, key_values::Value};
use limina_node::{Metrics, Node, NodeOptions, Service};
use limina_store::embedded::{Embedded, EmbeddedOptions};
use std::{fmt, path::Path, sync::Arc};

pub(crate) struct InProcess {
    service: Service,
    node: Node,
    store: Arc<Embedded>,
}

impl InProcess {
    pub(crate) async fn start(directory: &Path) -> Result<InProcess, Failed> {
        let store = Arc::new(Embedded::open(&directory.join("data"), EmbeddedOptions::default())?);
        let metrics = Metrics::new();
        let service = Service::new(metrics.clone());
        let (sharding, journal, table) = (store.sharding(), store.clone(), store.clone());
        let node =
            Node::start(service.clone(), metrics, journal, table, sharding, NodeOptions::default()).await?;
        Ok(InProcess { service, node, store })
    }
}

impl Contender for InProcess {
    type Client = Caller;

    async fn connect(&self) -> Result<Caller, Failed> {
        Ok(Caller(self.service.clone()))
    }

    fn process(&self) -> Option<u32> {
        None
    }

    async fn stop(self) -> Result<(), Failed> {
        self.node.stop().await;
        self.store.close().await?;
        Ok(())
    }
}

/// A client of the node in this process.
#[derive(Clone)]
pub(crate) struct Caller(Service);

impl Caller {
    /// Sends a command to the namespace `default`, in which everything happens.
    pub(crate) async fn submit(&self, command: Command) -> Result<Outcome, Failed> {
        let request = Request::new(name("default"), command);
        Ok(self.0.submit(request).await?)
    }
}

/// The failure of a command with an outcome that it never should have.
pub(crate) fn unexpected(outcome: impl fmt::Debug) -> Failed {
    format!("an unexpected outcome: {outcome:?}").into()
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).expect("a valid name")
}

/// Key-values whose values are all strings.
pub(crate) fn key_values<K: AsRef<str>, V: AsRef<str>>(pairs: impl IntoIterator<Item = (K, V)>) -> KeyValues {
    let pairs = pairs.into_iter().map(|(key, value)| (key, Value::String(value)));
    KeyValues::new(pairs.collect()).expect("valid key-values")
}
