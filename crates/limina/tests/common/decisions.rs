//! The requests about decisions, in as few words as the tests need.

use reqwest::blocking::{Client, RequestBuilder};
use serde_json::{Value, json};

use crate::harness::Server;
use crate::ledger::encode;
use crate::reply::{Reply, all_pages};

/// One namespace's decisions at one running server.
#[derive(Clone)]
pub(crate) struct Decisions {
    http: Client,
    base: String,
}

impl Server {
    /// The decisions of the namespace `default`.
    pub(crate) fn decisions(&self) -> Decisions {
        Decisions { http: self.http().clone(), base: self.url("/v1/decisions") }
    }

    pub(crate) fn decisions_of(&self, namespace: &str) -> Decisions {
        let base = self.url(&format!("/v1/ns/{}/decisions", encode(namespace)));
        Decisions { http: self.http().clone(), base }
    }
}

impl Decisions {
    pub(crate) fn request(&self, method: &str, path: &str) -> RequestBuilder {
        let method = reqwest::Method::from_bytes(method.as_bytes()).expect("a method");
        self.http.request(method, format!("{}{path}", self.base))
    }

    pub(crate) fn sending(&self, path: &str, body: &Value) -> RequestBuilder {
        self.request("POST", path).json(body)
    }

    #[track_caller]
    pub(crate) fn post(&self, path: &str, body: &Value) -> Reply {
        Reply::to(self.sending(path, body))
    }

    #[track_caller]
    pub(crate) fn decide(&self, request: &Value) -> Reply {
        self.post("", request)
    }

    #[track_caller]
    pub(crate) fn commit(&self, id: &str, amounts: &Value) -> Reply {
        self.post(&format!("/{}/commit", encode(id)), amounts)
    }

    #[track_caller]
    pub(crate) fn rollback(&self, id: &str) -> Reply {
        Reply::to(self.request("POST", &format!("/{}/rollback", encode(id))))
    }

    #[track_caller]
    pub(crate) fn heartbeat(&self, id: &str) -> Reply {
        Reply::to(self.request("POST", &format!("/{}/heartbeat", encode(id))))
    }

    #[track_caller]
    pub(crate) fn get(&self, id: &str) -> Reply {
        Reply::to(self.request("GET", &format!("/{}", encode(id))))
    }

    /// The ids of the open decisions, oldest first. `query` is empty, or begins with `&`.
    #[track_caller]
    pub(crate) fn open(&self, query: &str) -> Vec<String> {
        let path = format!("?state=open{query}");
        let items = all_pages(&path, 100, |path| Reply::to(self.request("GET", path)));
        items.iter().map(|item| item["operation_id"].as_str().expect("an id").to_owned()).collect()
    }

    /// The results of a batch of these items.
    #[track_caller]
    pub(crate) fn batch(&self, path: &str, items: Vec<Value>) -> Vec<Value> {
        let reply = self.post(path, &json!({"operations": items})).ok();
        reply.body["results"].as_array().expect("results").clone()
    }
}
