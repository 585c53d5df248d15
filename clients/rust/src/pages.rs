//! Lists, page by page.

use crate::{body::Body, error::Result, reply::Reply, transport::Scope};
use limina_api::Page;
use reqwest::Method;
use serde::de::DeserializeOwned;
use std::{collections::VecDeque, mem};

/// A list that is read page by page, as far as the caller asks for.
///
/// ```no_run
/// # async fn example(client: limina_client::Limina) -> Result<(), limina_client::Error> {
/// let mut leases = client.leases().list().filter("owner", "worker-3");
/// while let Some(lease) = leases.next().await? {
///     println!("{} {}", lease.lease_id, lease.hits);
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "a list is not read until it is asked for"]
pub struct Pages<T> {
    scope: Scope,
    method: Method,
    path: String,
    query: Vec<(String, String)>,
    body: Option<Body>,
    next: Next,
    items: VecDeque<T>,
}

enum Next {
    First,
    After(String),
    End,
}

impl<T: DeserializeOwned> Pages<T> {
    pub(crate) fn get(scope: &Scope, path: impl Into<String>) -> Pages<T> {
        Pages::new(scope, Method::GET, path.into(), None)
    }

    pub(crate) fn query(scope: &Scope, path: impl Into<String>, body: Body) -> Pages<T> {
        Pages::new(scope, Method::POST, path.into(), Some(body))
    }

    fn new(scope: &Scope, method: Method, path: String, body: Option<Body>) -> Pages<T> {
        let scope = scope.clone();
        Pages { scope, method, path, query: Vec::new(), body, next: Next::First, items: VecDeque::new() }
    }

    /// The number of items on a page, 1–1,000. Default: 100. It may change from page to page.
    pub fn page_size(mut self, items: u32) -> Pages<T> {
        self.query.retain(|(name, _)| name != "limit");
        self.filter("limit", items)
    }

    /// Begins after this point: the `next` of an earlier page.
    pub fn after(mut self, next: impl Into<String>) -> Pages<T> {
        self.next = Next::After(next.into());
        self
    }

    /// Adds a parameter to the query, such as `owner`, `state`, `order` or `older_than`, where the list has it.
    pub fn filter(mut self, name: &str, value: impl ToString) -> Pages<T> {
        self.query.push((name.to_owned(), value.to_string()));
        self
    }

    /// The next page, or `None` after the last one.
    pub async fn next_page(&mut self) -> Result<Option<Reply<Page<T>>>> {
        let mut call = self.scope.call(self.method.clone(), &self.path).read_only();
        for (name, value) in &self.query {
            call = call.query(name, value);
        }
        if let Some(body) = &self.body {
            call = call.with_body(body.clone());
        }
        match &self.next {
            Next::First => {}
            Next::After(after) => call = call.query("after", after),
            Next::End => return Ok(None),
        }
        let page: Reply<Page<T>> = call.send().await?;
        self.next = page.next.clone().map_or(Next::End, Next::After);
        Ok(Some(page))
    }

    /// The next item, or `None` after the last one.
    pub async fn next(&mut self) -> Result<Option<T>> {
        while self.items.is_empty() {
            match self.next_page().await? {
                Some(mut page) => self.items.extend(mem::take(&mut page.items)),
                None => return Ok(None),
            }
        }
        Ok(self.items.pop_front())
    }

    /// All items that are left.
    pub async fn all(mut self) -> Result<Vec<T>> {
        let mut all = Vec::new();
        while let Some(item) = self.next().await? {
            all.push(item);
        }
        Ok(all)
    }
}
