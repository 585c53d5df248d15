//! HTTP/2 without TLS: many requests on one connection, each of which can be cancelled alone.

use reqwest::Client;
use reqwest::Version;
use serde_json::Value;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

use crate::reply::Reply;

/// Longer than the longest wait of a lock. The tests never reach it.
const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(420);

/// A runtime for the requests. The tests themselves are synchronous.
pub(crate) fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

#[derive(Clone)]
pub(crate) struct Connection {
    client: Client,
    runtime: Handle,
}

impl Connection {
    /// Opens the connection with one request, which must be answered before many are sent at once.
    #[track_caller]
    pub(crate) fn open(runtime: &Runtime, url: &str) -> Connection {
        let client = Client::builder().http2_prior_knowledge().timeout(TIMEOUT).build();
        let connection =
            Connection { client: client.expect("an HTTP client"), runtime: runtime.handle().clone() };
        let response =
            runtime.block_on(async { connection.client.get(url).send().await }).expect("an answer");
        assert_eq!(response.version(), Version::HTTP_2);
        connection
    }

    pub(crate) fn post(&self, url: &str, body: &Value) -> Stream {
        let request = self.client.post(url).json(body);
        Stream { task: self.runtime.spawn(receive(request)), runtime: self.runtime.clone() }
    }

    /// For tasks of the runtime.
    pub(crate) async fn send(&self, method: &str, url: &str, body: Option<&Value>) -> Reply {
        let method = reqwest::Method::from_bytes(method.as_bytes()).expect("a method");
        let mut request = self.client.request(method, url);
        if let Some(body) = body {
            request = request.json(body);
        }
        receive(request).await.unwrap_or_else(|e| panic!("no answer from {url}: {e:?}"))
    }
}

async fn receive(request: reqwest::RequestBuilder) -> reqwest::Result<Reply> {
    let response = request.send().await?;
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    Ok(Reply::of(status, headers, response.text().await?))
}

/// A request that waits for its answer.
pub(crate) struct Stream {
    task: JoinHandle<reqwest::Result<Reply>>,
    runtime: Handle,
}

impl Stream {
    #[track_caller]
    pub(crate) fn answer(self) -> Reply {
        let reply = self.runtime.block_on(self.task).expect("the stream's task");
        reply.unwrap_or_else(|e| panic!("no answer: {e:?}"))
    }

    /// Cancels the request: the stream is reset, and the connection stays open.
    #[track_caller]
    pub(crate) fn reset(self) {
        self.task.abort();
        let ended = self.runtime.block_on(self.task);
        assert!(ended.is_err_and(|e| e.is_cancelled()), "it was answered before");
    }

    pub(crate) fn is_answered(&self) -> bool {
        self.task.is_finished()
    }
}
